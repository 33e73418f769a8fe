"""Swap: the time of recomputation alone, of swapping alone and of both within budgets of memory, and a proven bound.

    python -m bench run trade_swap [--quick] [--full] [--state] [--cache DIR] [MODEL ...]

Ten training steps of the zoo and two large language models, each at its larger batch, with the times that an A100
allows, and links to the host of 16 and 64 GB/s that take one transfer after another. A budget is resident bytes and so
much of the arena of the plan without a budget; with `--state`, where parameters, optimizer state and the batch may
leave too, so much of both. All times are exact, of plans that were verified, in percent more than the step's own; a
dash is a budget that was refused. The bound holds for any plan within the budget, whatever runs again and whatever
leaves. *Gap* is how far both is above it, in points.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.lib.markdown import header, line
from bench.trade import front, large
from bench.zoo import graphs as zoo_graphs
from bench.zoo.graphs import Form, Step
from lowtide import Graph, _core
from lowtide.errors import InfeasibleError

MODELS = (*front.MODELS, *large.MODELS)
QUICK = ("vit_base", "bert_base")
FORM = Form(gradients="dropped", device="A100")
RATES = (16_000_000_000, 64_000_000_000)  # bytes a second
SHARES = (0.8, 0.6, 0.4, 0.25)
FULL_SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2)

COLUMNS = ("model", "batch", "ops", "GB/s", "budget", "recompute", "swap", "both", "bound", "gap", "seconds")


@dataclass(frozen=True)
class Point:
    """One step within one budget, over one link. Times are in ns, and None where the budget was refused."""

    model: str
    batch: int
    ops: int
    rate: int
    state: bool  # whether resident buffers may leave
    share: float
    memory_bytes: int
    step_ns: int
    recompute_ns: int | None
    swap_ns: int | None
    both_ns: int | None
    bound_ns: int
    seconds: float  # that the plan of both took to make

    def more(self, time_ns: int | None) -> float | None:
        """In percent of the step."""
        return None if time_ns is None else 100 * (time_ns - self.step_ns) / self.step_ns

    @property
    def gap(self) -> float | None:
        """In points."""
        return None if self.both_ns is None else 100 * (self.both_ns - self.bound_ns) / self.step_ns

    def cells(self) -> list[object]:
        times = (self.recompute_ns, self.swap_ns, self.both_ns)
        bound = None if self.both_ns is None else self.more(self.bound_ns)
        shown = [_shown(more) for more in (*map(self.more, times), bound, self.gap)]
        start = (self.model, self.batch, self.ops, self.rate // 10**9, f"{self.share:.0%}")
        return [*start, *shown, f"{self.seconds:.1f}"]


def _shown(more: float | None) -> str:
    return "-" if more is None else f"{more:.2f}"


def _time_within(graph: Graph, memory: int, **options: Any) -> int | None:
    try:
        return _core.plan(graph, memory_budget=memory, **options).time_ns
    except InfeasibleError:
        return None


def points(step: Step, shares: Sequence[float], *, state: bool, least_bytes: int) -> Iterator[Point]:
    """Of each link and budget."""
    graph = step.graph
    whole = _core.plan(graph)
    fixed = 0 if state else whole.resident_bytes
    part = whole.resident_bytes + whole.arena_bytes - fixed
    memories = [fixed + int(share * part) for share in shares]
    recompute = [_time_within(graph, memory) for memory in memories]
    for rate in RATES:
        leaving = graph.resident_buffers() if state else []
        swap = _core.Swap("host", store_rate=rate, load_rate=rate, may_leave=leaving, least_bytes=least_bytes)
        bounds = _core.joint_bounds(graph, swap, memories)
        for share, memory, again, bound in zip(shares, memories, recompute, bounds, strict=True):
            alone = _time_within(graph, memory, swap=swap, recompute="none")
            begin = time.perf_counter()
            both = _time_within(graph, memory, swap=swap)
            seconds = time.perf_counter() - begin
            yield Point(
                step.model, step.batch, graph.num_ops, rate, state, share, memory, whole.time_ns, again, alone, both,
                bound, seconds,
            )  # fmt: skip


def print_table(steps: Iterable[Step], shares: Sequence[float], *, state: bool, least_bytes: int) -> list[Point]:
    """Prints a line for each step, link and budget, and the averages; gives the lines."""
    print(header(COLUMNS))
    found = []
    for step in steps:
        for point in points(step, shares, state=state, least_bytes=least_bytes):
            print(line(point.cells()), flush=True)
            found.append(point)
    for rate in RATES:
        print(f"\n{rate // 10**9} GB/s: {summary([point for point in found if point.rate == rate])}")
    return found


def summary(found: Sequence[Point]) -> str:
    """How both compares with either, and with the bound."""
    kept = [point for point in found if point.both_ns is not None]
    alone = [point for point in found if point.recompute_ns is not None]
    slower = sum(point.both_ns is None or point.both_ns > (point.recompute_ns or 0) for point in alone)
    saved = [(point.more(point.recompute_ns) or 0.0) - (point.more(point.both_ns) or 0.0) for point in alone]
    gaps = sorted(point.gap or 0.0 for point in kept)
    return (
        f"{len(found)} budgets, {len(kept)} kept by both, {len(alone)} by recomputation alone; both is slower than "
        f"that at {slower}, and {_average(saved):.2f} points faster on average; {_average(gaps):.2f} points above the "
        f"bound on average, {gaps[len(gaps) // 2] if gaps else 0.0:.2f} in the middle, {max(gaps, default=0.0):.2f} at "
        "most"
    )


def _average(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    zoo_graphs.add_arguments(parser)
    parser.add_argument("--quick", action="store_true", help="two small models")
    parser.add_argument("--full", action="store_true", help="more budgets")
    parser.add_argument("--state", action="store_true", help="parameters and optimizer state may leave too")


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the table; gives its rows."""
    if options.quick:
        options.size = "small"
    options.models = options.models or (QUICK if options.quick else MODELS)
    steps = (step for step in zoo_graphs.chosen(options, [FORM]) if step.batch > 1)
    shares = FULL_SHARES if options.full else SHARES
    least = 1024 if options.size == "small" else 65536
    return [asdict(point) for point in print_table(steps, shares, state=options.state, least_bytes=least)]
