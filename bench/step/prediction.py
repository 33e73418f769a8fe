"""Predicted time: what a plan says that a step takes, and what it takes.

    python -m bench run step_prediction [--quick] [--wall] [--weight-decay X] [MODEL ...]

The time of a plan is the sum of its operators' times. Before the first step these were taken *alone*, on scratch
memory; in the first steps they *settle* to what the operators take there, and what the step takes *outside* of them
(guards, the optimizer's own Python, delivery) settles with them. Two copies of a model train in one process, turn by
turn, with Adam, on one thread. A round begins without profiles: a first capture predicts from operators run alone,
trains, and lets times settle; a second capture predicts from those and trains as many steps. Each prediction is
compared with the steps of its own capture: the plan's time with the *program*, which is what the operators take
together, and the predicted step, time outside included once it is known, with the whole *step*. Figures are medians
over rounds, so that a machine whose speed changes meanwhile disturbs both sides; in brackets the middle half of the
rounds. Times are without what other processes take away, or steps by the clock on the wall (`--wall`).
"""

from __future__ import annotations

import argparse
import copy
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any
from unittest import mock

import torch
from torch import nn

import lowtide
from bench import zoo
from bench.lib.markdown import header
from bench.lib.models import bert, gpt2, plain_step, tokens
from bench.lib.progress import each
from bench.step import zoo as zoo_measured
from bench.zoo.graphs import zeroed_after
from bench.zoo.tasks import Batch, StepMaker
from lowtide._base.stopwatch import Elapsed, Stopwatch
from lowtide._step import captured_step

GOAL = 0.10  # how far the prediction may be off
ROUNDS = 5
STEPS = 6  # that count, in a capture
WARM_STEPS = 7  # until times have settled
QUICK = ("alexnet", "bert_base")
LARGER = {"bert_8x128": (bert, 8, 128), "gpt2_8x256": (gpt2, 8, 256)}  # four layers of width 256; batch and length
KNOWN = (*zoo.names(), *LARGER, *zoo_measured.FULL)
COLUMNS = (
    "model",
    "ops",
    "program ms",
    "step ms",
    "outside ms",
    "eager ms",
    "alone / program",
    "alone / step",
    "settled / program",
    "settled / step",
    "middle half",
)


@dataclass(frozen=True)
class Prediction:
    """Medians over rounds; times in milliseconds, predictions as shares of what was measured."""

    model: str
    ops: int
    program: float  # the planned step's operators
    step: float  # the whole planned step
    outside: float  # as settled
    eager: float
    alone_of_program: float
    alone_of_step: float
    settled_of_program: float
    settled_of_step: float
    middle_half: tuple[float, float]  # of the rounds' settled_of_step


@dataclass(frozen=True)
class Job:
    """What is trained."""

    model: nn.Module
    train_step: StepMaker
    batches: list[Batch]


def build(name: str) -> Job:
    count = WARM_STEPS + STEPS
    if name in LARGER:
        torch.manual_seed(0)
        make, batch, length = LARGER[name]
        return Job(make(), plain_step, [tokens(batch, length) for _ in range(count)])
    job = zoo_measured.build(name)
    return Job(job.model, job.train_step, list(job.batches(count)))


@dataclass(frozen=True)
class Training:
    """What one capture predicts and takes, in milliseconds, beside eager steps."""

    ops: int
    predicted_program: float
    predicted_step: float
    program: float
    step: float
    eager: float


def predict(name: str, *, rounds: int = ROUNDS, weight_decay: float = 0.0, wall: bool = False) -> Prediction:
    """Trains both copies for some rounds."""
    job = build(name)
    sides = job.model, copy.deepcopy(job.model)
    optimizers = [torch.optim.Adam(model.parameters(), weight_decay=weight_decay) for model in sides]
    eager, plain = (
        zeroed_after(job.train_step(model, optimizer), optimizer)
        for model, optimizer in zip(sides, optimizers, strict=True)
    )

    def taken(elapsed: Elapsed) -> float:
        return elapsed.wall if wall else elapsed.busy

    def train() -> Training:
        step = lowtide.compile(plain, model=sides[1], optimizer=optimizers[1], on_unsupported="raise")
        seconds: tuple[list[float], ...] = ([], [], [])
        for index, batch in enumerate(job.batches):
            turns = [(0, eager), (1, step)]
            for side, run in turns if index % 2 else reversed(turns):
                watch = Stopwatch()
                run(batch)
                seconds[side].append(taken(watch.read()))
            seconds[2].append(taken(step._current.report.program))
        beside, whole, program = (1e3 * median(row[WARM_STEPS:]) for row in seconds)
        predicted = step.plan.time_ns / 1e6, 1e3 * step.stats()["predicted_seconds"]
        found = Training(step.graph.num_ops, *predicted, program, whole, beside)
        step.close()
        return found

    found = []
    for _ in range(rounds):
        with no_profiles(), programs_without_others():
            found.append((train(), train()))
    settled_of_step = [settled.predicted_step / settled.step for _, settled in found]
    first, _, third = quantiles(settled_of_step, n=4, method="inclusive")
    return Prediction(
        name,
        found[0][0].ops,
        median(settled.program for _, settled in found),
        median(settled.step for _, settled in found),
        median(settled.predicted_step - settled.predicted_program for _, settled in found),
        median(settled.eager for _, settled in found),
        median(alone.predicted_program / alone.program for alone, _ in found),
        median(alone.predicted_step / alone.step for alone, _ in found),
        median(settled.predicted_program / settled.program for _, settled in found),
        median(settled_of_step),
        (first, third),
    )


@contextmanager
def no_profiles() -> Iterator[None]:
    """None on disk."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"LOWTIDE_CACHE_DIR": folder}):
        yield


@contextmanager
def programs_without_others() -> Iterator[None]:
    """Programs are timed without what other processes take away, also once their times have settled."""
    with mock.patch.object(captured_step, "Stopwatch", lambda **_: Stopwatch()):
        yield


def print_table(names: Sequence[str], **options: Any) -> list[Prediction]:
    """Prints the table and gives its rows; options are those of `predict`."""
    torch.set_num_threads(1)
    print(header(COLUMNS))
    rows = []
    for name in each(names, "models"):
        row = predict(name, **options)
        times = f"{row.program:.2f} | {row.step:.2f} | {row.outside:.2f} | {row.eager:.2f}"
        shares = f"{row.alone_of_program:.2f} | {row.alone_of_step:.2f}"
        shares += f" | {row.settled_of_program:.2f} | {row.settled_of_step:.2f}"
        shares += f" | ({row.middle_half[0]:.2f} to {row.middle_half[1]:.2f})"
        print(f"| {name} | {row.ops} | {times} | {shares} |", flush=True)
        rows.append(row)
    print(f"\nOf {len(rows)} within {GOAL:.0%}:")
    for column in ("alone_of_program", "alone_of_step", "settled_of_program", "settled_of_step"):
        near = sum(abs(getattr(row, column) - 1) <= GOAL for row in rows)
        print(f"- {column.replace('_', ' ')}: {near}")
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"some of {', '.join(KNOWN)}; all if none")
    parser.add_argument("--quick", action="store_true", help="two models, two rounds: does it run?")
    parser.add_argument("--wall", action="store_true", help="measure steps by the clock on the wall, not in CPU time")
    parser.add_argument("--weight-decay", type=float, default=0.0, metavar="X", help="of Adam")


def run(options: argparse.Namespace) -> list[Prediction]:
    """Prints the table; gives its rows."""
    return print_table(
        options.models or (QUICK if options.quick else KNOWN),
        rounds=2 if options.quick else ROUNDS,
        weight_decay=options.weight_decay,
        wall=options.wall,
    )
