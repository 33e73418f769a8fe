"""Casts of weights that autocast keeps until its outermost region ends.

A region around the call outlives it. The first operator that needs a weight casts it, and every later one gets that
cast, in this call and in the next, even when the weight has been updated in between. So a step that is called in such a
region works with the casts that are kept: they are bound like the weights themselves, and made, before the program
runs, where there are none yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from .. import _torch
from ..errors import CaptureError


class Cast(NamedTuple):
    """A weight, and what its kept cast is like."""

    weight: torch.Tensor
    dtype: torch.dtype
    requires_grad: bool


class _NotKept(Exception):
    pass


class _OnlyLook(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Nothing is computed: a cast that is not there is not made either."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise _NotKept


AUTOCAST_DEVICES = ("cpu", "cuda")


def read_autocast() -> tuple[tuple[tuple[bool, torch.dtype], ...], bool]:
    """By device, whether casts are made and to which dtype; and whether those of weights are kept."""
    devices = tuple([(torch.is_autocast_enabled(one), torch.get_autocast_dtype(one)) for one in AUTOCAST_DEVICES])
    return devices, torch.is_autocast_cache_enabled()


def autocast_enabled() -> bool:
    """Whether casts are made on any device."""
    return any(map(torch.is_autocast_enabled, AUTOCAST_DEVICES))


def region_around() -> bool:
    """Whether there is an autocast region now, enabled or not, and so casts may be kept for longer than the call."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting() > 0


def refuse_autocast_by_hand() -> None:
    """Raises `CaptureError` if autocast is on without a region: casts of weights would be kept for good."""
    if autocast_enabled() and not region_around():
        raise CaptureError(
            "autocast is switched on by hand, and keeps casts of weights from call to call: use torch.autocast(...)"
        )


def kept_cast(weight: torch.Tensor) -> torch.Tensor | None:
    """The cast of a weight that autocast keeps, if it does."""
    if not weight.requires_grad or not weight.is_leaf or weight.dtype is not torch.float32:
        return None
    with _disable_current_modes(), _cache_enabled():
        try:
            with _OnlyLook():  # type: ignore[no-untyped-call]
                return _torch.autocast_cast(weight, torch.get_autocast_dtype(weight.device.type))
        except _NotKept:
            return None


def any_kept(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether autocast keeps a cast of one of them."""
    return any(kept_cast(tensor) is not None for tensor in tensors)


def cast_now(cast: Cast) -> torch.Tensor:
    """The cast that an operator would get: the one that is kept, or a new one, which is kept from now on."""
    device = cast.weight.device.type
    dtype = torch.get_autocast_dtype(device)
    torch.set_autocast_dtype(device, cast.dtype)
    try:
        with _cache_enabled(), torch.set_grad_enabled(cast.requires_grad):
            return _torch.autocast_cast(cast.weight, cast.dtype)
    finally:
        torch.set_autocast_dtype(device, dtype)


@contextmanager
def _cache_enabled() -> Iterator[None]:
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(True)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)
