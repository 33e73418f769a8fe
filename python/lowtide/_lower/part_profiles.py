"""What a part of an operator asks of memory and time, found by running one alone, with what it delivers.

The parts of an operator along an axis have one shape, so one of them is profiled: the second, which is the first that
is added where parts are summed, and whose windows begin where those of a part do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from .. import _torch
from .._base.devices import CPU, alignment_on
from .._base.interrupts import signals_held
from .._base.schemas import DEFAULT
from .._capture.recorder import Ref, refs_in
from .._optimizer.template import Number
from ..errors import CaptureError
from .custom_operators import own_state_kept
from .lowering import Operator
from .part_cache import PartCache
from .part_calls import PartCall
from .profile_rows import PartProfile, PartRequest
from .profiles import TIMED_RUNS, pack_workspace, signature_of, take_profile


def part_signature(whole: Operator, call: PartCall) -> str:
    """Names the call of a part by all that decides what it requests, and what its time is held against."""
    return f"{_signature(whole)} in {call.count}: {_signature(call.operator)} {call.form()}"


def _signature(operator: Operator) -> str:
    return signature_of(operator.target, operator.arguments, operator.results, operator.grad_mode)


class WholeTime:
    """How long an operator takes as a whole, on scratch memory like its parts; found when it is first asked for."""

    def __init__(self, operator: Operator, number: Callable[[Number], int | float]) -> None:
        self._operator = operator
        self.number = number
        self._nanos: int | None = None

    def nanos(self) -> int:
        """As profiles have it."""
        if self._nanos is None:
            operator = self._operator
            arguments = [_scratch(argument, self.number) for argument in operator.arguments]
            with own_state_kept(operator.target):
                self._nanos = take_profile(
                    operator.target, arguments, operator.results, operator.made, operator.grad_mode, timed=True
                ).time_ns
        return self._nanos


def profile_part(call: PartCall, number: Callable[[Number], int | float], *, timed: bool) -> PartProfile:
    """Runs the part alone, on scratch memory. Raises `CaptureError` if it gives other results than a part would."""
    operator = call.operator
    with own_state_kept(operator.target):
        arguments = [_scratch(argument, number) for argument in operator.arguments]
        alone = take_profile(
            operator.target, arguments, operator.results, operator.made, operator.grad_mode, timed=False
        )
        if any(correction.dtype == "" or correction.on_cpu for correction in alone.corrections):
            raise CaptureError(f"a part of {operator.target} gives other results than the whole")
        in_place = tuple(result for result in call.results if _fits(call, result, alone.corrections, alone.requests))
        copied = [
            (result, _window(delivery.place), delivery.adds)
            for result, delivery in call.results.items()
            if delivery.adds or not delivery.in_place or result not in in_place
        ]
        schema = operator.target._schema
        device = next((delivery.place.device for delivery in call.results.values()), _device_of(operator.arguments))
        requests, time_ns = _torch.profile_part(
            schema.name, schema.overload_name, arguments, TIMED_RUNS if timed else 0, operator.grad_mode, device, copied
        )
    scratch = {result for result, *_ in copied}
    lives = [(size, begin, end, -1 if result in scratch else result) for size, begin, end, result, _ in requests]
    packed, workspace = pack_workspace(lives, alignment_on(device))
    taken = tuple(
        PartRequest(request.bytes, result, request.offset, delivers)
        for request, (*_, result, delivers) in zip(packed, requests, strict=True)
    )
    return PartProfile(taken, workspace, time_ns, in_place)


def known_part(whole: WholeTime, call: PartCall, cache: PartCache, signature: str, *, seen: bool) -> PartProfile | None:
    """The profile of a part, taken now if the cache has none; None if the operator cannot run in such parts.

    With `seen` it is one that was seen in this process: what comes from a file is run once.
    """
    profile = cache.profile(signature)
    if profile is not None and seen and not cache.is_confirmed(signature, profile):
        signals_held.look()
        with contextlib.suppress(Exception):
            if profile_part(call, whole.number, timed=False).behaviour == profile.behaviour:
                cache.confirm(signature, profile.behaviour)
                return profile
        cache.forget(signature)
        profile = None
    if profile is None:
        signals_held.look()
        try:
            profile = replace(profile_part(call, whole.number, timed=True), whole_ns=whole.nanos())
        except (CaptureError, RuntimeError, ValueError, IndexError, TypeError):  # what kernels say to wrong shapes
            return None
        cache.put_profile(signature, profile)
    return profile


def _fits(call: PartCall, result: int, corrections: Any, requests: Any) -> bool:
    """Whether the kernel's own result has the form of the window that it belongs in, and just its bytes."""
    place = call.results[result].place
    real = next((c for c in corrections if c.result == result), None)
    if real is not None:
        if (getattr(torch, real.dtype), real.sizes) != (place.dtype, place.sizes):
            raise CaptureError(f"a part of {call.operator.target} gives other results than the whole")
        same = zip(real.sizes, real.strides, place.strides, strict=True)
        if any(size != 1 and stride != expected for size, stride, expected in same):
            return False
    size = next((request.bytes for request in requests if request.result == result), 0)
    return bool(size == place.extent())


def _scratch(argument: Any, number: Callable[[Number], int | float]) -> tuple[str, Any]:
    return ("default", None) if argument is DEFAULT else ("constant", _value(argument, number))


def _value(argument: Any, number: Callable[[Number], int | float]) -> Any:
    if isinstance(argument, Ref):
        return _window(argument)
    if isinstance(argument, (list, tuple)):
        return [_value(item, number) for item in argument]
    return number(argument) if isinstance(argument, Number) else argument


def _window(ref: Ref) -> torch.Tensor:
    """Memory of its own, as far from an aligned address as the window on its block is."""
    item = ref.dtype.itemsize
    first = ref.offset * item % alignment_on(ref.device) // item
    content = 0.5 if ref.dtype.is_floating_point else 0  # as in scratch.py
    base = torch.full((first + max(ref.extent(), 0) // item,), content, dtype=ref.dtype, device=ref.device)
    return base.as_strided(ref.sizes, ref.strides, first)


def _device_of(arguments: Any) -> torch.device:
    return next((ref.device for ref in refs_in(arguments)), CPU)
