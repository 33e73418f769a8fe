"""Measured memory: models of the zoo trained eager and planned side by side, bit for bit.

    python -m bench run step_zoo [MODEL ...]

Both copies of a model train in one process, turn by turn, on the same batches, with Adam, on one thread; no gradient
outlives a step. Figures are the most bytes that a step has beyond what is there between two steps (parameters and the
state of Adam), as the allocator counts them (`lowtide.measure()`), operators' own workspaces included; of five steps,
without the first, which captures and profiles. After every step losses, parameters, buffers and state must be equal
bit for bit. `resnet50_96` is ResNet-50 in full, at batch 4 and 96 pixels; the others are small.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

import lowtide
from bench import zoo
from bench.lib.markdown import header, line
from bench.lib.progress import each
from bench.zoo.graphs import MIB, zeroed_after

STEPS = 5
FULL = {"resnet50_96": ("resnet50", zoo.Use("", (4,), 96))}
COLUMNS = ("model", "eager MiB", "planned MiB", "planned / eager", "arena MiB")


@dataclass(frozen=True)
class Measured:
    """A model's steps on either side."""

    model: str
    eager_bytes: int
    planned_bytes: int
    arena_bytes: int
    equal: bool  # bit for bit, after every step


def build(name: str, *, fake: bool = False) -> zoo.Job:
    if name in FULL:
        model, use = FULL[name]
        return zoo.build(model, "paper", use=use, fake=fake)
    return zoo.build(name, fake=fake)


def measure(name: str) -> Measured:
    """Trains both copies."""
    job = build(name)
    models = job.model, copy.deepcopy(job.model)
    optimizers = [torch.optim.Adam(model.parameters()) for model in models]
    eager, planned = (
        zeroed_after(job.train_step(model, optimizer), optimizer)
        for model, optimizer in zip(models, optimizers, strict=True)
    )
    step = lowtide.compile(planned, model=models[1], optimizer=optimizers[1], on_unsupported="raise")
    most, equal = [0, 0], True
    for number, batch in enumerate(job.batches(STEPS)):
        losses = []
        for side, run in enumerate((eager, step)):
            torch.manual_seed(number)
            with lowtide.measure() as used:
                losses.append(run(batch))
            if number > 0:
                most[side] = max(most[side], used.peak_bytes)
        states = [
            (loss, model.state_dict(), optimizer.state_dict())
            for loss, model, optimizer in zip(losses, models, optimizers, strict=True)
        ]
        equal = equal and _same(*states)
    arena = step.plan.arena_bytes
    step.close()
    return Measured(name, *most, arena, equal)


def _same(first: Any, second: Any) -> bool:
    pairs = zip(pytree.tree_leaves(first), pytree.tree_leaves(second), strict=True)
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


def print_table(models: Sequence[str]) -> list[Measured]:
    """Prints the table and gives its rows."""
    torch.set_num_threads(1)
    print(header(COLUMNS))
    rows = []
    for name in each(models, "models"):
        row = measure(name)
        sizes = [f"{size / MIB:.2f}" for size in (row.eager_bytes, row.planned_bytes)]
        ratio = f"{row.planned_bytes / row.eager_bytes:.2f}"
        note = "" if row.equal else " (other bits)"
        print(line((f"{name}{note}", *sizes, ratio, f"{row.arena_bytes / MIB:.2f}")), flush=True)
        rows.append(row)
    print(f"\n{sum(row.equal for row in rows)} of {len(rows)} equal bit for bit")
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    known = [*zoo.names(), *FULL]
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"some of {', '.join(known)}; all if none")


def run(options: argparse.Namespace) -> list[Measured]:
    """Prints the table; gives its rows."""
    return print_table(options.models or [*zoo.names(), *FULL])
