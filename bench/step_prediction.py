"""Predicted time: what a plan says that a step takes, and what it takes.

    python bench/step_prediction.py [--quick] [--weight-decay X] [MODEL ...]

The time of a plan is the sum of its operators' times, each of which was run alone on scratch memory before the first
step. Two copies of a small model of the zoo train in one process, turn by turn, with Adam, on one thread. A round takes
all profiles anew and then trains some steps; figures are medians over rounds, so that a machine whose speed changes
meanwhile disturbs both sides. Steps are measured in CPU time: what other processes take away does not count. *Program*
is what the operators of the planned step take together, *step* the whole call with guards and the optimizer's own
Python, which no plan changes. The last column is how long the profiles took.
"""

from __future__ import annotations

import argparse
import copy
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from types import SimpleNamespace
from unittest import mock

import torch

import lowtide
import lowtide.step
import zoo
from lowtide import assembly
from zoo_graphs import zeroed_after

GOAL = 0.10  # how far the prediction may be off
ROUNDS = 7
STEPS = 15  # in a round, after those that warm up
WARM_STEPS = 3
QUICK = ("alexnet", "bert_base")
COLUMNS = (
    "model",
    "ops",
    "predicted ms",
    "program ms",
    "predicted / program",
    "step ms",
    "eager ms",
    "profiles",
    "profiled in s",
)


@dataclass(frozen=True)
class Prediction:
    """Medians over rounds, in milliseconds."""

    model: str
    ops: int
    predicted: float
    program: float  # the planned step's operators
    step: float  # the whole planned step
    eager: float
    profiles: int
    profiling: float  # seconds for all of them

    @property
    def ratio(self) -> float:
        return self.predicted / self.program

    @property
    def holds(self) -> bool:
        return abs(self.ratio - 1) <= GOAL


def predict(name: str, *, rounds: int = ROUNDS, weight_decay: float = 0.0) -> Prediction:
    """Trains both copies for some rounds."""
    job = zoo.build(name)
    models = job.model, copy.deepcopy(job.model)
    optimizers = [torch.optim.Adam(model.parameters(), weight_decay=weight_decay) for model in models]
    eager, plain = (
        zeroed_after(job.train_step(model, optimizer), optimizer)
        for model, optimizer in zip(models, optimizers, strict=True)
    )
    batches = list(job.batches(WARM_STEPS + STEPS))
    found: list[tuple[float, ...]] = []
    for _ in range(rounds):
        with measured_anew() as spent:
            step = lowtide.compile(plain, model=models[1], optimizer=optimizers[1], on_unsupported="raise")
            seconds: tuple[list[float], list[float]] = ([], [])
            for index, batch in enumerate(batches):
                sides = [(0, eager), (1, step)]
                for side, run in sides if index % 2 else reversed(sides):
                    begin = time.thread_time()
                    run(batch)
                    if index >= WARM_STEPS:
                        seconds[side].append(time.thread_time() - begin)
        beside, whole = (1e3 * median(taken) for taken in seconds)
        program = 1e3 * step.stats()["step_seconds"]
        found.append((step.graph.num_ops, step.plan.time_ns / 1e6, program, whole, beside, len(spent), sum(spent)))
        step.close()
    return Prediction(name, *(median(column) for column in zip(*found, strict=True)))


@contextmanager
def measured_anew() -> Iterator[list[float]]:
    """No profiles on disk, and steps by CPU time; gives a list that fills with the seconds that each profile takes."""
    spent: list[float] = []
    take_profile = assembly.take_profile

    def watched(*arguments: object) -> object:
        begin = time.perf_counter()
        profile = take_profile(*arguments)
        spent.append(time.perf_counter() - begin)
        return profile

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, {"LOWTIDE_CACHE_DIR": folder}),
        mock.patch.object(assembly, "take_profile", watched),
        mock.patch.object(lowtide.step, "time", SimpleNamespace(perf_counter=time.thread_time)),
    ):
        yield spent


def print_table(models: Sequence[str], *, rounds: int = ROUNDS, weight_decay: float = 0.0) -> list[Prediction]:
    """Prints the table and gives its rows."""
    torch.set_num_threads(1)
    print(f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}", sep="\n")
    rows = []
    for name in models:
        row = predict(name, rounds=rounds, weight_decay=weight_decay)
        figures = f"{row.predicted:.2f} | {row.program:.2f} | {row.ratio:.2f} | {row.step:.2f} | {row.eager:.2f}"
        print(f"| {name} | {row.ops} | {figures} | {row.profiles} | {row.profiling:.2f} |", flush=True)
        rows.append(row)
    print(f"\n{sum(row.holds for row in rows)} of {len(rows)} within {GOAL:.0%}")
    return rows


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"some of {', '.join(zoo.names())}; all if none")
    parser.add_argument("--quick", action="store_true", help="two models, two rounds: does it run?")
    parser.add_argument("--weight-decay", type=float, default=0.0, metavar="X", help="of Adam")
    options = parser.parse_args()
    os.environ.setdefault("LOWTIDE_QUIET", "1")
    models = options.models or (QUICK if options.quick else zoo.names())
    print_table(models, rounds=2 if options.quick else ROUNDS, weight_decay=options.weight_decay)


if __name__ == "__main__":
    main()
