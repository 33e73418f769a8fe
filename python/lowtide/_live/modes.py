"""The modes that a call is made under: read, compared, and set again where it is made later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.utils._device import DeviceContext

from .. import _torch
from .._base.devices import CPU
from .._base.engine_switches import SWITCH_NAMES, Values, read_anew, read_pythons_own, read_switches, set_switches
from .._capture.autocast_casts import AUTOCAST_DEVICES, read_autocast

_count_function_modes = torch._C._len_torch_function_stack
_known: dict[Values, Values] = {}  # what was read under a word


def read_modes_of_call() -> Values:
    """Everything that PyTorch reads beside the arguments of a call. The same object where all of it is the same."""
    return _known.get(_word()) or read_anew(_known, _word, _read)


def _word() -> Values:
    return (_torch.call_word(), *read_pythons_own(), default_device())


def _read() -> Values:
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    return (grad, inference, read_autocast(), read_switches(), default_device())


def default_device() -> torch.device:
    """Where tensors are made that are made nowhere in particular: `torch.set_default_device`, `with torch.device`."""
    for index in range(_count_function_modes() - 1, -1, -1):
        mode = torch._C._get_function_stack_at(index)
        if isinstance(mode, DeviceContext):
            return mode.device
    return CPU


def autocasts(modes: tuple[Any, ...]) -> bool:
    """Whether casts are made in these modes."""
    return any([enabled for enabled, _ in modes[2][0]])


def reads_of_operators_are(before: Values, modes: tuple[Any, ...]) -> bool:
    """Whether the switches that operators read when they run are those, in modes that a call was made under."""
    return bool(modes[3][: len(before)] == before)


@contextmanager
def under_modes(modes: tuple[Any, ...]) -> Iterator[None]:
    """While open, the modes that a call was made under."""
    now: tuple[Any, ...] = read_modes_of_call()
    if modes == now:
        yield
        return
    grad, inference, autocast, switches, device = modes
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(inference))
        stack.enter_context(torch.set_grad_enabled(grad))
        stack.callback(_set_autocast, *now[2])
        _set_autocast(*autocast)
        stack.callback(set_switches, now[3])
        set_switches(switches)
        if device != now[4]:
            stack.enter_context(device)
        yield


def differing_modes(before: tuple[Any, ...], after: tuple[Any, ...]) -> str:
    """In words, the first that is another one."""
    names = ("grad mode", "inference mode", "autocast", "default device", *SWITCH_NAMES)
    pairs = zip(names, (*before[:3], before[4], *before[3]), (*after[:3], after[4], *after[3]), strict=True)
    return next(f"{name}: {was} -> {now}" for name, was, now in pairs if was != now)


def _set_autocast(devices: Sequence[tuple[bool, torch.dtype]], cached: bool) -> None:
    for device, (enabled, dtype) in zip(AUTOCAST_DEVICES, devices, strict=True):
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)
    torch.set_autocast_cache_enabled(cached)
