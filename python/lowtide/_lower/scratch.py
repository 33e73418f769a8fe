"""Scratch tensors: what operators are run on to see what they do."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

import torch

from .. import _torch
from .._base.schemas import DEFAULT
from .._capture.recorder import Ref
from .._optimizer.ledger import Number


class Scratch:
    """Arguments for calls, of the right form and with harmless content. `number` gives values for lifted numbers.

    They take the arena's place: its memory goes back to the system first. `make_room` may give back more.
    """

    def __init__(self, number: Callable[[Any], int | float], make_room: Callable[[], None] = lambda: None) -> None:
        self._number = number
        self._make_room = make_room
        self._has_room = False
        self._lent: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}  # as long as the largest asked for

    def own(self, argument: Any) -> tuple[str, Any]:
        """An argument whose memory nothing else has, as in a step."""
        return self._given(argument, lambda _: True)

    def lent(self, argument: Any, written: Container[int]) -> tuple[str, Any]:
        """An argument that is to be read and then forgotten; buffers in `written` get memory of their own.

        All that are only read are windows on the same memory, which is filled once: pages are most of what a single run
        costs.
        """
        return self._given(argument, lambda ref: ref.buffer in written)

    def _given(self, argument: Any, is_own: Callable[[Ref], bool]) -> tuple[str, Any]:
        return ("default", None) if argument is DEFAULT else ("constant", self._value(argument, is_own))

    def _value(self, argument: Any, is_own: Callable[[Ref], bool]) -> Any:
        if isinstance(argument, Ref):
            extent = 1 + sum((size - 1) * stride for size, stride in zip(argument.sizes, argument.strides, strict=True))
            base = self._filled(argument.dtype, argument.device, max(extent, 0), is_own(argument))
            return base.as_strided(argument.sizes, argument.strides)
        if isinstance(argument, (list, tuple)):
            return [self._value(item, is_own) for item in argument]
        if isinstance(argument, Number):
            return self._number(argument)
        return argument

    def _filled(self, dtype: torch.dtype, device: torch.device, extent: int, own: bool) -> torch.Tensor:
        lent = self._lent.get((dtype, device))
        if not own and lent is not None and lent.numel() >= extent:
            return lent
        if not self._has_room:
            _torch.empty_arena()
            self._make_room()
            self._has_room = True
        # Zeros are a valid index and a valid class; one half is a valid probability and divides.
        if not own:
            lent = None
            self._lent.pop((dtype, device), None)  # before there is a larger one
        made = torch.full((extent,), 0.5 if dtype.is_floating_point else 0, dtype=dtype, device=device)
        if not own:
            self._lent[dtype, device] = made
        return made
