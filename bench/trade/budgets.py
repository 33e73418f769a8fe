"""Budgets: training within 90 to 40 % of what eager PyTorch needs, measured beside it, bit for bit.

    python bench/trade/budgets.py [--quick] [--inductor] [--rounds N] [MODEL ...]

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
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

import torch

import lowtide
from bench.lib.apart import ROOT, command_of
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
    equal: bool = True
    plan: lowtide.Plan | None = None


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


def run(way: Way, batch: Any, seed: int) -> torch.Tensor:
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


def first_step(way: Way, batch: Any) -> bool:
    """Captures and plans; False if the budget is refused."""
    try:
        run(way, batch, 0)
    except lowtide.InfeasibleError as error:
        print(f"| {way.name} | {_mib(way.budget or 0)} | refused: at least {_mib(error.bound_bytes)} |", flush=True)
        return False
    return True


def measure(subject: Subject, rounds: int, inductor: bool, shares: Sequence[float]) -> list[Way]:
    """Trains all ways, prints the table and gives its rows."""
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
    resident = free.plan.resident_bytes
    eager = eager_way("eager", fresh())
    saving = eager_way("checkpoint each block", checkpoint_blocks(subject, fresh()))
    ways = [eager, saving, free]
    for way in (eager, saving):
        first_step(way, batch)
    run(eager, batch, 1)  # now with Adam's state
    run(saving, batch, 1)
    run(free, batch, 1)
    print(f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}", sep="\n")
    wanted = [(f"{share:.0%} of eager", {"memory_budget": int(share * eager.peak)}) for share in shares]
    wanted += [
        (f"{extra:.0%} longer", {"latency_budget": free.plan.time_ns * (1 + extra) / 1e6}) for extra in OVERHEADS
    ]
    wanted += [("as small as checkpoint", {"memory_budget": saving.peak})]
    for name, budgets in wanted:
        way = planned(name, fresh(), **budgets)
        if first_step(way, batch):
            run(way, batch, 1)
            ways.append(way)
    _train(ways, batch, rounds)
    operands = free.step.graph.operand_bound_bytes
    for way in ways:
        _print_row(way, eager, free)
    for budget in INDUCTOR_BUDGETS if inductor else ():
        _print_inductor(fresh, budget, batch, rounds, free)
    print(f"\nresident {_mib(resident)} MiB; operands {_mib(operands)} MiB\n", flush=True)
    return ways


def _train(ways: Sequence[Way], batch: Any, rounds: int) -> None:
    """Turn by turn, the first being the one to compare with."""
    for way in ways:
        way.seconds.clear()
    for number in range(2, rounds + 2):
        losses = [run(way, batch, number) for way in ways]
        for way, loss in zip(ways, losses, strict=True):
            pairs = zip(way.model.parameters(), ways[0].model.parameters(), strict=True)
            way.equal &= torch.equal(loss, losses[0]) and all(torch.equal(a, b) for a, b in pairs)
        gc.collect()


def _print_inductor(fresh: Callable[[], torch.nn.Module], budget: float, batch: Any, rounds: int, free: Way) -> None:
    """Beside an eager copy of its own: another budget needs all that was compiled to be forgotten."""
    import torch._functorch.config as functorch

    torch.compiler.reset()
    eager, way = eager_way("eager", fresh()), eager_way(f"Inductor, activation_memory_budget {budget}", fresh())
    way.step = zeroed_after(train_step(loss_of)(torch.compile(way.model), way.optimizer), way.optimizer)
    with functorch.patch(activation_memory_budget=budget):
        for seed in range(2):
            run(eager, batch, seed)
            run(way, batch, seed)
        way.peak = way.transient = 0  # compiling allocates too
        _train([eager, way], batch, rounds)
    _print_row(way, eager, free)


def _print_row(way: Way, eager: Way, free: Way) -> None:
    ratios = [own / other for own, other in zip(way.seconds, eager.seconds, strict=True)]
    low, _, high = quantiles(ratios, n=4)
    plan, base = way.plan, free.plan
    assert base is not None
    cells = [
        way.name,
        _mib(way.budget) if way.budget else "",
        _mib(way.peak),
        f"{way.peak / eager.peak:.1%}",
        _mib(way.transient),
        f"{way.transient / eager.transient:.1%}",
        _mib(plan.bound_bytes) if plan else "",
        f"{median(ratios):.3f}",
        f"{low:.3f} to {high:.3f}",
        f"{plan.time_ns / base.time_ns - 1:+.1%}" if plan else "",
        f"{way.step.stats()['planning_seconds']:.2f}" if isinstance(way.step, lowtide.CompiledStep) else "",
        "equal" if way.equal else "other",
    ]
    if way.budget and way.peak > way.budget:
        cells[2] += " (above the budget)"
    print(f"| {' | '.join(cells)} |", flush=True)


def _mib(size: int) -> str:
    return f"{size / MIB:.1f}"


def main() -> None:
    """Prints a table for each model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help="how the names begin; all if none is given")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="two budgets and few rounds")
    parser.add_argument("--inductor", action="store_true", help="torch.compile too, which takes minutes to compile")
    arguments = parser.parse_args()
    names = [
        n for n in SUBJECTS if not arguments.models or any(n.lower().startswith(m.lower()) for m in arguments.models)
    ]
    if len(names) == 1:
        shares = SHARES[1::2] if arguments.quick else SHARES
        measure(SUBJECTS[names[0]], 3 if arguments.quick else arguments.rounds, arguments.inductor, shares)
        return
    flags = [flag for flag in ("--quick", "--inductor") if flag in sys.argv] + ["--rounds", str(arguments.rounds)]
    for name in names:
        print(f"\n**{name}**\n", flush=True)
        subprocess.run(command_of("bench.trade.budgets", name, *flags), cwd=ROOT, check=True)


if __name__ == "__main__":
    os.environ.setdefault("LOWTIDE_QUIET", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()
