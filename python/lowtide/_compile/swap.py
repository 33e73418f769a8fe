"""`compile(..., swap=...)`: the tier that steps swap to, and how fast the way there is.

Steps on the CPU swap to a folder, steps on a CUDA device to pinned memory of the host: swap="host". A tier is one for
the whole process, so that steps on one model find what others have put away. The rates of a disk are measured once and
kept, those of a device's link once in each process; or they are declared: link="2GB/s".
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

import torch

from .. import _torch
from .._base.budgets import read_link
from .._base.cache_directory import CacheDirectory, default_directory
from .._base.devices import CPU, numbered, why_not_planned
from .._base.sources import warn_user
from .._step.swapping import LEAST_BYTES, FolderTier, HostTier, Link, SwapTier, is_whole, movable

_MOST_FILE_BYTES = 4096
_HOST = "host"
_MEASURED_BYTES = 16 << 20  # that a copy has whose rate is measured
_MEASURED_COPIES = 3
_files: dict[str, _torch.TierFile] = {}  # by real path
_hosts: dict[torch.device, HostTier] = {}


def open_tier(swap: str | os.PathLike[str], link: str | None, model: torch.nn.Module) -> SwapTier:
    """The tier of that name for steps on a model.

    `ValueError` if the model's device has none of that name, or the link is none; `OSError` if it cannot be used.
    """
    device = device_of(model)
    if swap == _HOST:
        return _open_host(device, link)
    if device.type != "cpu":
        raise ValueError(f'swap: expected "host" for a model on {device}, got {os.fspath(swap)!r}')
    declared = None if link is None else _declared(link)
    file = _file_in(swap)
    return FolderTier(file, declared or measured_link(file.folder))


def put_away(tensors: torch.nn.Module | Iterable[torch.Tensor], folder: str | os.PathLike[str]) -> None:
    """Moves the parameters and buffers of a module, or these tensors, to a file in `folder`, where steps swap to.

    They can be read and written as before, from the disk. So a model that does not fit is built part by part:

        for layer in layers:
            layer.to_empty(device="cpu")
            initialise(layer)
            lowtide.put_away(layer, "/fast/disk")

    Small tensors stay in memory, and so do those that are a part of a storage only.
    """
    if isinstance(tensors, torch.nn.Module):
        tensors = [*tensors.parameters(), *tensors.buffers()]
    tier = _torch.file_tier(_file_in(folder))
    on_cpu = [t for t in tensors if t.device.type == "cpu" and t.layout is torch.strided and t.nbytes >= LEAST_BYTES]
    for tensor in movable(tensor for tensor in on_cpu if is_whole(tensor, tensor.nbytes)):
        _torch.put_away(tensor, tier)


def _file_in(folder: str | os.PathLike[str]) -> _torch.TierFile:
    path = os.path.realpath(os.fspath(folder))
    if not os.path.isdir(path):
        raise ValueError(f"swap: expected a folder on a disk, got {os.fspath(folder)!r}")
    if not _files:
        os.register_at_fork(before=_warn_of_fork)
    if path not in _files:
        _files[path] = _torch.TierFile(path)
    return _files[path]


def _warn_of_fork() -> None:
    """A forked process has no copy of what is away: it reads the file, which later steps change."""
    if not _torch.has_homes():
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != torch.utils.data.dataloader.__name__:
        frame = frame.f_back
    if frame is None:  # the workers of a loader have no business with the model
        warn_user(
            "lowtide: this process is forked while tensors are on the disk: in the child they change with later "
            'steps. Fork within step.gather(), or start processes by "spawn"'
        )


def _open_host(device: torch.device, link: str | None) -> HostTier:
    if device.type != "cuda":
        raise ValueError(f'swap: "host" needs a model on a CUDA device, on {device} name a folder')
    reason = why_not_planned(device)
    if reason:
        raise ValueError(f'swap: "host" needs planned memory on {device}: {reason}')
    tier = _hosts.get(device)
    if tier is None:
        tier = HostTier(device, _declared(link, duplex=True) if link is not None else measured_host_link(device))
        _hosts[device] = tier
    elif link is not None:
        tier.link = _declared(link, duplex=True)
    return tier


def _declared(link: str, *, duplex: bool = False) -> Link:
    """With one rate for both directions."""
    rate = read_link(link)
    return Link(rate, rate, duplex=duplex)


def device_of(model: torch.nn.Module) -> torch.device:
    """Where a step on the model runs: on another device than the CPU, if there is a part of the model."""
    tensors = itertools.chain(model.parameters(), model.buffers())
    return next((numbered(tensor.device) for tensor in tensors if tensor.device.type != "cpu"), CPU)


def measured_host_link(device: torch.device) -> Link:
    """What copies between the device and pinned memory of the host take, a large one and a small one each way."""
    with torch.cuda.device(device):
        there = torch.empty(_MEASURED_BYTES, dtype=torch.uint8, device=device)
        host = torch.empty(_MEASURED_BYTES, dtype=torch.uint8, pin_memory=True)
        store, load = (_copy_seconds(to, of) for to, of in ((host, there), (there, host)))
        latency = min(_copy_seconds(to[:1], of[:1]) for to, of in ((host, there), (there, host)))
    store_rate, load_rate = (int(_MEASURED_BYTES / max(seconds - latency, 1e-6)) for seconds in (store, load))
    return Link(store_rate, load_rate, int(1e9 * latency), duplex=True)


def _copy_seconds(to: torch.Tensor, of: torch.Tensor) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    taken = []
    for _ in range(_MEASURED_COPIES):
        begin.record()
        to.copy_(of, non_blocking=True)
        end.record()
        end.synchronize()
        taken.append(1e-3 * float(begin.elapsed_time(end)))
    return min(taken)


def measured_link(folder: str) -> Link:
    """What the disk of that folder does: measured once, and kept."""
    directory = CacheDirectory(default_directory()).below("links")
    name = f"{os.stat(folder).st_dev}.json"
    kept = directory.to_read(name, _MOST_FILE_BYTES)
    with contextlib.suppress(OSError, ValueError, TypeError):
        if kept is not None:
            rates = [int(rate) for rate in json.loads(Path(kept).read_text())]
            if len(rates) == 3 and min(rates[:2]) > 0 and rates[2] >= 0:
                return Link(rates[0], rates[1], rates[2])
    measured = _torch.measure_link(folder)
    with directory.replacing(name) as path:
        if path is not None:
            path.write_text(json.dumps(measured))
    return Link(*measured)
