"""`lowtide.fit`: whether a step fits on a device that is not here, and the largest batch and length that do."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch

from .. import _core
from .._base.blocks import find_blocks
from .._base.budgets import read_link
from .._capture import weightless
from .._lower.capture import optimizers_of
from .._lower.gpus import Device, device_named
from .inputs import Inputs
from .question import Question
from .report import CPU, SOME_DEVICE, FitReport
from .target import read_made

RESERVE = "1GiB"  # the CUDA context and its modules (about half of it), and workspaces of cuDNN
SLOWDOWN = 0.1

_ONE_SIZE = "on a CPU operators run to be known, at every size that is tried; ask for one after the other"


def fit(
    function: Callable[..., Any],
    *,
    device: str | int,
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    example: tuple[Any, ...] | Callable[..., tuple[Any, ...]] | None = None,
    batch: int | None = None,
    length: int | None = None,
    batch_dim: int = 0,
    reserve: int | str = RESERVE,
    keep_grads: bool = False,
    slowdown: float = SLOWDOWN,
    allocator: str = "",
    link: str | None = None,
    largest: bool = True,
) -> FitReport:
    """Whether `function(*example)` fits on `device`: in plain PyTorch, as Lowtide plans it, and within a budget.

        report = lowtide.fit(train_step, model=model, optimizer=optimizer, example=(x, y), device="L4")
        print(report)
        report.fits, report.plain.reserved_bytes, report.planned.total_bytes, report.largest_batch

    The step does not run. `device` is a GPU by its name, in any usual spelling: "A100" (80 GiB), "A100-40", "H100",
    "H200", "B200", "L4", "A10", "T4", "RTX 3090", "RTX 4090" or "MI300X". Or it is bytes (24 * 2**30, "24GiB"), for
    which no times are stated, and operators are those of a CPU; for these nothing is computed. For "cpu", which is this
    machine with all its memory, each operator that the cache of profiles does not know is run alone, on scratch
    tensors, as `compile` does: its workspace counts, and its time. Nothing larger is sought there.

    `example` is the tuple of the function's arguments, real or fake, or a function that gives one for a batch; then
    `batch` says which one is asked for. In a tuple, the batch is what all tensors have in `batch_dim`. With a `length`
    (tokens, pixels) it is a function of both: `example=lambda batch, length: ...`. The model may be on the meta device
    or on fake tensors: it needs no memory then. Without a `model`, `function` is taken for one that makes it all:
    without arguments, it returns a dict of "function", "model", "optimizer", "example" and, if wanted, "batch" and
    "length", and is called where nothing takes memory.

    `reserve` is set aside for what no graph has: the CUDA context, and workspaces of cuDNN. Those of cuBLAS are counted
    on a GPU with a name. `allocator` has PyTorch's settings, as in PYTORCH_CUDA_ALLOC_CONF. Plans are made with
    `keep_grads`, as `compile` takes it, but False unless it is said: the report names it. The largest batch is sought
    in plain PyTorch, as planned, and with operators that run again for as long as the step takes at most the share
    `slowdown` longer; and so is the largest length, at the batch that is asked for. What cannot be captured does not
    fit. With a `link`, where no plan fits or only one in which operators run again, one is looked for that also moves
    tensors out and back at that rate ("16GB/s"): from a GPU to the host's memory, from the CPU to a disk.
    """
    if model is None:
        with weightless.building():
            made = read_made(function())
        function, model, optimizer, example = made.function, made.model, made.optimizer, made.example
        batch = made.batch if batch is None else batch
        length = made.length if length is None else length
    if example is None:
        raise TypeError("fit needs an example: the tuple of the function's arguments, or a function of the batch")
    _check_sizes(batch=batch, length=length)
    if isinstance(slowdown, bool) or not 0 <= slowdown < math.inf:
        raise ValueError(f"slowdown: expected a share from 0 on, such as 0.1, got {slowdown!r}")
    if link is not None:
        read_link(link)
    optimizers = optimizers_of(optimizer)
    is_here = isinstance(device, str) and device.lower() == CPU
    capacity, timed_on = (_memory_here(), None) if is_here else _read_device(device)
    usable = capacity - _read_bytes("reserve", reserve)
    if usable <= 0:
        raise ValueError(f"a reserve of {reserve} leaves nothing of {_core.format_bytes(capacity)}")
    with weightless.as_if_on_cpu(model, optimizers):
        inputs = Inputs(example, batch, length, batch_dim, weightless.fake_mode_of(model))
        question = Question(
            function, model, optimizers, inputs, timed_on, usable,
            is_here=is_here, keep_grads=keep_grads, allocator=allocator, link=link,
        )  # fmt: skip
        planned = question.planned()
        unasked = inputs.why_no_batch or ("" if largest else "not asked for") or (_ONE_SIZE if is_here else "")
        seeks_length = not unasked and inputs.asked.length is not None
        return FitReport(
            device=CPU if is_here else timed_on.name if timed_on else SOME_DEVICE,
            capacity_bytes=capacity,
            reserve_bytes=capacity - usable,
            batch=inputs.asked.batch,
            length=inputs.asked.length,
            keep_grads=keep_grads,
            workspace_bytes=question.workspaces(),
            plain=question.plain(),
            planned=planned,
            budget=None if planned.fits else question.within_budget(),
            swapped=None if planned.fits or link is None else question.with_swaps(),
            link=link,
            largest_batch=None if unasked else question.largest("batch", slowdown),
            largest_length=question.largest("length", slowdown) if seeks_length else None,
            unasked=unasked,
            has_blocks=_has_blocks(model),
            notes=question.notes(),
        )


def _memory_here() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _check_sizes(**sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise ValueError(f"{name}: expected a whole number from 1 on, got {size!r}")


def _has_blocks(model: torch.nn.Module) -> bool:
    with suppress(ValueError):
        return bool(find_blocks(model))
    return False


def _read_bytes(name: str, amount: int | str) -> int:
    if isinstance(amount, str):
        try:
            return _core.parse_bytes(amount)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
        raise ValueError(f'{name}: expected bytes, a whole number or text such as "1GiB", got {amount!r}')
    return amount


def _read_device(device: str | int) -> tuple[int, Device | None]:
    """Its memory; and whose times operators have, if it is one that is known."""
    if not isinstance(device, str):
        return _read_bytes("device", device), None
    try:
        known = device_named(device)
    except ValueError as error:
        if device[:1].isdigit():
            return _read_bytes("device", device), None
        raise ValueError(f"{error}, and cpu; or give its memory as bytes: 24GiB") from None
    return known.memory_bytes - known.ecc_bytes, known
