"""Predicted and measured: what `lowtide.fit` says of the zoo's small models beside steps that are run.

    python -m bench run fit_measured [MODEL ...]

Predictions are made before a step runs, with models of fake tensors and operators that run alone for their workspaces
(`device="cpu"`): the most bytes alive in plain PyTorch, and resident bytes and arena as planned, both with parameters,
the state of Adam and the batch. Measured are steps on CPU, eager and compiled, by `step_zoo`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

import lowtide
from bench import zoo
from bench.lib.markdown import header, line
from bench.lib.progress import each
from bench.step import zoo as zoo_measured
from bench.zoo.graphs import MIB

NEAR = 0.02
COLUMNS = ("model", "eager: predicted MiB", "measured", "off by", "planned: predicted MiB", "measured", "off by")


@dataclass(frozen=True)
class Compared:
    """Bytes of one kind of step."""

    predicted: int
    measured: int

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def near(self) -> bool:
        return abs(self.error) <= NEAR

    def cells(self, decimals: int) -> tuple[str, str, str]:
        """Of a table: MiB, and the error in percent with so many decimals."""
        return f"{self.predicted / MIB:.2f}", f"{self.measured / MIB:.2f}", f"{100 * self.error:+.{decimals}f} %"


def compare(name: str) -> tuple[Compared, Compared]:
    """Eager and planned."""
    job = zoo_measured.build(name, fake=True)
    optimizer = torch.optim.Adam(job.model.parameters())
    step = job.train_step(job.model, optimizer)
    report = lowtide.fit(step, model=job.model, optimizer=optimizer, example=(job.batch,), device="cpu", largest=False)
    measured = zoo_measured.measure(name)
    resident = report.planned.resident_bytes
    return (
        Compared(report.plain.live_bytes, resident + measured.eager_bytes),
        Compared(report.planned.total_bytes, resident + measured.planned_bytes),
    )


def print_table(models: Sequence[str]) -> dict[str, tuple[Compared, Compared]]:
    """Prints the table and gives its rows."""
    torch.set_num_threads(1)
    print(header(COLUMNS))
    rows = {}
    for name in each(models, "models"):
        rows[name] = compare(name)
        print(line((name, *(cell for side in rows[name] for cell in side.cells(1)))), flush=True)
    for kind, sides in zip(("eager", "planned"), zip(*rows.values(), strict=True), strict=True):
        print(f"\n{sum(side.near for side in sides)} of {len(sides)} {kind} peaks within {100 * NEAR:.0f} %", end="")
    print()
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    known = [*zoo.names(), *zoo_measured.FULL]
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"some of {', '.join(known)}; all if none")


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the table; gives its rows."""
    rows = print_table(options.models or [*zoo.names(), *zoo_measured.FULL])
    return [{"model": name, "eager": eager, "planned": planned} for name, (eager, planned) in rows.items()]
