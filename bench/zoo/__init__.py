"""The models of five papers on the memory of training, in the papers' sizes and in small ones.

    job = zoo.build("resnet50")                             # small, real weights
    job = zoo.build("gpt2_xl", "paper", batch=1, fake=True)  # no weights, no memory: for lowtide.capture
    optimizer = torch.optim.Adam(job.model.parameters())
    step = job.train_step(job.model, optimizer)
    step(job.batch)

`table.py` says which paper trains which model how.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import transformers
import transformers.initialization
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from .table import TABLE, Row, Use
from .tasks import Batch, StepMaker, train_step

__all__ = ["TABLE", "Job", "Row", "Use", "build", "names", "row_of"]

SMALL_BATCH = 2


@dataclass(frozen=True)
class Job:
    """Something to train: a model in training mode, the step, and batches from seeds."""

    row: Row
    model: nn.Module
    train_step: StepMaker
    batch: Batch  # the one of seed 0
    batch_size: int
    extent: int
    classes: int | None

    def batches(self, count: int) -> Iterator[Batch]:
        """Those of the seeds 0 to `count` - 1."""
        for seed in range(count):
            yield self.make_batch(self.batch_size, seed)

    def make_batch(self, size: int, seed: int = 0) -> Batch:
        """Of any size."""
        return _make_batch(self.row, size, self.extent, self.classes, seed)


def names() -> list[str]:
    return [row.name for row in TABLE]


def row_of(name: str) -> Row:
    return next(row for row in TABLE if row.name == name)


def build(
    name: str,
    size: str = "small",
    batch: int | None = None,
    attention: str = "eager",
    *,
    use: Use | None = None,
    fake: bool = False,
    seed: int = 0,
) -> Job:
    """Makes the model `name`, its data and its step.

    `size` is "small" or "paper": as in `use`, which is the first of its row unless given. `attention` is "eager" or
    "sdpa", for models that know both. With `fake`, tensors have shapes and no content; otherwise weights come from
    `seed`.
    """
    row = row_of(name)
    use = use or row.uses[0]
    chosen = {"small": row.small, "paper": row.full}[size]
    batch_size = batch or (SMALL_BATCH if size == "small" else use.batches[0])
    extent = row.small.extent if size == "small" else use.extent
    options = dict(chosen.changes)
    if chosen.classes is not None:
        options["classes"] = chosen.classes
    if len(row.attentions) > 1:
        options["attention"] = attention
    dtype = use.dtype if size == "paper" else "float32"
    with _no_content() if fake else _seeded(seed):
        with _default(getattr(torch, dtype)):  # fake parameters cannot be converted later
            model = row.make(**options).train()
        if isinstance(model, transformers.PreTrainedModel):
            model.tie_weights()  # left out together with the initial values
        example = _make_batch(row, batch_size, extent, chosen.classes, 0)
    return Job(row, model, train_step(row.task.loss), example, batch_size, extent, chosen.classes)


def _make_batch(row: Row, batch: int, extent: int, classes: int | None, seed: int) -> Batch:
    return row.task.make_batch(torch.Generator().manual_seed(seed), batch, extent, classes or 0)


class _FakeMode(FakeTensorMode):
    def __deepcopy__(self, memo: object) -> FakeTensorMode:
        return self  # nn.Transformer copies its layers, and tensors of two modes do not mix


@contextlib.contextmanager
def _no_content() -> Iterator[None]:
    with warnings.catch_warnings(), _FakeMode(), transformers.initialization.no_init_weights():
        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")  # by such a copy
        yield


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


@contextlib.contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
