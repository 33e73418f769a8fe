"""`torch.compile(backend="lowtide")` beside eager, checkpointing, aot_eager and Inductor with PyTorch's own knob.

    python -m bench run backend_table [--quick] [--inductor] [--rounds N] [MODEL ...]

Each way trains a copy of the model with Adam on one thread, turn by turn with an eager copy of its own, on the same
batch; no gradient outlives a step. Peaks are what is there before a step (parameters, Adam's state, the batch) and what
the step allocates (`lowtide.measure()`), once all is compiled. Times are medians over rounds of the ratio to eager's
step in the same round, in CPU time. *first call* is the first step in seconds of CPU time, compiling included, with no
plans and profiles on disk; in the line *again*, with those of the way before.

A budget of the backend is a share of what eager's step allocates, in bytes. Inductor's is
`torch._functorch.config.activation_memory_budget`. The backend's engine `inductor` gets what steps with each of these
settings allocate as its budget in bytes; with `--inductor` only it and Inductor are measured. *bits* says whether
losses and parameters are eager's in every step.
"""

from __future__ import annotations

import argparse
import copy
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch

import lowtide
from bench.lib import by_model
from bench.lib.markdown import header, line
from bench.trade.budget_models import SUBJECTS, Subject, checkpoint_blocks
from bench.trade.budgets import Way, compiled_ways, eager_way, first_step, inductor_ways, run_step, train
from bench.zoo.graphs import MIB

NAMES = [name for name in SUBJECTS if not name.startswith("U-Net")]
SHARES = (0.9, 0.8, 0.7, 0.6, 0.5)
INDUCTOR_BUDGETS = (1.0, 0.75, 0.5, 0.25, 0.0)
COLUMNS = ("way", "budget MiB", "peak MiB", "of eager", "time / eager", "first call s", "bits")


@contextmanager
def nothing_on_disk() -> Iterator[None]:
    """Plans and profiles are kept in a folder of their own."""
    before = os.environ.get("LOWTIDE_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LOWTIDE_CACHE_DIR"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["LOWTIDE_CACHE_DIR"]
            else:
                os.environ["LOWTIDE_CACHE_DIR"] = before


def measure(
    subject: Subject, rounds: int, shares: Sequence[float], inductor_budgets: Sequence[float], *, arena: bool = True
) -> list[dict[str, Any]]:
    """Trains all ways and prints the table; gives its rows. `arena`: those of the engine of that name too."""
    import torch._inductor.config as inductor

    torch.set_num_threads(1)
    torch.manual_seed(0)
    original, batch = subject.build(), subject.batch()

    def fresh() -> torch.nn.Module:
        return copy.deepcopy(original)

    eager, saving = eager_way("eager", fresh()), eager_way("checkpoint each block", checkpoint_blocks(subject, fresh()))
    for way in (eager, saving):
        first_step(way, batch)
        run_step(way, batch, 1)
        way.peak = way.transient = 0
    train([eager, saving], batch, rounds)
    print(header(COLUMNS))
    rows = [_printed(eager, eager, eager), _printed(saving, eager, eager)]

    def compiled(name: str, **options: Any) -> None:
        try:
            way, other = compiled_ways(name, fresh, batch, rounds, **options)
        except lowtide.InfeasibleError:
            budget = options["options"]["memory_budget"]
            print(line((name, f"{budget / MIB:.1f}", "refused")), flush=True)
            rows.append({"way": name, "budget_bytes": budget})
        else:
            way.budget = options.get("options", {}).get("memory_budget")
            rows.append(_printed(way, other, eager))

    if arena:
        compiled("aot_eager", backend="aot_eager")
    for share in (None, *shares) if arena else ():
        budget = {} if share is None else {"memory_budget": int(share * eager.transient)}
        name = "lowtide" if share is None else f"lowtide, {share:.0%}"
        with nothing_on_disk():
            compiled(name, backend="lowtide", options=dict(budget))
            if share in (None, *shares[-1:]):
                compiled(f"{name}, again", backend="lowtide", options=dict(budget))
    reached = []
    for setting in inductor_budgets:
        with inductor.patch(force_disable_caches=True):
            rows.append(_printed(*inductor_ways(fresh, setting, batch, rounds), eager))
            reached.append((setting, rows[-1]["transient_bytes"]))
    for setting, peak in reached:
        with inductor.patch(force_disable_caches=True):
            compiled(
                f"lowtide on Inductor, as small as {setting}", backend="lowtide",
                options={"engine": "inductor", "memory_budget": peak},
            )  # fmt: skip
    print(flush=True)
    return rows


def _printed(way: Way, beside: Way, eager: Way) -> dict[str, Any]:
    """A row of the table: times are beside the eager copy of the same turns."""
    row = {
        "way": way.name,
        "budget_bytes": way.budget,
        "peak_bytes": way.peak,
        "transient_bytes": way.transient,
        "of_eager": way.peak / eager.peak,
        "time_of_eager": median(own / other for own, other in zip(way.seconds, beside.seconds, strict=True)),
        "first_call_seconds": way.first_call,
        "equal": way.equal,
    }
    cells = (
        way.name, f"{way.budget / MIB:.1f}" if way.budget else "", f"{way.peak / MIB:.1f}", f"{row['of_eager']:.1%}",
        f"{row['time_of_eager']:.3f}", f"{way.first_call:.1f}" if way.first_call else "",
        "equal" if way.equal else "other",
    )  # fmt: skip
    print(line(cells), flush=True)
    return row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    by_model.add_arguments(
        parser,
        quick="two budgets, two settings of Inductor's and few rounds",
        inductor="Inductor and the engine of that name only",
    )


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Prints a table for each model; gives their rows."""
    shares = SHARES[1::2] if options.quick else SHARES
    settings = INDUCTOR_BUDGETS[::4] if options.quick else INDUCTOR_BUDGETS

    def measured(name: str, rounds: int) -> list[dict[str, Any]]:
        return measure(SUBJECTS[name], rounds, shares, settings, arena=not options.inductor)

    return by_model.each_model("backend_table", NAMES, options, measured)
