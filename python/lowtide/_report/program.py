"""The program `lowtide-report`, which `lowtide report` runs: a page about the memory of a step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from .. import _core
from .._base.budgets import read_latency_budget, read_link, read_memory_budget
from .._base.program import (
    DONE,
    INFEASIBLE,
    Parser,
    UsageError,
    answer,
    leave,
    refuse,
    refusing,
    size,
)
from .._plan import plan
from ..errors import InfeasibleError, InvalidGraphError, InvalidPlanError
from ..versions import require_torch
from .report import report

_EPILOG = """\
STEP is a graph file, as Graph.save writes it; or MODULE:FUNCTION, of which FUNCTION makes a step as `lowtide fit` takes
it and MODULE may be a file. PLAN is a plan of that graph; without one the step is planned, within the budgets if there
are any.

Exit codes:
  0    the page is written
  2    usage
  3    no plan keeps the budget
  5    a file, or what FUNCTION makes, is not what it should be; or the page cannot be written
  130  interrupted

Examples:
  lowtide report examples/gpt2.py:training --device A100 -o report.html
  lowtide report step.json plan.json -o report.html
"""


def _parser() -> Parser:
    parser = Parser("report", "Write a page about the memory of a training step: one file of HTML.", _EPILOG)
    parser.add_argument("step", metavar="STEP", help="a graph file, or MODULE:FUNCTION")
    parser.add_argument("plan", metavar="PLAN", nargs="?", help="a plan file of that graph")
    parser.add_argument("-o", "--output", default="report.html", metavar="FILE", help="the page (%(default)s)")
    parser.add_argument("--memory-budget", metavar="AMOUNT", help='of the plan that is made: 6GiB, or "60%%" of eager')
    parser.add_argument("--latency-budget", metavar="TIME", help="of the plan that is made: 20ms")
    parser.add_argument("--link", metavar="RATE", help="tensors may leave for the host's memory: 16GB/s")
    add_captured(parser)
    return parser


def add_captured(parser: Parser) -> None:
    """The options of a step that is captured."""
    parser.add_argument("--device", metavar="NAME", help="whose times a captured step has: A100, L4")
    parser.add_argument("--batch", type=size, metavar="N", help="of a captured step")
    parser.add_argument("--length", type=size, metavar="N", help="of a captured step")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


def run(arguments: Sequence[str]) -> int:
    """Runs the program and gives its exit code."""
    return refusing("report", arguments, _run)


def _run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    given = [read_memory_budget(options.memory_budget), read_latency_budget(options.latency_budget)]
    if options.link is not None:
        given.append(read_link(options.link))
    if options.plan is not None and any(one is not None for one in given):
        raise UsageError("budgets and links are of the plan that is made; here a plan is given")
    graph = graph_named(options.step, options.device, options.batch, options.length)
    try:
        if options.plan is not None:
            made = _core.Plan.load(options.plan)
        else:
            made = plan(
                graph,
                memory_budget=options.memory_budget,
                latency_budget=options.latency_budget,
                link=options.link,
            )
    except InfeasibleError as error:
        return refuse(INFEASIBLE, type(error).__name__, str(error), "a larger budget is needed", as_json=options.json)
    page = report(graph, made, path=options.output, title=f"Memory of {Path(options.step).name}")
    if options.json:
        return answer(json.dumps({"ok": True, "output": options.output, **page.figures()}), DONE)
    return answer(f"{page}\nwritten    {options.output}", DONE)


def graph_named(step: str, device: str | None, batch: int | None, length: int | None) -> _core.Graph:
    """A graph file, or the step that a function makes."""
    module, _, function = step.rpartition(":")
    if module and function.isidentifier() and not Path(step).exists():
        require_torch("report")
        from .._fit.target import captured

        return captured(step, device, batch, length)
    if any(one is not None for one in (device, batch, length)):
        raise UsageError("--device, --batch and --length are of a step that is captured, MODULE:FUNCTION")
    try:
        return _core.Graph.load(step)
    except InvalidGraphError as error:
        raise _plan_instead(step) or error from None


def _plan_instead(step: str) -> UsageError | None:
    """What to say where a plan was given for a graph."""
    try:
        _core.Plan.load(step)
    except (InvalidPlanError, OSError):
        return None
    return UsageError(f"{step} is a plan, which does not hold its graph: lowtide report GRAPH {step}")


def main() -> None:
    """The program."""
    leave(run)


if __name__ == "__main__":
    main()
