"""The ledger of an update rule: what one run of `optimizer.step()` asked for, split into structure and numbers.

Learning rate, bias correction and the like change at every step; which operators run on which tensors hardly ever does.
A `Ledger` writes both down apart: equal structures can share a program, and the numbers fill its slots.

    exp_avg.lerp_(grad, 1 - beta1)   ->   structure  lerp_.Scalar, tensor 2, tensor 1, float
                                          numbers    0.1
"""

from __future__ import annotations

import os
import sys
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from .. import _core
from .._base.sources import OURS
from .._capture.recorder import ITEM, LIFT
from ..errors import CaptureError


class NotExpressible(CaptureError):
    """An update rule that cannot run parameter by parameter; the message names the optimizer, the cause, the line."""


@dataclass(frozen=True, slots=True)
class Number:
    """Stands in a recorded call where a number was; `index` counts from the first number of the parameter's class."""

    index: int
    kind: type


class OpFacts:
    """What the ledger needs to know about an operator, read once from its schema."""

    __slots__ = ("keyword_lifts", "lifts", "name", "op", "random", "recorded", "returns_self", "skippable", "written")

    def __init__(self, op: torch._ops.OpOverload) -> None:
        arguments = op._schema.arguments
        returns = op._schema.returns
        self.op = op
        self.name = str(op)
        self.recorded = op.namespace not in ("profiler", "prim")
        self.random = torch.Tag.nondeterministic_seeded in op.tags
        # `arange(n)`: the number decides the shape, so it is structure.
        is_structure = _core.op_row(op._schema.name).numbers_decide_shape
        self.lifts = tuple(not is_structure and _holds_number(argument.type) for argument in arguments)
        self.keyword_lifts = {argument.name: lifts for argument, lifts in zip(arguments, self.lifts, strict=True)}
        self.written = tuple(
            (place, argument.name)
            for place, argument in enumerate(arguments)
            if argument.alias_info and argument.alias_info.is_write
        )
        in_place = bool(self.written) and torch.Tag.inplace_view not in op.tags and "resize" not in self.name
        self.returns_self = len(returns) == 1 and returns[0].alias_info is not None and returns[0].alias_info.is_write
        # In place and with no result of its own: leaving such a call out changes values, never who is who.
        self.skippable = in_place and (not returns or (self.returns_self and self.written == ((0, arguments[0].name),)))

    def written_in(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """The tensors, or lists of tensors, that a call writes."""
        return [args[place] if place < len(args) else kwargs.get(name) for place, name in self.written]


def _holds_number(schema_type: Any) -> bool:
    # A Python number may sit in a Tensor slot: `mul.Tensor(x, 0.5)`. Integers (dims, sizes) are structure.
    return any(word in str(schema_type) for word in ("number", "Scalar", "float", "Tensor"))


_facts: dict[int, OpFacts] = {}  # by address: PyTorch hashes operators in Python; `OpFacts.op` keeps them alive


def facts_of(op: Any) -> OpFacts:
    """The facts of `op`, computed at its first use."""
    known = _facts.get(id(op))
    if known is None:
        if not isinstance(op, torch._ops.OpOverload):
            raise NotExpressible(f"the update calls {op}, which is not a plain operator ({rule_line()})")
        known = _facts[id(op)] = OpFacts(op)
    return known


_PLAIN = (int, float, bool, str, complex, type(None))


def is_plain(value: Any) -> bool:
    """Whether a value cannot change and holds no tensor."""
    return isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(map(is_plain, value)))


class Ledger:
    """Structure and numbers of the calls that one class of parameters makes.

    Tensors are numbered in the order they turn up: first the `roots` (parameter, gradient, state, tensor-valued
    hyper-parameters), of which the first `data_roots` hold data rather than counters, then results.
    """

    __slots__ = ("_held", "data_roots", "items", "known", "numbers", "optimizer", "refused", "structure")

    def __init__(self, optimizer: str, origins: Hashable, roots: Iterable[Tensor], data_roots: int) -> None:
        self.optimizer = optimizer
        self.known: dict[int, int] = {id(root): number for number, root in enumerate(roots)}
        self.data_roots = data_roots
        self.structure: list[Any] = [origins]
        self.numbers: list[int | float] = []
        self.items: list[Any] = []
        self.refused: NotExpressible | None = None  # even if the rule has caught it
        self._held: list[Any] = []  # an id is a name only while its tensor lives

    def call(self, facts: OpFacts, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Writes a call down, before it runs; refuses tensors that this class does not own."""
        if facts.random:
            raise self.refusal(f"draws random numbers with {facts.name}")
        self.structure.append(facts)
        try:
            for value, lifts in zip(args, facts.lifts, strict=False):
                if isinstance(value, Tensor):  # by far the most frequent
                    self.structure.append(self.known[id(value)])
                else:
                    self._argument(value, lifts)
            for name, value in kwargs.items():
                self.structure.append(name)
                self._argument(value, facts.keyword_lifts[name])
        except KeyError:
            raise self.refusal(
                f"calls {facts.name} on a tensor that is neither the parameter, its gradient, its state nor made from "
                "them: the update mixes parameters, or keeps tensors elsewhere"
            ) from None

    def _argument(self, value: Any, lifts: bool) -> None:
        kind = type(value)
        if lifts and (kind is float or kind is int):
            self.structure.append(kind)
            self.numbers.append(value)
        elif isinstance(value, Tensor):
            self.structure.append(self.known[id(value)])
        elif isinstance(value, (list, tuple)):
            self.structure.append(len(value))
            for item in value:
                self._argument(item, lifts)
        else:
            self.structure.append(value)

    def results(self, facts: OpFacts, out: Any) -> None:
        """Numbers the tensors that a call made."""
        if isinstance(out, Tensor):
            self.known.setdefault(id(out), len(self.known))
            self._held.append(out)
        elif isinstance(out, (list, tuple)):
            for item in out:
                self.results(facts, item)
        elif out is not None:
            raise self.refusal(f"asks {facts.name} for a Python {type(out).__name__} that depends on tensors")

    def item(self, tensor: Tensor, answer: Any) -> None:
        """Writes down that a tensor's value was read."""
        number = self.known.get(id(tensor))
        if number is None:
            raise self.refusal("reads the value of a tensor that is not this parameter's")
        self.structure += (ITEM, number, type(answer))
        self.items.append(answer)

    def lift(self, constant: Tensor, out: Tensor) -> None:
        """Writes down `torch.tensor(...)` inside the rule: a number, or a small constant that is structure."""
        with _disable_current_modes():
            value: Any = constant.tolist()
        if type(value) in (int, float):
            self.structure += (LIFT, constant.dtype, type(value))
            self.numbers.append(value)
        elif constant.numel() <= 64:
            self.structure += (LIFT, constant.dtype, tuple(constant.shape), repr(value))
        else:
            raise self.refusal(f"makes a tensor of {constant.numel()} values out of Python data")
        self.results(facts_of(LIFT), out)

    def close(self, state: Mapping[str, Any] | None) -> None:
        """Ends the structure with the state that the rule leaves behind: which tensor each key holds."""
        if self.refused is not None:
            raise self.refused
        if state is None:
            self.structure.append(None)
            return
        for key, value in state.items():
            if isinstance(value, Tensor):
                number = self.known.get(id(value))
                if number is None:
                    raise self.refusal(f"puts a tensor of unknown origin into state {key!r}")
                self.structure += (key, number)
            elif is_plain(value):
                self.structure += (key, type(value))
            else:
                raise self.refusal(f"keeps a Python {type(value).__name__} in state {key!r}")

    def refusal(self, reason: str) -> NotExpressible:
        """The error for what the rule does right now."""
        self.refused = NotExpressible(f"{self.optimizer}.step() {reason} ({rule_line()})")
        return self.refused


_TORCH = os.path.dirname(torch.__file__) + os.sep
_OPTIM = os.path.join(_TORCH, "optim") + os.sep


def rule_line() -> str:
    """The innermost line of the update rule, as `file:line`: the user's code or one of PyTorch's optimizers."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        rule = name.startswith(_OPTIM) and not name.endswith("optimizer.py")
        if rule or not name.startswith((_TORCH, OURS, "<")):
            return f"{name}:{frame.f_lineno}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return "?"
