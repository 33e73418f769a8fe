"""Operands: what the arguments of calls are, in terms of their program."""

from __future__ import annotations

from typing import Any

import torch

from .. import _torch
from .._guards.guards import describe_tensor, plain_key
from ..errors import CaptureError
from .numbers import kind_of
from .own import Own
from .stand_in import StandIn


class Operands:
    """What there is before a program, and the tensors and numbers that live Python brings in meanwhile."""

    def __init__(self, own: Own) -> None:
        self.own = own
        self.gradients = {name: parameter.grad for name, parameter in own.parameters.items()}
        self._gradient_names = {id(grad): name for name, grad in self.gradients.items() if grad is not None}
        self.outside: list[torch.Tensor] = []
        self._outside_numbers: dict[int, int] = {}
        self.numbers: list[int | float] = []

    def of(self, leaf: Any) -> tuple[Any, ...]:
        """A leaf of a call's arguments."""
        if type(leaf) is StandIn:
            return ("variable", leaf.number)
        if not isinstance(leaf, torch.Tensor):
            key = plain_key(leaf)
            if key is None and id(leaf) in self.own.modules:
                return ("plain", id(leaf))
            if key is None:
                raise CaptureError(f"a {type(leaf).__qualname__} is an argument of tensor work: it could change")
            return ("plain", key)
        if torch._C._functorch.is_functorch_wrapped_tensor(leaf):
            raise CaptureError("a function transform in the step must see its tensors")
        own = self.own.tensors.get(id(leaf))
        if own is not None:
            return (*own, leaf.requires_grad)
        name = self._gradient_names.get(id(leaf))
        if name is not None:
            return ("gradient", name)
        number = self._outside_numbers.get(id(leaf))
        if number is not None:
            return ("outside", number)
        if leaf.requires_grad and _has_hooks(leaf):
            raise CaptureError(f"a tensor of shape {tuple(leaf.shape)} has hooks, which must see its gradient")
        self.outside.append(leaf)
        self._outside_numbers[id(leaf)] = len(self.outside) - 1
        return ("outside", len(self.outside) - 1, describe_tensor(leaf))

    def number_of(self, tensor: torch.Tensor) -> int | None:
        """Of a tensor from outside that is an operand."""
        return self._outside_numbers.get(id(tensor))

    def mark(self) -> tuple[int, int]:
        """Where to go back to."""
        return len(self.outside), len(self.numbers)

    def go_back(self, mark: tuple[int, int]) -> None:
        """What has come in since then has not."""
        for tensor in self.outside[mark[0] :]:
            del self._outside_numbers[id(tensor)]
        del self.outside[mark[0] :]
        del self.numbers[mark[1] :]

    def number(self, leaf: Any) -> tuple[Any, ...]:
        """A leaf that is a number, another one at each call."""
        kind = kind_of(leaf)
        assert kind is not None
        self.numbers.append(kind(leaf))
        return ("number", len(self.numbers) - 1, kind)

    def known(self, leaf: torch.Tensor) -> tuple[Any, ...] | None:
        """A tensor that was there before, if it is one."""
        own = self.own.tensors.get(id(leaf))
        if own is not None:
            return own
        name = self._gradient_names.get(id(leaf))
        return None if name is None else ("gradient", name)

    def given(self, operand: tuple[Any, ...]) -> Any:
        """What an operand or result stands for, if it is no variable."""
        kind, value = operand[:2]
        if kind == "outside":
            return self.outside[value]
        if kind == "number":
            return self.numbers[value]
        if kind == "gradient":
            return self.gradients[value]
        if kind in ("parameter", "buffer"):
            return self.own.parameters[value] if kind == "parameter" else self.own.buffers[value]
        return value


def _has_hooks(tensor: torch.Tensor) -> bool:
    return bool(tensor._backward_hooks or tensor._post_accumulate_grad_hooks or _torch.any_has_hooked_node([tensor]))
