"""Guard mode: how much longer a step takes that is watched, on the small models of the zoo and on a larger BERT.

Two copies of each model train in one process, turn by turn: one plain, one with `LOWTIDE_GUARD=1`. Figures are medians.

    python -m bench run step_guard [MODEL ...]
"""

from __future__ import annotations

import argparse
import copy
import os
from statistics import median
from typing import Any

import torch

import lowtide
from bench import zoo
from bench.lib.markdown import header, line
from bench.lib.models import bert, plain_step, tokens
from bench.lib.progress import each
from bench.step.time import WARM_STEPS, timed

LIMIT = 3.0  # what guard mode may cost
LARGER = "bert 8 x 128"  # of width 128: its activations are larger than a core's cache


def compare(name: str, steps: int = 15) -> tuple[float, float]:
    """Median milliseconds of a plain and of a guarded step."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if name == LARGER:
        original, train_step, batch = bert(width=128), plain_step, tokens(8, 128)
    else:
        job = zoo.build(name)
        original, train_step, batch = job.model, job.train_step, job.batch
    sides: list[Any] = []
    for guard in ("0", "1"):
        os.environ["LOWTIDE_GUARD"] = guard
        model = copy.deepcopy(original)
        optimizer = torch.optim.Adam(model.parameters())
        step = train_step(model, optimizer)
        sides.append(lowtide.compile(step, model=model, optimizer=optimizer, on_unsupported="raise"))
    del os.environ["LOWTIDE_GUARD"]
    seconds: tuple[list[float], list[float]] = ([], [])
    for index in range(WARM_STEPS + steps):
        for side in (0, 1) if index % 2 else (1, 0):
            taken = timed(sides[side], batch)
            if index >= WARM_STEPS:
                seconds[side].append(taken)
    for side in sides:
        side.close()
    plain, guarded = (1e3 * median(taken) for taken in seconds)
    return plain, guarded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="*", default=[*zoo.names(), LARGER], metavar="MODEL")


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the table; gives its rows."""
    print(header(("model", "plain ms", "guarded ms", "guarded / plain")))
    rows: list[dict[str, Any]] = []
    for name in each(options.models, "models"):
        plain, guarded = compare(name)
        rows.append({"model": name, "plain_ms": plain, "guarded_ms": guarded})
        print(line((name, f"{plain:.2f}", f"{guarded:.2f}", f"{guarded / plain:.2f}")), flush=True)
    ratios = [row["guarded_ms"] / row["plain_ms"] for row in rows]
    print(f"\nmedian {median(ratios):.2f}, highest {max(ratios):.2f}")
    return rows
