"""The program `lowtide-snapshot`, which `lowtide snapshot` runs: what a memory snapshot of PyTorch says."""

from __future__ import annotations

import json
from collections.abc import Sequence

from .._base.program import DONE, Parser, answer, leave, refusing, size
from .snapshot import snapshot

_EPILOG = """\
SNAPSHOT is what torch.cuda.memory._dump_snapshot writes. It is read as data: nothing in it is ever run. With
torch.cuda.memory._record_memory_history() before the first step it has a history, of which every block is packed into
one arena, for as long as it was in use.

Exit codes:
  0    done
  2    usage
  5    a file is not what it should be, or cannot be written
  130  interrupted

Examples:
  lowtide snapshot trace.pickle
  lowtide snapshot trace.pickle -o page.html --graph trace.json
"""


def _parser() -> Parser:
    parser = Parser("snapshot", "Say what a memory snapshot of PyTorch holds, and what a packed arena needs.", _EPILOG)
    parser.add_argument("snapshot", metavar="SNAPSHOT", help="what torch.cuda.memory._dump_snapshot wrote")
    parser.add_argument("-o", "--output", metavar="FILE", help="write a page too: one file of HTML")
    parser.add_argument("--graph", metavar="FILE", help="write the trace as a graph, for the other commands")
    parser.add_argument("--device", type=int, metavar="N", help="the one with this number, not that with most memory")
    parser.add_argument(
        "--top", type=size, default=10, metavar="N", help="so many lines that hold the peak (%(default)s)"
    )
    parser.add_argument("--effort", type=float, default=1.0, metavar="FACTOR", help="2 lets packing do twice its work")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Runs the program and gives its exit code."""
    return refusing("snapshot", arguments, _run)


def _run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    found = snapshot(options.snapshot, device=options.device, effort=options.effort)
    if options.output is not None:
        found.save(options.output)
    if options.graph is not None:
        found.graph.save(options.graph)
    written = [path for path in (options.output, options.graph) if path is not None]
    if options.json:
        return answer(json.dumps({"ok": True, "written": written, **found.figures(options.top)}), DONE)
    return answer("\n".join([found.text(options.top), *(f"written   {path}" for path in written)]), DONE)


def main() -> None:
    """The program."""
    leave(run)


if __name__ == "__main__":
    main()
