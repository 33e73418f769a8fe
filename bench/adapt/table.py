"""Training on batches of any length within budgets: `lowtide.adapt` beside plans that do not look at the batch.

    python -m bench run adapt_table                         # all seven tasks, 500 batches each: hours
    python -m bench run adapt_table qa_bert --batches 60    # one of them

Every batch is trained on by each method in turn, with the same parameters and random numbers, and gradients are
compared bit for bit; then the optimizer steps once. Methods:

    none      nothing is dropped
    all       everything is dropped
    static    the best choice for the longest batch, for all batches: Sublinear and other static planners at their best
    dtr       what DTR's rule drops, which goes by time, size and age as memory fills; simulated on the same blocks
    adapt     lowtide.adapt

`static` and `dtr` decide with what `adapt` has learnt, and their deciding is not counted. Bytes are all that is in use:
parameters, gradients, the state of Adam, the batch. Time is processor time of both passes.
"""

from __future__ import annotations

import argparse
import copy
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import lowtide
from bench.adapt.tasks import Task, loss_of, tasks
from bench.lib.markdown import header, line
from bench.lib.progress import each
from lowtide import _core
from lowtide._adapt.forward import Caches, Forward
from lowtide._adapt.second_runs import SecondRuns

METHODS = ("none", "all", "static", "dtr", "adapt")
MIB = 2**20


class _Everything:
    """Names of all tensors: none shares its memory with what is kept of it, as in a plain checkpoint."""

    def __contains__(self, name: object) -> bool:
        return True


class Chosen:
    """A model whose blocks are dropped as `dropped` says, one by one in the order of their calls."""

    def __init__(self, model: nn.Module, names: list[str]) -> None:
        self.dropped: list[bool] = []
        self._calls = 0
        for name in names:
            Forward(model.get_submodule(name), self._run)

    def choose(self, dropped: list[bool]) -> None:
        """For the next batch."""
        self.dropped = dropped
        self._calls = 0

    def _run(self, forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._calls += 1
        if not self.dropped[self._calls - 1]:
            return forward.original(*args, **kwargs)
        return SecondRuns(
            forward, args, kwargs, unshared=_Everything(), watch=False, later=lambda _: None, differs=lambda: None
        ).run()


def dtr_choice(planner: _core.BatchPlanner, extents: list[int], room: int) -> list[bool]:
    """DTR's rule on blocks: when memory is full, what takes the least time for its bytes and age is let go."""
    blocks = planner.likely_blocks(extents)
    dropped = [True] * len(blocks)
    for now in range(len(blocks)):
        dropped[now] = False
        while planner.likely_peak(extents, dropped) > room and not all(dropped[: now + 1]):
            there = [i for i in range(now + 1) if not dropped[i]]
            dropped[min(there, key=lambda i: blocks[i][1] / (max(blocks[i][0], 1) * (now - i + 1)))] = True
    return dropped


@dataclass
class Figures:
    """What a method took."""

    times: list[float] = field(default_factory=list)  # seconds, by batch
    peak: int = 0
    over: int = 0
    differs: int = 0

    def seconds(self, left_out: list[bool] | None = None) -> float:
        """Of all batches, or without some."""
        return sum(t for i, t in enumerate(self.times) if left_out is None or not left_out[i])


@dataclass
class Outcome:
    """One task under one budget."""

    budget: int
    methods: dict[str, Figures]
    refused: int | None = None  # bytes that would be needed
    errors: list[float] = field(default_factory=list)
    planning_us: list[float] = field(default_factory=list)
    sheltered: list[bool] = field(default_factory=list)

    def gain(self, method: str, left_out: list[bool] | None) -> float:
        """How much more `adapt` gets done than the other, as a share."""
        return self.methods[method].seconds(left_out) / self.methods["adapt"].seconds(left_out) - 1


class Bench:
    """One task: a model in two forms that share parameters, and its batches."""

    def __init__(self, task: Task, batches: int, seed: int = 0) -> None:
        self.task = task
        chance = random.Random(seed)
        self.extents = [task.extents(chance) for _ in range(batches)]
        self.extents[batches * 2 // 3] = task.longest  # the longest comes late
        torch.manual_seed(seed)
        self.model = task.make()
        Caches(self.model).turn_off()
        shared = {id(t): t for t in (*self.model.parameters(), *self.model.buffers())}
        self.other = copy.deepcopy(self.model, dict(shared))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)

    def _pass(self, model: nn.Module, batch: dict[str, torch.Tensor], seed: int) -> float:
        torch.manual_seed(seed)
        begin = time.process_time()
        loss_of(model(**batch)).backward()
        return time.process_time() - begin

    def worst(self) -> int:
        """Bytes of the longest batch if nothing is dropped; Adam's state is there from then on."""
        for _ in range(2):
            batch = self.task.batch(self.task.longest)
            self._pass(self.model, batch, 0)
            self.optimizer.step()
            self.optimizer.zero_grad()
        resident = [*self.model.parameters(), *self.model.buffers()]
        state = [v for s in self.optimizer.state.values() for v in s.values() if torch.is_tensor(v)]
        there = sum(t.untyped_storage().nbytes() for t in (*resident, *state))
        with lowtide.measure() as used:
            self._pass(self.model, self.task.batch(self.task.longest), 0)
        self.optimizer.zero_grad()
        return there + used.peak_bytes

    def run(self, budget: int, methods: Sequence[str] = METHODS) -> Outcome:
        """All batches by each of the methods, `adapt` among them."""
        outcome = Outcome(budget, {name: Figures() for name in methods})
        try:
            adapter = lowtide.adapt(self.model, memory_budget=budget, optimizer=self.optimizer)
            with adapter:
                adapter.preflight(self.task.batch(self.task.longest), loss=loss_of)
                blocks = Chosen(self.other, list(adapter.blocks))
                for number, extents in enumerate(self.extents):
                    self._one(adapter, blocks, outcome, number, extents)
                records = list(adapter.history.records)[1:]
        except lowtide.InfeasibleError as error:
            outcome.refused = error.bound_bytes
            return outcome
        for record in records[10:]:
            outcome.errors += [] if record.error is None else [record.error]
        outcome.planning_us = [record.planning_us for record in records]
        outcome.sheltered = [record.sheltered for record in records]
        for block in self.other.modules():
            vars(block).pop("forward", None)
        return outcome

    def _one(
        self, adapter: lowtide.Adapter, blocks: Chosen, outcome: Outcome, number: int, extents: tuple[int, ...]
    ) -> None:
        torch.manual_seed(number)
        batch = self.task.batch(extents)
        key = [extent for tensor in batch.values() for extent in tensor.shape]
        longest = [extent for tensor in self.task.batch(self.task.longest).values() for extent in tensor.shape]
        planner = next(reversed(adapter._kinds.planners()), None)
        # Copies are NumPy's: tensors would count against the budget.
        buffers = [(buffer, buffer.numpy().copy()) for buffer in self.model.buffers()]
        expected: list[bytes] = []
        methods = list(outcome.methods)
        first = number % len(methods)  # whoever comes first has cold caches
        for method in (*methods[first:], *methods[:first]):
            self.optimizer.zero_grad()
            for buffer, content in buffers:
                buffer.numpy()[...] = content
            figures = outcome.methods[method]
            if method == "adapt":
                begin = time.process_time()
                self._pass(self.model, batch, number)
                adapter.end()
                figures.times.append(time.process_time() - begin)
                peak = adapter.history.records[-1].peak_bytes
            else:
                room = outcome.budget - adapter._memory.level()
                blocks.choose(self._choice(method, planner, key, longest, room, len(adapter.blocks)))
                adapter._memory.mark()
                figures.times.append(self._pass(self.other, batch, number))
                peak = adapter._memory.mark()[1]
            figures.peak = max(figures.peak, peak)
            figures.over += peak > outcome.budget
            gradients = [p.grad.numpy().tobytes() for p in self.model.parameters() if p.grad is not None]
            expected = expected or gradients
            figures.differs += gradients != expected
        self.optimizer.step()
        self.optimizer.zero_grad()

    @staticmethod
    def _choice(
        method: str, planner: _core.BatchPlanner | None, key: list[int], longest: list[int], room: int, blocks: int
    ) -> list[bool]:
        if method == "none":
            return [False] * blocks
        if method == "all" or planner is None:
            return [True] * blocks
        if method == "static":
            return planner.plan(longest, room).dropped
        return dtr_choice(planner, key, room)


def extents_of(bench: Bench) -> dict[str, float]:
    """Lengths, or sides of images."""
    sizes = sorted(max(e) if bench.task.images else sum(e) / len(e) for e in bench.extents)
    return {
        "min": sizes[0],
        "median": statistics.median(sizes),
        "p99": sizes[len(sizes) * 99 // 100],
        "max": sizes[-1],
    }


def figures_of(outcome: Outcome, worst: int) -> dict[str, Any]:
    """Of one budget: by method, and what `adapt` did. Times are shares of plain training's, if that was among them."""
    if outcome.refused is not None:
        return {"refused_share": outcome.refused / worst}
    methods = outcome.methods
    reference = methods.get("none", methods["adapt"])
    base = reference.seconds()
    others = [name for name in methods if name not in ("none", "adapt")]
    learning = [not one for one in outcome.sheltered]
    extra = methods["adapt"].seconds(learning) - reference.seconds(learning)
    return {
        "peak_shares": {name: made.peak / worst for name, made in methods.items()},
        "over_budget": {name: made.over for name, made in methods.items()},
        "times": {name: made.seconds() / base for name, made in methods.items()},
        "gradients_that_differ": {name: made.differs for name, made in methods.items()},
        "gains": {name: outcome.gain(name, None) for name in others},
        "gains_after_sheltering": {name: outcome.gain(name, outcome.sheltered) for name in others},
        "prediction_error": statistics.mean(outcome.errors) if outcome.errors else None,
        "planning_us": statistics.median(outcome.planning_us),
        "sheltered": sum(outcome.sheltered),
        "sheltering_iterations": extra / (base / len(outcome.sheltered)),
    }


def print_task(task: Task, batches: int, shares: list[float], methods: Sequence[str]) -> list[dict[str, Any]]:
    """One task under all budgets; gives a row for each."""
    bench = Bench(task, batches)
    extents, worst = extents_of(bench), bench.worst()
    print(f"\n## {task.name}: {batches} batches, worst case {worst / MIB:.1f} MiB\n")
    print(", ".join(f"{name} {size:g}" for name, size in extents.items()) + "\n")
    print(header(("budget", "method", "peak, % of worst", "over budget", "time / none", "gradients that differ")))
    rows = []
    for share in shares:
        found = figures_of(bench.run(int(worst * share), methods), worst)
        rows.append({"task": task.name, "share": share, "extents": extents, "worst_bytes": worst, **found})
        _print_budget(share, found)
    return rows


def _print_budget(share: float, found: dict[str, Any]) -> None:
    if "refused_share" in found:
        print(line((f"{share:.0%}", f"refused: at least {found['refused_share']:.1%}", "", "", "", "")), flush=True)
        return
    for name, peak in found["peak_shares"].items():
        cells = (found["over_budget"][name], f"{found['times'][name]:.3f}", found["gradients_that_differ"][name])
        print(line((f"{share:.0%}", name, f"{peak:.1%}", *cells)))
    for when, gains in (("throughput of adapt", "gains"), ("after sheltering", "gains_after_sheltering")):
        print(f"\n{when}: " + ", ".join(f"{gain:+.1%} over {name}" for name, gain in found[gains].items()), end="")
    error = "not predicted" if found["prediction_error"] is None else f"{found['prediction_error']:.3%}"
    print(
        f"\npredicted peak off by {error} in the mean; from call to plan {found['planning_us']:.0f} us in the median; "
        f"{found['sheltered']} batches sheltered, which took {found['sheltering_iterations']:.1f} iterations more\n",
        flush=True,
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"some of {', '.join(tasks())}; all if none")
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--scale", type=float, default=1.0, help="of lengths and image sizes")
    parser.add_argument("--budgets", type=float, nargs="*", default=[0.4, 0.6, 0.8])
    parser.add_argument(
        "--methods", nargs="*", choices=METHODS, default=METHODS, help="adapt among them; none gives the unit of time"
    )


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints a table for each task; gives a row for each budget."""
    torch.set_num_threads(1)
    known = tasks(options.scale)
    rows = []
    for name in each(options.tasks or known, "tasks"):
        rows += print_task(known[name], options.batches, options.budgets, options.methods)
    return rows
