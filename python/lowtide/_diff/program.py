"""The program `lowtide-diff`, which `lowtide diff` runs: what the peak of a step gained and lost."""

from __future__ import annotations

import json
from collections.abc import Sequence

from .._base.program import DONE, Parser, answer, leave, refusing
from .._report.program import add_captured
from .difference import Diff
from .versions import Asked, version_at, version_named

_EPILOG = """\
OLD and NEW are graph files, as Graph.save writes them, or MODULE:FUNCTION as `lowtide report` takes them. With --step
they are commits of the git repository around the current folder, or folders, and the step is captured in each; its path
is seen from the current folder.

Exit codes:
  0    done, whatever the peak gained
  2    usage
  5    a file, a commit, or what FUNCTION makes, is not what it should be
  130  interrupted

Examples:
  lowtide diff before.json now.json
  lowtide diff --step train.py:make main . -o diff.html
"""


def _parser() -> Parser:
    parser = Parser("diff", "Say what the peak of a training step gained and lost, by module and source line.", _EPILOG)
    parser.add_argument("old", metavar="OLD", help="before: a graph file, MODULE:FUNCTION, or a commit")
    parser.add_argument("new", metavar="NEW", help="now: a graph file, MODULE:FUNCTION, a commit or a folder")
    parser.add_argument("--step", metavar="MODULE:FUNCTION", help="what makes the step in both commits")
    parser.add_argument("-o", "--output", metavar="FILE", help="a page too: both versions side by side")
    add_captured(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Runs the program and gives its exit code."""
    return refusing("diff", arguments, _run)


def _run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    asked = Asked(options.device, options.batch, options.length)
    if options.step is not None:
        old, new = (version_at(commit, options.step, asked) for commit in (options.old, options.new))
    else:
        old, new = (version_named(options.old, asked, is_now=False), version_named(options.new, asked, is_now=True))
    found = Diff(old.peak, new.peak, (old.graph, new.graph))
    if options.output is not None:
        found.save(options.output)
    if options.json:
        return answer(json.dumps({"ok": True, "output": options.output, **found.to_dict()}), DONE)
    return answer(f"{found}\nwritten   {options.output}" if options.output else str(found), DONE)


def main() -> None:
    """The program."""
    leave(run)


if __name__ == "__main__":
    main()
