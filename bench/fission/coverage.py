"""How much of a training step can run in parts: the models of the zoo, with fused Adam.

    python -m bench run fission_coverage [MODEL ...]

For each operator of a step, the bytes of what it reads and makes are counted if it has an axis: in all, and where the
axis is one that the planner can be told of in periods. The last column names those that hold most of the rest.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from typing import Any

from bench import zoo
from bench.lib.markdown import header, line
from bench.lib.progress import each
from bench.zoo.graphs import OPTIMIZERS, settings, zeroed_after
from lowtide._capture.recorder import Ref
from lowtide._lower.axes import axes_of
from lowtide._lower.capture import _recorded
from lowtide._lower.lowering import Lowered, Operator, lower
from lowtide._lower.parts import periods

COLUMNS = ("model", "batch", "ops", "operands GiB", "with axes", "with periods", "without axes")


def lowered_step(name: str, use: zoo.Use, batch: int, size: str) -> Lowered:
    """One step, after which no gradient is left."""
    job = zoo.build(name, size, batch, "sdpa", use=use, fake=True)
    optimizer = OPTIMIZERS["fused"](job.model.parameters())
    step = zeroed_after(job.train_step(job.model, optimizer), optimizer)
    with _recorded(step, job.model, [optimizer], (job.batch,)) as (tape, runs):
        return lower(tape, runs)


def operand_bytes(operator: Operator) -> int:
    """Of the windows that it reads and makes, each once."""

    def size(ref: Ref) -> int:
        return math.prod(ref.sizes) * ref.dtype.itemsize

    return sum(map(size, {*operator.reads(), *operator.new_results()}))


def measure(name: str, use: zoo.Use, batch: int, size: str) -> dict[str, Any]:
    """A row of the table."""
    lowered = lowered_step(name, use, batch, size)
    total = with_axes = with_periods = 0
    without: Counter[str] = Counter()
    for operator in lowered.operators:
        nbytes, axes = operand_bytes(operator), axes_of(operator)
        total += nbytes
        with_axes += nbytes if axes else 0
        with_periods += nbytes if any(periods(operator, axis, lowered.buffers) for axis in axes) else 0
        if not axes:
            without[operator.target._schema.name.removeprefix("aten::")] += nbytes
    return {
        "model": name,
        "batch": batch,
        "ops": len(lowered.operators),
        "operand_bytes": total,
        "bytes_with_axes": with_axes,
        "bytes_with_periods": with_periods,
        "without_axes": {target: nbytes for target, nbytes in without.most_common(3) if nbytes},
    }


def cells(row: dict[str, Any]) -> list[str]:
    """As the table shows it."""
    total = row["operand_bytes"]
    without = ", ".join(f"{name} {nbytes / total:.2%}" for name, nbytes in row["without_axes"].items())
    shares = [f"{row[key] / total:.1%}" for key in ("bytes_with_axes", "bytes_with_periods")]
    return [row["model"], str(row["batch"]), str(row["ops"]), f"{total / 2**30:.1f}", *shares, without]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"some of {', '.join(zoo.names())}; all if none")
    parser.add_argument("--size", choices=("paper", "small"), default="paper")


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the table; gives its rows."""
    print(header(COLUMNS))
    rows = []
    for name in each(options.models or zoo.names(), "models"):
        for use, batch in settings(zoo.row_of(name)):
            rows.append(measure(name, use, batch, options.size))
            print(line(cells(rows[-1])), flush=True)
    return rows
