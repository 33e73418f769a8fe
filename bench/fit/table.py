"""Will it fit: the zoo on a device that is not here, and the largest batch of each model there.

    python -m bench run fit_table [--device L4] [--one-batch] [--size small] [MODEL ...]

Nothing is computed: models have no weights. Each is asked for at the first batch of the first paper that trains it,
with Adam and fused attention, and with gradients that the step leaves behind (PyTorch) or frees (planned, as with
`keep_grads=False`). *PyTorch* is what its caching allocator for CUDA reserves, simulated; *planned* is resident bytes
and arena; *within the device* is by how much the step takes longer, by the device's roofline, if some operators run
again so that it fits. Largest batches: as PyTorch runs it, as planned, and with at most 10 % more time. One GiB is set
aside. Seconds are of this process's processor time, most of it for captures.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import torch

import lowtide
from bench import zoo
from bench.lib.markdown import header, line
from bench.lib.progress import each
from lowtide._fit.report import Planned

GIB = 2**30
COLUMNS = (
    "model", "batch", "PyTorch GiB", "planned GiB", "within the device", "largest: PyTorch", "planned", "+10 % time",
    "captures", "seconds",
)  # fmt: skip


def ask(name: str, device: str, *, size: str = "paper", largest_batch: bool = True) -> lowtide.FitReport:
    """Whether it fits."""
    job = zoo.build(name, size, attention="sdpa", fake=True)
    optimizer = torch.optim.Adam(job.model.parameters())
    return lowtide.fit(
        job.train_step(job.model, optimizer),
        model=job.model,
        optimizer=optimizer,
        example=lambda batch: (job.make_batch(batch),),
        batch=job.batch_size,
        device=device,
        largest=largest_batch,
    )


def print_table(
    models: Sequence[str], device: str, *, size: str = "paper", largest_batch: bool = True
) -> dict[str, tuple[lowtide.FitReport, float]]:
    """Prints the table; gives each report and the seconds that it took."""
    print(header(COLUMNS))
    found = {}
    for name in each(models, "models"):
        begin = time.process_time()
        report = ask(name, device, size=size, largest_batch=largest_batch)
        found[name] = report, time.process_time() - begin
        cells = [f"{report.plain.reserved_bytes / GIB:.2f}", f"{report.planned.total_bytes / GIB:.2f}", _budget(report)]
        largest = [""] * 4 if report.largest_batch is None else _largest(report).values()
        print(line((name, report.batch, *cells, *largest, f"{found[name][1]:.0f}")), flush=True)
    print(f"\n{sum(taken < 60 for _, taken in found.values())} of {len(found)} in under 60 s")
    return found


def _largest(report: lowtide.FitReport) -> dict[str, int | None]:
    """Batches, and how many captures it took to find them."""
    return {name: getattr(report.largest_batch, name) for name in ("plain", "planned", "budget", "captures")}


def _budget(report: lowtide.FitReport) -> str:
    if report.budget is None:
        return "as planned"
    if isinstance(report.budget, Planned) and report.budget.slowdown is not None:
        return f"+{100 * report.budget.slowdown:.1f} %"
    return "no"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"some of {', '.join(zoo.names())}; all if none")
    parser.add_argument("--device", default="L4")
    parser.add_argument("--size", choices=("paper", "small"), default="paper")
    parser.add_argument("--one-batch", action="store_true", help="do not look for the largest batch")


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the table; gives its rows."""
    models = options.models or zoo.names()
    found = print_table(models, options.device, size=options.size, largest_batch=not options.one_batch)
    return [
        {
            "model": name,
            "batch": report.batch,
            "reserved_bytes": report.plain.reserved_bytes,
            "planned_bytes": report.planned.total_bytes,
            "within_device": _budget(report),
            **({} if report.largest_batch is None else {f"largest_{k}": v for k, v in _largest(report).items()}),
            "seconds": seconds,
        }
        for name, (report, seconds) in found.items()
    ]
