"""Training on batches of any length within budgets: `lowtide.adapt` beside plans that do not look at the batch.

    python bench/adapt/table.py                         # all seven tasks, 500 batches each: hours
    python bench/adapt/table.py qa_bert --batches 60    # one of them
    python bench/adapt/table.py --regressors            # polynomials beside other regressors
    python bench/adapt/table.py --flat 10000            # memory of the process over many batches of 500 shapes
    python bench/adapt/table.py --planning              # microseconds of a prediction and plan, 48 blocks

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
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import lowtide
from bench.adapt.tasks import Task, loss_of, tasks
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

    def gain(self, method: str, left_out: list[bool] | None) -> str:
        """How much more `adapt` gets done than the other."""
        ratio = self.methods[method].seconds(left_out) / self.methods["adapt"].seconds(left_out)
        return f"{ratio - 1:+.1%} over {method}"


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


def print_task(task: Task, batches: int, shares: list[float], methods: Sequence[str]) -> None:
    """One task under all budgets."""
    bench = Bench(task, batches)
    sizes = sorted(max(e) if task.images else sum(e) / len(e) for e in bench.extents)
    worst = bench.worst()
    print(f"\n## {task.name}: {batches} batches, worst case {worst / MIB:.1f} MiB")
    print(
        f"\nmin {sizes[0]:g}, median {statistics.median(sizes):g}, p99 {sizes[len(sizes) * 99 // 100]:g}, "
        f"max {sizes[-1]:g}\n"
    )
    print("| budget | method | peak, % of worst | over budget | time / none | gradients that differ |")
    print("|---|---|---|---|---|---|", flush=True)
    for share in shares:
        outcome = bench.run(int(worst * share), methods)
        if outcome.refused is not None:
            print(f"| {share:.0%} | refused: at least {outcome.refused / worst:.1%} | | | | |", flush=True)
            continue
        reference = outcome.methods["none" if "none" in methods else "adapt"]
        base = reference.seconds()
        for name, figures in outcome.methods.items():
            print(
                f"| {share:.0%} | {name} | {figures.peak / worst:.1%} | {figures.over} | "
                f"{figures.seconds() / base:.3f} | {figures.differs} |"
            )
        micros = sorted(outcome.planning_us)
        mean = statistics.mean(outcome.errors) if outcome.errors else float("nan")
        others = [name for name in methods if name not in ("none", "adapt")]
        print("\nthroughput of adapt: " + ", ".join(outcome.gain(name, None) for name in others))
        print("after sheltering: " + ", ".join(outcome.gain(name, outcome.sheltered) for name in others))
        sheltered = [not one for one in outcome.sheltered]
        extra = outcome.methods["adapt"].seconds(sheltered) - reference.seconds(sheltered)
        print(
            f"predicted peak off by {mean:.3%} in the mean; from call to plan {micros[len(micros) // 2]:.0f} us in the "
            f"median; {sum(outcome.sheltered)} batches sheltered, which took {extra / (base / batches):.1f} "
            "iterations more\n",
            flush=True,
        )


def print_regressors(chosen: list[Task], samples: int = 60) -> None:
    """Errors of the sum of per-block bytes, fitted on 10 and 50 batches: polynomials, SVR, trees, boosted trees."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler
    from sklearn.svm import SVR
    from sklearn.tree import DecisionTreeRegressor

    makers: dict[str, Callable[[], Any]] = {
        **{
            f"polynomial, order {n}": lambda n=n: make_pipeline(  # type: ignore[misc]
                StandardScaler(), PolynomialFeatures(n), LinearRegression()
            )
            for n in (1, 2, 3)
        },
        "SVR": lambda: make_pipeline(StandardScaler(), SVR(C=1e3, epsilon=1e-3)),
        "decision tree": DecisionTreeRegressor,
        "boosted trees": lambda: HistGradientBoostingRegressor(min_samples_leaf=2),
    }
    print("| task | regressor | fitted on | error | fit ms | predict us a batch |\n|---|---|---|---|---|---|")
    for task in chosen:
        chance = random.Random(1)
        extents = [task.extents(chance) for _ in range(samples + 20)]
        torch.manual_seed(0)
        model = task.make()
        bytes_ = [saved_by_block(model, task.batch(e)) for e in extents]
        for name, make in makers.items():
            for count in (10, 50):
                begin = time.perf_counter()
                scales = [max(row[b] for row in bytes_[:count]) for b in range(len(bytes_[0]))]
                fitted = [
                    make().fit(extents[:count], [row[b] / scales[b] for row in bytes_[:count]])
                    for b in range(len(scales))
                ]
                fit_ms = (time.perf_counter() - begin) * 1e3
                begin = time.perf_counter()
                errors = []
                for e, row in zip(extents[samples:], bytes_[samples:], strict=True):
                    total = sum(f.predict([e])[0] * s for f, s in zip(fitted, scales, strict=True))
                    errors.append(abs(total - sum(row)) / sum(row))
                us = (time.perf_counter() - begin) * 1e6 / len(errors)
                print(
                    f"| {task.name} | {name} | {count} | {statistics.mean(errors):.2%} | {fit_ms:.1f} | {us:.0f} |",
                    flush=True,
                )


def saved_by_block(model: nn.Module, batch: dict[str, torch.Tensor]) -> list[int]:
    """Bytes that each block holds after its forward pass."""
    from lowtide._adapt.memory import CpuMemory
    from lowtide._base.blocks import find_blocks

    memory = CpuMemory([])
    levels: list[int] = []
    handles = []
    for block in find_blocks(model).values():
        handles.append(block.register_forward_pre_hook(lambda *_: levels.append(-memory.level())))
        handles.append(block.register_forward_hook(lambda *_: levels.append(memory.level())))
    result = model(**batch)
    for handle in handles:
        handle.remove()
    memory.close()
    del result
    return [levels[i] + levels[i + 1] for i in range(0, len(levels), 2)]


def print_flat(batches: int) -> None:
    """Memory of the process over many batches of 500 shapes, with updates."""
    from lowtide._adapt.memory import CpuMemory

    torch.manual_seed(0)
    model = tasks(0.15)["tc_bert"].make()
    optimizer = torch.optim.Adam(model.parameters())
    chance = random.Random(0)
    shapes = [(samples, length) for samples in range(1, 11) for length in range(10, 60)]
    memory = CpuMemory([])
    print("| batches | tensors MiB | process, high water MiB |\n|---|---|---|")
    with lowtide.adapt(model, memory_budget="40MiB", optimizer=optimizer) as adapter:
        for number in range(batches + 1):
            if number % max(batches // 10, 1) == 0:
                rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                print(f"| {number} | {memory.level() / MIB:.2f} | {rss:.1f} |", flush=True)
            samples, length = chance.choice(shapes)
            batch = {"input_ids": torch.randint(1000, (samples, length)), "labels": torch.randint(2, (samples,))}
            model(**batch).loss.backward()
            del batch
            optimizer.step()
            optimizer.zero_grad()
        adapter.end()
        print("\n" + ", ".join(f"{name} {value:.4g}" for name, value in adapter.stats().items()))


class Row(nn.Module):
    """48 small blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(48))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x.sum()


def print_planning(batches: int) -> None:
    """Microseconds from the call of a model of 48 blocks to its plan, in Python, all included."""
    torch.manual_seed(0)
    model = Row()
    chance = random.Random(0)
    with lowtide.adapt(model, memory_budget="1GiB") as adapter:
        least = adapter.preflight(torch.rand(4, 200, 16))
    with lowtide.adapt(model, memory_budget=int(least * 1.5)) as adapter:
        adapter.preflight(torch.rand(4, 200, 16))
        for _ in range(batches):
            model(torch.rand(4, chance.randrange(50, 200), 16)).backward()
            model.zero_grad()
        adapter.end()
        records = [record for record in adapter.history.records if not record.sheltered]
        micros = sorted(record.planning_us for record in records)
        planner = adapter._kinds.planners()[0]
        core = []
        for _ in range(batches):
            extents = [4, chance.randrange(50, 200), 16]
            begin = time.perf_counter_ns()
            planner.plan(extents, least)
            core.append((time.perf_counter_ns() - begin) / 1000)
    core.sort()
    print("| | median us | p99 us |\n|---|---|---|")
    for name, times in (("from the call of the model to its plan", micros), ("prediction and plan", core)):
        print(f"| {name} | {times[len(times) // 2]:.0f} | {times[len(times) * 99 // 100]:.0f} |")


def main() -> None:
    """Prints tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help="some of: " + ", ".join(tasks()))
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--scale", type=float, default=1.0, help="of lengths and image sizes")
    parser.add_argument("--budgets", type=float, nargs="*", default=[0.4, 0.6, 0.8])
    parser.add_argument(
        "--methods", nargs="*", choices=METHODS, default=METHODS, help="adapt among them; none gives the unit of time"
    )
    parser.add_argument("--regressors", action="store_true")
    parser.add_argument("--flat", type=int, metavar="BATCHES")
    parser.add_argument("--planning", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = tasks(options.scale)
    chosen = [known[name] for name in options.tasks or known]
    if options.regressors:
        print_regressors(chosen)
    elif options.flat:
        print_flat(options.flat)
    elif options.planning:
        print_planning(options.batches)
    else:
        for task in chosen:
            print_task(task, options.batches, options.budgets, options.methods)


if __name__ == "__main__":
    main()
