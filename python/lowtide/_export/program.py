"""The program `lowtide-export`, which `lowtide export` runs: a plan as a file of another tool."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from .. import _core
from .._base.program import DONE, Parser, answer, leave, refusing
from .._report.program import add_captured, graph_named
from .export import export

_EPILOG = """\
STEP is a graph file, or MODULE:FUNCTION as `lowtide report` takes it. PLAN is a plan of that graph; without one the
step is planned. FILE ends in .json for a trace that chrome://tracing and ui.perfetto.dev show, in .pickle for a memory
snapshot that PyTorch's viewer shows, pytorch.org/memory_viz.

Exit codes:
  0    the file is written
  2    usage
  5    a file, or what FUNCTION makes, is not what it should be; or the file cannot be written
  130  interrupted

Examples:
  lowtide export step.json plan.json -o trace.json
  lowtide export step.json plan.json -o plan.pickle
"""


def _parser() -> Parser:
    parser = Parser("export", "Write the plan of a training step as a file of another tool.", _EPILOG)
    parser.add_argument("step", metavar="STEP", help="a graph file, or MODULE:FUNCTION")
    parser.add_argument("plan", metavar="PLAN", nargs="?", help="a plan file of that graph")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="ends in .json or .pickle")
    add_captured(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Runs the program and gives its exit code."""
    return refusing("export", arguments, _run)


def _run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    graph = graph_named(options.step, options.device, options.batch, options.length)
    made = _core.Plan.load(options.plan) if options.plan is not None else None
    export(graph, made, path=options.output, title=Path(options.step).name)
    if options.json:
        return answer(json.dumps({"ok": True, "output": options.output}), DONE)
    return answer(f"written   {options.output}", DONE)


def main() -> None:
    """The program."""
    leave(run)


if __name__ == "__main__":
    main()
