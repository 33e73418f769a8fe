"""Step time: a compiled training step against the same step run eager, on a 4-layer BERT of width 128.

Two copies of the model train in one process, turn by turn, so that whatever else the machine does falls on both. A
row's figures are medians; its ratio is planned / eager, so below 1 is faster.

    python -m bench run step_time [--quick]
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

import lowtide
from bench.lib.markdown import header, line
from bench.lib.models import OPTIMIZERS, bert, plain_step, tokens
from bench.page.step_time import COLUMNS, cells

GOAL = 0.70  # what small batches are to reach
SHAPES = ((2, 16), (4, 32), (8, 128))  # batch, sequence length
WARM_STEPS = 3


@dataclass(frozen=True)
class Timing:
    """Median step times."""

    optimizer: str
    threads: int
    batch: int
    length: int
    eager_ms: float
    planned_ms: float

    @property
    def ratio(self) -> float:
        return self.planned_ms / self.eager_ms


def compare(batch: int, length: int, *, optimizer: str = "adam", threads: int = 1, steps: int = 40) -> Timing:
    """Trains two copies turn by turn for `steps` timed steps each."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.manual_seed(0)
        first = bert(width=128)
        second = copy.deepcopy(first)
        optimizers = [OPTIMIZERS[optimizer](model.parameters()) for model in (first, second)]
        eager = plain_step(first, optimizers[0])
        planned = lowtide.compile(
            plain_step(second, optimizers[1]), model=second, optimizer=optimizers[1], on_unsupported="raise"
        )
        data = [tokens(batch, length) for _ in range(4)]
        seconds: tuple[list[float], list[float]] = ([], [])
        for index in range(WARM_STEPS + steps):
            sides = [(0, eager), (1, planned)]
            for side, step in sides if index % 2 else reversed(sides):
                taken = timed(step, data[index % len(data)])
                if index >= WARM_STEPS:
                    seconds[side].append(taken)
        planned.close()
        return Timing(optimizer, threads, batch, length, *[1e3 * median(taken) for taken in seconds])
    finally:
        torch.set_num_threads(before)


def timed(step: Callable[[Any], Any], batch: Any) -> float:
    """Seconds that one step takes."""
    begin = time.perf_counter()
    step(batch)
    return time.perf_counter() - begin


def timings(*, quick: bool) -> Iterator[Timing]:
    """The rows of the table."""
    for optimizer in ("adam", "adam_fused"):
        for threads in (1,) if quick else (1, 2):
            for batch, length in SHAPES[:1] if quick else SHAPES:
                steps = 5 if quick else 100 if batch * length < 1000 else 40
                yield compare(batch, length, optimizer=optimizer, threads=threads, steps=steps)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="one thread, one batch size, few steps: does it run?")


def run(options: argparse.Namespace) -> list[Timing]:
    """Prints the table; gives its rows."""
    print(header(COLUMNS))
    rows = []
    for row in timings(quick=options.quick):
        print(line(cells(vars(row))), flush=True)
        rows.append(row)
    return rows
