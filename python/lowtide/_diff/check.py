"""The program `lowtide-check`, which `lowtide check` runs: whether a step's peak is as low as it is to be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from .. import _core
from .._base.program import DONE, Parser, UsageError, answer, leave, refusing
from .._base.whole_files import write_whole
from .._core import format_bytes
from .._report.program import add_captured
from .difference import Diff, signed
from .holders import Peak, loaded, saved
from .versions import Asked, version_named

FAILED = 1
_SHOWN = 10

_EPILOG = """\
STEP is MODULE:FUNCTION or a graph file, as `lowtide report` takes them. It is captured where nothing takes memory, and
needs no GPU. Its peak is that of eager PyTorch. What is printed is Markdown, for the summary of a pull request.

Exit codes:
  0    the peak is as low as it is to be
  1    it is not
  2    usage
  5    a file, or what FUNCTION makes, is not what it should be
  130  interrupted

Examples:
  lowtide check examples/gpt2.py:training --device L4 --save baseline.json
  lowtide check examples/gpt2.py:training --device L4 --peak-below 30GiB --against baseline.json
"""


def _parser() -> Parser:
    parser = Parser("check", "Fail where the peak of a training step is higher than it is to be.", _EPILOG)
    parser.add_argument("step", metavar="STEP", help="MODULE:FUNCTION or a graph file")
    parser.add_argument("--peak-below", metavar="AMOUNT", help="the most it may be: 20GiB")
    parser.add_argument("--against", metavar="FILE", help="what --save wrote: the peak may be no higher")
    parser.add_argument(
        "--tolerance", default="0B", metavar="AMOUNT", help="how much higher all the same (%(default)s)"
    )
    parser.add_argument("--save", metavar="FILE", help="write the peak and who holds it there")
    add_captured(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Runs the program and gives its exit code."""
    return refusing("check", arguments, _run)


def _run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.peak_below is None and options.against is None and options.save is None:
        raise UsageError("nothing to check: --peak-below, --against or --save is needed")
    below = None if options.peak_below is None else _core.parse_bytes(options.peak_below)
    tolerance = _core.parse_bytes(options.tolerance)
    before = None if options.against is None else _baseline(options.against)
    version = version_named(options.step, Asked(options.device, options.batch, options.length), is_now=True)
    peak = version.peak
    difference = None if before is None else Diff(before, peak)
    failures = []
    if below is not None and peak.total_bytes > below:
        failures.append(f"the peak is {format_bytes(peak.total_bytes)}, above {options.peak_below}")
    if difference is not None and difference.gain_bytes > tolerance:
        failures.append(f"the peak has gained {format_bytes(difference.gain_bytes)}")
    if options.save is not None:
        write_whole(Path(options.save), json.dumps(saved(peak), indent=1) + "\n")
    code = FAILED if failures else DONE
    if options.json:
        fields = difference.to_dict() if difference is not None else {"new_bytes": peak.total_bytes}
        return answer(json.dumps({"ok": True, "passed": not failures, "failures": failures, **fields}), code)
    return answer(_summary(options.step, peak, difference, failures), code)


def _baseline(path: str) -> Peak:
    try:
        return loaded(json.loads(Path(path).read_text(encoding="utf-8")))
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None


def _summary(step: str, peak: Peak, difference: Diff | None, failures: list[str]) -> str:
    """A page of Markdown."""
    verdict = "; ".join(failures) if failures else "as low as it is to be"
    lines = [
        f"## Peak memory of {_code(step)}",
        "",
        f"**{'Fails' if failures else 'Passes'}**: {verdict}.",
        "",
        f"{format_bytes(peak.total_bytes)} in eager PyTorch, at {_code(peak.at or 'no operator')}.",
    ]
    if difference is None:
        shown = sorted(peak.held.items(), key=lambda item: -item[1].bytes)[:_SHOWN]
        rows = [(format_bytes(held.bytes), holder.kind, held.place, held.text) for holder, held in shown]
        lines += ["", "| bytes | what | line | |", "|---|---|---|---|"]
    else:
        lines += ["", f"{signed(difference.gain_bytes)} since the baseline, {format_bytes(difference.old_bytes)}."]
        rows = [(signed(row.gain_bytes), row.kind, row.place, row.line) for row in difference.rows[:_SHOWN]]
        if rows:
            lines += ["", "| gained | what | line | |", "|---|---|---|---|"]
    lines += [f"| {amount} | {kind} | {_code(place)} | {_code(line)} |" for amount, kind, place, line in rows]
    return "\n".join(lines)


def _code(words: str) -> str:
    """As code in a table of Markdown: one line, which nothing in it ends."""
    flat = " ".join(words.split()).replace("`", "'").replace("|", "\\|")
    return f"`{flat}`" if flat else ""


def main() -> None:
    """The program."""
    leave(run)


if __name__ == "__main__":
    main()
