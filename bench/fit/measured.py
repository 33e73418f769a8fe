"""Predicted and measured: what `lowtide.fit` says of the zoo's small models beside steps that are run.

    python bench/fit/measured.py [MODEL ...]

Predictions are made before a step runs, with models of fake tensors and operators that run alone for their workspaces
(`device="cpu"`): the most bytes alive in plain PyTorch, and resident bytes and arena as planned, both with parameters,
the state of Adam and the batch. Measured are steps on CPU, eager and compiled, by `step/zoo.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import torch

import lowtide
from bench import zoo
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
    print(f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}", sep="\n")
    rows = {}
    for name in models:
        rows[name] = compare(name)
        cells = [
            f"{side.predicted / MIB:.2f} | {side.measured / MIB:.2f} | {100 * side.error:+.1f} %" for side in rows[name]
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    for kind, sides in zip(("eager", "planned"), zip(*rows.values(), strict=True), strict=True):
        print(f"\n{sum(side.near for side in sides)} of {len(sides)} {kind} peaks within {100 * NEAR:.0f} %", end="")
    print()
    return rows


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    known = [*zoo.names(), *zoo_measured.FULL]
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"some of {', '.join(known)}; all if none")
    print_table(parser.parse_args().models or known)


if __name__ == "__main__":
    main()
