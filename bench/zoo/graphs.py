"""Training steps of the zoo as graphs: each model at two batches, in several forms, kept on disk if wanted.

    for step in steps(["alexnet"], [Form("fused")], cache=Path("graphs")):
        print(step, step.graph.num_ops)

A capture takes seconds to minutes, a cached graph milliseconds. Graphs do not depend on the machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import lowtide
from bench import zoo

MIB = 2**20
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "fused": partial(torch.optim.Adam, fused=True),
    "foreach": partial(torch.optim.Adam, foreach=True),
    "sgd": partial(torch.optim.SGD, lr=0.01),
}
ADAMS = ("adam", "fused", "foreach")  # its implementations
GRADIENTS = ("kept", "dropped")


@dataclass(frozen=True)
class Form:
    """How a model is trained: with which optimizer, whether gradients outlive the step, and where."""

    optimizer: str = "adam"  # of OPTIMIZERS
    gradients: str = "kept"  # kept: `.grad` stays set, and is resident; dropped: zeroed at the end, and planned
    attention: str = "sdpa"  # or eager
    device: str | None = None  # whose times the ops have


@dataclass(frozen=True)
class Step:
    """A captured step."""

    model: str
    batch: int
    form: Form
    graph: lowtide.Graph

    def __str__(self) -> str:
        return f"{self.model} at {self.batch}"


def settings(row: zoo.Row, *, uses: bool = False) -> Iterator[tuple[zoo.Use, int]]:
    """How a model is trained: at batch 1 and 32 (or its paper's largest), or with `uses` as each paper does."""
    if uses:
        yield from ((use, batch) for use in row.uses for batch in use.batches)
        return
    use = next((use for use in row.uses if 32 in use.batches), row.uses[0])
    yield use, 1
    yield use, 32 if 32 in use.batches else max(use.batches)


def graph_of(
    name: str, use: zoo.Use, batch: int, form: Form, size: str = "paper"
) -> tuple[lowtide.Graph, zoo.Job, float]:
    """The graph of one step, its job, and how many seconds the capture took."""
    job = zoo.build(name, size, batch, form.attention, use=use, fake=True)
    optimizer = OPTIMIZERS[form.optimizer](job.model.parameters())
    step = job.train_step(job.model, optimizer)
    if form.gradients == "dropped":
        step = zeroed_after(step, optimizer)
    begin = time.perf_counter()
    graph = lowtide.capture(step, model=job.model, optimizer=optimizer, example=(job.batch,), device=form.device)
    return graph, job, time.perf_counter() - begin


def zeroed_after(step: Callable[..., Any], optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
    """The same step, after which no gradient is left."""

    def zeroed(batch: Any) -> Any:
        loss = step(batch)
        optimizer.zero_grad()
        return loss

    return zeroed


def steps(
    models: Sequence[str], forms: Sequence[Form], *, size: str = "paper", cache: Path | None = None
) -> Iterator[Step]:
    """Each of these models (of all, if none is named) at both of its batches in each form."""
    for form in forms:
        for name in models or zoo.names():
            for use, batch in settings(zoo.row_of(name)):
                yield Step(name, batch, form, _cached_graph(name, use, batch, form, size, cache))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those that choose steps."""
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"some of {', '.join(zoo.names())}; all if none")
    parser.add_argument("--size", choices=("paper", "small"), default="paper")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="where captured graphs are kept")


def chosen(options: argparse.Namespace, forms: Sequence[Form]) -> Iterator[Step]:
    """What these arguments choose."""
    return steps(options.models, forms, size=options.size, cache=options.cache)


def _cached_graph(name: str, use: zoo.Use, batch: int, form: Form, size: str, cache: Path | None) -> lowtide.Graph:
    if cache is None:
        return graph_of(name, use, batch, form, size)[0]
    parts = (name, size, f"b{batch}", form.optimizer, form.gradients, form.attention, form.device)
    path = cache / f"{'-'.join(part for part in parts if part)}.json.zst"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        graph_of(name, use, batch, form, size)[0].save(path)
    return lowtide.Graph.load(path)
