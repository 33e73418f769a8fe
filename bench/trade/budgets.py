"""Budgets: training within 90 to 40 % of what eager PyTorch needs, measured beside it, bit for bit.

    python -m bench run trade_budgets [--quick] [--inductor] [--rounds N] [MODEL ...]

For each model, in a process of its own: copies of it train turn by turn on the same batches with Adam on one thread,
one eager, one with `torch.utils.checkpoint` around each block, one planned without a budget, and one for each budget;
no gradient outlives a step. Peaks are what is there before a step (parameters, Adam's state, the batch) and what the
step allocates (`lowtide.measure()`), the first step included; profiles were taken before. Times are medians over rounds
of the ratio to eager's step in the same round, with the quartiles. Every row but Inductor's must have eager's losses
and parameters after every step, bit for bit.

*planned* is what a step allocates once Adam's state is there: activations, gradients, temporaries. *bound* is what no
plan that takes no longer goes below, *operands* what one operator needs by itself: nothing goes below that without
splitting operators. *planned in* is the time that the planner took for the first step and for all others.
"""

from __future__ import annotations

import argparse
import copy
import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

import torch

import lowtide
from bench.lib import by_model
from bench.lib.markdown import header, line
from bench.lib.models import loss_of
from bench.trade.budget_models import SUBJECTS, Subject, checkpoint_blocks
from bench.zoo.graphs import MIB, zeroed_after
from bench.zoo.tasks import train_step

SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4)
OVERHEADS = (0.05, 0.10)
INDUCTOR_BUDGETS = (1.0, 0.5, 0.0)
COLUMNS = (
    "way", "budget MiB", "peak MiB", "of eager", "planned MiB", "of eager", "bound MiB", "time / eager", "quartiles",
    "predicted", "planned in s", "bits",
)  # fmt: skip


@dataclass
class Way:
    """One copy of the model and how it is trained."""

    name: str
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    step: Callable[[Any], torch.Tensor]
    budget: int | None = None
    peak: int = 0  # of all steps
    transient: int = 0  # what steps allocate, but for the first
    seconds: list[float] = field(default_factory=list)
    first_call: float = 0  # of one that is compiled
    equal: bool = True
    plan: lowtide.Plan | None = None
    refused: int | None = None  # bytes that would be needed


def eager_way(name: str, model: torch.nn.Module) -> Way:
    optimizer = torch.optim.Adam(model.parameters())
    return Way(name, model, optimizer, zeroed_after(train_step(loss_of)(model, optimizer), optimizer))


def planned(name: str, model: torch.nn.Module, **budgets: Any) -> Way:
    way = eager_way(name, model)
    way.step = lowtide.compile(way.step, model=model, optimizer=way.optimizer, on_unsupported="raise", **budgets)
    way.budget = budgets.get("memory_budget")
    return way


def there(way: Way, batch: Any) -> int:
    """Bytes before a step."""
    state = [value for values in way.optimizer.state.values() for value in values.values()]
    tensors = [*way.model.parameters(), *way.model.buffers(), *state, *batch.values()]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors if torch.is_tensor(t)}
    return sum(storages.values())


def run_step(way: Way, batch: Any, seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    before, is_first = there(way, batch), not way.optimizer.state
    with lowtide.measure() as used:
        begin = time.process_time()
        loss = way.step(batch)
        way.seconds.append(time.process_time() - begin)
    way.peak = max(way.peak, before + used.peak_bytes)
    if not is_first:
        way.transient = max(way.transient, used.peak_bytes)
    way.plan = getattr(way.step, "plan", None)
    return loss


def first_step(way: Way, batch: Any) -> None:
    """Captures and plans, unless the budget is refused."""
    try:
        run_step(way, batch, 0)
    except lowtide.InfeasibleError as error:
        way.refused = error.bound_bytes


def measure(subject: Subject, rounds: int, inductor: bool, shares: Sequence[float]) -> dict[str, Any]:
    """Trains all ways and prints the table; gives its rows, and what is below it."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    original, batch = subject.build(), subject.batch()
    fresh = lambda: copy.deepcopy(original)  # noqa: E731
    for model, profiled in ((fresh(), True), (fresh(), False)):  # the first takes the profiles
        free = planned("planned", model)
        first_step(free, batch)
        if profiled:
            free.step.close()
    assert free.plan is not None
    eager = eager_way("eager", fresh())
    saving = eager_way("checkpoint each block", checkpoint_blocks(subject, fresh()))
    ways = [eager, saving, free]
    for way in (eager, saving):
        first_step(way, batch)
    for way in ways:
        run_step(way, batch, 1)  # now with Adam's state
    wanted = [(f"{share:.0%} of eager", {"memory_budget": int(share * eager.peak)}) for share in shares]
    wanted += [
        (f"{extra:.0%} longer", {"latency_budget": free.plan.time_ns * (1 + extra) / 1e6}) for extra in OVERHEADS
    ]
    wanted += [("as small as checkpoint", {"memory_budget": saving.peak})]
    for name, budgets in wanted:
        way = planned(name, fresh(), **budgets)
        first_step(way, batch)
        if way.refused is None:
            run_step(way, batch, 1)
        ways.append(way)
    print(header(COLUMNS))
    train([way for way in ways if way.refused is None], batch, rounds)
    rows = [_printed(way, eager, free) for way in ways]
    for budget in INDUCTOR_BUDGETS if inductor else ():
        rows.append(_printed(*inductor_ways(fresh, budget, batch, rounds), free))
    resident, operands = free.plan.resident_bytes, free.step.graph.operand_bound_bytes
    print(f"\nresident {_mib(resident)} MiB; operands {_mib(operands)} MiB\n", flush=True)
    return {"resident_bytes": resident, "operands_bytes": operands, "rows": rows}


def train(ways: Sequence[Way], batch: Any, rounds: int) -> None:
    """Turn by turn, the first being the one to compare with."""
    for way in ways:
        way.seconds.clear()
    for number in range(2, rounds + 2):
        losses = [run_step(way, batch, number) for way in ways]
        for way, loss in zip(ways, losses, strict=True):
            pairs = zip(way.model.parameters(), ways[0].model.parameters(), strict=True)
            way.equal &= torch.equal(loss, losses[0]) and all(torch.equal(a, b) for a, b in pairs)
        gc.collect()


def compiled_ways(
    name: str, fresh: Callable[[], torch.nn.Module], batch: Any, rounds: int, **options: Any
) -> tuple[Way, Way]:
    """Compiled by `torch.compile` with these options, beside an eager copy of its own: nothing that was compiled before
    is known any more."""
    torch.compiler.reset()
    eager, way = eager_way("eager", fresh()), eager_way(name, fresh())
    way.step = zeroed_after(train_step(loss_of)(torch.compile(way.model, **options), way.optimizer), way.optimizer)
    for seed in range(2):
        run_step(eager, batch, seed)
        run_step(way, batch, seed)
    way.first_call = way.seconds[0]
    way.peak = way.transient = 0  # compiling allocates too
    train([eager, way], batch, rounds)
    return way, eager


def inductor_ways(fresh: Callable[[], torch.nn.Module], budget: float, batch: Any, rounds: int) -> tuple[Way, Way]:
    """With Inductor, and PyTorch's own knob."""
    import torch._functorch.config as functorch

    with functorch.patch(activation_memory_budget=budget):
        return compiled_ways(f"Inductor, activation_memory_budget {budget}", fresh, batch, rounds)


def _printed(way: Way, eager: Way, free: Way) -> dict[str, Any]:
    """A row of the table."""
    row: dict[str, Any] = {"way": way.name, "budget_bytes": way.budget}
    if way.refused is not None:
        print(line((way.name, _mib(way.budget or 0), f"refused: at least {_mib(way.refused)}")), flush=True)
        return {**row, "refused_bytes": way.refused}
    ratios = [own / other for own, other in zip(way.seconds, eager.seconds, strict=True)]
    low, _, high = quantiles(ratios, n=4)
    row |= {
        "peak_bytes": way.peak,
        "of_eager": way.peak / eager.peak,
        "transient_bytes": way.transient,
        "transient_of_eager": way.transient / eager.transient,
        "time_of_eager": median(ratios),
        "quartiles": [low, high],
        "equal": way.equal,
    }
    plan, base = way.plan, free.plan
    predicted = planned_in = bound = ""
    if plan is not None and base is not None:
        row |= {"bound_bytes": plan.bound_bytes, "predicted_of_planned": plan.time_ns / base.time_ns}
        row |= {"planning_seconds": way.step.stats()["planning_seconds"]}
        bound, predicted = _mib(plan.bound_bytes), f"{row['predicted_of_planned'] - 1:+.1%}"
        planned_in = f"{row['planning_seconds']:.2f}"
    above = " (above the budget)" if way.budget and way.peak > way.budget else ""
    cells = (
        way.name, _mib(way.budget) if way.budget else "", _mib(way.peak) + above, f"{row['of_eager']:.1%}",
        _mib(way.transient), f"{row['transient_of_eager']:.1%}", bound, f"{row['time_of_eager']:.3f}",
        f"{low:.3f} to {high:.3f}", predicted, planned_in, "equal" if way.equal else "other",
    )  # fmt: skip
    print(line(cells), flush=True)
    return row


def _mib(size: int) -> str:
    return f"{size / MIB:.1f}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    by_model.add_arguments(
        parser, quick="two budgets and few rounds", inductor="torch.compile too, which takes minutes to compile"
    )


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Prints a table for each model; gives their rows."""
    shares = SHARES[1::2] if options.quick else SHARES

    def measured(name: str, rounds: int) -> dict[str, Any]:
        return measure(SUBJECTS[name], rounds, options.inductor, shares)

    return by_model.each_model("trade_budgets", SUBJECTS, options, measured)
