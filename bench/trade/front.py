"""Recompute: what our planner trades of memory for time, beside named planners on the same graphs and costs.

    python -m bench run trade_front [--quick] [--detail] [--cache DIR] [MODEL ...]

Ten training steps of the zoo, each at its larger batch, with the times that an A100 allows (`lowtide.capture(...,
device="A100")`). Every planner starts from the same order, has the same work, and gives points: what runs again costs
so much, and the peak is so high, both exact. Ours *dominates* a planner on a graph if for each of its points it has one
that costs no more and needs no more. It starts from what `greedy`, `chen`, `rotor` and `dtr` find in a part of its own
work, so that their points are reached by construction where that part is enough for them; `checkmate` is no part of it.

The columns `+2 %` to `+33 %` hold the lowest peak for which what runs again takes so much of the step, in percent of
the peak where nothing runs again. *Ahead* counts the points that ours does not reach; *by* is how far, at most, the
lowest peak of ours at the cost of such a point is above it, in the same percent. `--detail` lists these points.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import lowtide
from bench.lib.markdown import header, line
from bench.zoo import graphs as zoo_graphs
from bench.zoo.graphs import MIB, Form, Step
from lowtide import _core

MODELS = (
    "vgg16", "resnet50", "googlenet", "mobilenet_v2", "efficientnet_b0",
    "unet", "vit_base", "bert_base", "gpt2", "t5_base",
)  # fmt: skip
QUICK = ("vgg16", "vit_base")
FORM = Form(gradients="dropped", device="A100")
OURS = "auto"
EXTRAS = (0.02, 0.05, 0.10, 0.20, 0.33)

COLUMNS = (
    "model", "batch", "ops", "peak MiB", "planner", "points", *(f"+{100 * extra:.0f} %" for extra in EXTRAS),
    "lowest", "seconds", "ahead", "by",
)  # fmt: skip

Points = list[tuple[int, int]]  # cost and peak, from the lowest cost on


@dataclass(frozen=True)
class Front:
    """What a planner found for a step."""

    step: Step
    planner: str
    points: Points
    seconds: float
    step_ns: int

    @property
    def base(self) -> int:
        """The peak where nothing runs again."""
        return self.points[0][1]

    def peak_within(self, cost: int) -> int:
        return min(peak for spent, peak in self.points if spent <= cost)

    def ahead_of(self, ours: Front) -> Points:
        """Points that ours does not reach."""
        return [(cost, peak) for cost, peak in self.points if ours.peak_within(cost) > peak]

    def compared_with(self, ours: Front) -> dict[str, Any]:
        """A row of the table. Peaks are in percent of that where nothing runs again."""
        share = 100 / self.base
        ahead = self.ahead_of(ours)
        return {
            "model": self.step.model,
            "batch": self.step.batch,
            "ops": self.step.graph.num_ops,
            "peak_bytes": self.base,
            "planner": self.planner,
            "points": len(self.points),
            **{f"+{100 * extra:.0f} %": share * self.peak_within(int(extra * self.step_ns)) for extra in EXTRAS},
            "lowest": share * self.points[-1][1],
            "seconds": self.seconds,
            "ahead": len(ahead),
            "by": max((share * (ours.peak_within(cost) - peak) for cost, peak in ahead), default=0.0),
        }


def planners() -> list[str]:
    """All that there are, ours first."""
    return [name for name, _ in _core.recompute_algorithms()]


def fronts(step: Step) -> list[Front]:
    """Of every planner."""
    step_ns = lowtide.plan(step.graph, layout="greedy_by_size").time_ns
    found = []
    for planner in planners():
        begin = time.process_time()
        points = _core.recompute_trades(step.graph, planner)
        found.append(Front(step, planner, points, time.process_time() - begin, step_ns))
    return found


def print_table(steps: Iterable[Step]) -> list[Front]:
    """Prints a line for each step and planner, and on how many steps ours dominates all others; gives the lines."""
    print(header(COLUMNS))
    rows: list[Front] = []
    dominated = total = 0
    for step in steps:
        found = fronts(step)
        for front in found:
            print(line(_cells(front.compared_with(found[0]))), flush=True)
        rows += found
        total += 1
        dominated += not any(front.ahead_of(found[0]) for front in found)
    print(f"\n{OURS} dominates on {dominated} of {total}")
    return rows


def _cells(row: dict[str, Any]) -> list[object]:
    shown = {**row, "peak_bytes": f"{row['peak_bytes'] / MIB:.1f}", "seconds": f"{row['seconds']:.1f}"}
    return [f"{cell:.2f}" if isinstance(cell, float) else cell for cell in shown.values()]


def print_ahead(rows: Sequence[Front]) -> None:
    """Prints every point that ours does not reach."""
    for front in rows:
        if front.planner == OURS:
            ours = front
        for cost, peak in front.ahead_of(ours):
            extra, share = 100 * cost / front.step_ns, 100 / front.base
            mine = share * ours.peak_within(cost)
            print(f"{front.step}, {front.planner}: {share * peak:.2f} for +{extra:.2f} %, ours {mine:.2f}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    zoo_graphs.add_arguments(parser)
    parser.add_argument("--quick", action="store_true", help="two small models")
    parser.add_argument("--detail", action="store_true", help="what ours does not reach, point by point")


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the table; gives its rows."""
    if options.quick:
        options.size = "small"
    options.models = options.models or (QUICK if options.quick else MODELS)
    rows = print_table(step for step in zoo_graphs.chosen(options, [FORM]) if step.batch > 1)
    if options.detail:
        print_ahead(rows)
    ours = {row.step.model: row for row in rows if row.planner == OURS}
    return [row.compared_with(ours[row.step.model]) for row in rows]
