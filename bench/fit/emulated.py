"""Predicted and reserved: what `lowtide.fit` says of plain PyTorch on a GPU beside PyTorch's own caching allocator.

    python -m bench run fit_emulated [--size paper] [--batch 4] [--attention sdpa] [MODEL ...]

Needs PyTorch's CUDA build and a device: the emulated one of tests/emulated_cuda, which says that it is of an L4's kind,
or an L4. Models train for three steps with AdamW, each on a batch that comes from the host, on a stream of their own
and with no block left from before. cuDNN is off: its workspaces are no part of what is predicted, and the emulated
device has none.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

import lowtide
from bench import zoo
from bench.fit.measured import Compared
from bench.lib.markdown import header, line

DEVICE = "L4"
STEPS = 3
COLUMNS = ("model", "allocated: predicted MiB", "measured", "off by", "reserved: predicted MiB", "measured", "off by")
Maker = Callable[..., tuple[torch.nn.Module, Callable[..., Any], dict[str, torch.Tensor]]]


def compare(make: Maker) -> tuple[Compared, Compared]:
    """Bytes allocated and reserved. `make(fake)` gives a model, what makes a step of it and its optimizer, a batch."""
    with _without_cudnn():
        predicted = _predicted(make)
        measured = _measured(make)
    return Compared(predicted.allocated_bytes, measured[0]), Compared(predicted.reserved_bytes, measured[1])


def of_zoo(name: str, size: str = "small", batch: int | None = None, attention: str = "eager") -> Maker:
    """A model of the zoo, to compare."""

    def make(fake: bool) -> tuple[torch.nn.Module, Callable[..., Any], dict[str, torch.Tensor]]:
        job = zoo.build(name, size, batch, attention, fake=fake)
        return job.model, job.train_step, job.batch

    return make


def _predicted(make: Maker) -> Any:
    model, train_step, batch = make(fake=True)
    optimizer = torch.optim.AdamW(model.parameters())
    step = train_step(model, optimizer)
    report = lowtide.fit(step, model=model, optimizer=optimizer, example=(batch,), device=DEVICE, largest=False)
    return report.plain


def _measured(make: Maker) -> tuple[int, int]:
    _give_all_back()
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    with torch.cuda.stream(torch.cuda.Stream()):
        _train(make)
        most = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    _give_all_back()
    return most[0] - before[0], most[1] - before[1]


def _train(make: Maker) -> None:
    model, train_step, on_host = make(fake=False)
    model.train().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    step = train_step(model, optimizer)
    loss = None
    for _ in range(STEPS):
        batch = {name: tensor.cuda() for name, tensor in on_host.items()}
        loss = step(batch)  # the one before is there until the next is
    assert loss is not None


def _give_all_back() -> None:
    gc.collect()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


@contextmanager
def _without_cudnn() -> Iterator[None]:
    attends = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        with torch.backends.cudnn.flags(enabled=False):
            yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(attends)


def print_table(makers: dict[str, Maker]) -> dict[str, tuple[Compared, Compared]]:
    """Prints the table and gives its rows."""
    print(header(COLUMNS))
    rows = {}
    for name, make in makers.items():
        rows[name] = compare(make)
        print(line((name, *(cell for side in rows[name] for cell in side.cells(2)))), flush=True)
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"some of {', '.join(zoo.names())}; all if none")
    parser.add_argument("--size", choices=("paper", "small"), default="small")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--attention", choices=("eager", "sdpa"), default="eager")


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the table; gives its rows."""
    models: Sequence[str] = options.models or zoo.names()
    makers = {name: of_zoo(name, options.size, options.batch, options.attention) for name in models}
    rows = print_table(makers)
    return [{"model": name, "allocated": sides[0], "reserved": sides[1]} for name, sides in rows.items()]
