"""Numbers of live Python that are others at every call, such as the weight of a loss or a count of tokens.

Where a number of plain arithmetic has changed, it becomes an operand: the program is recorded with a mark in its place,
and gets the number itself when it runs. PyTorch hands such numbers to operators as they are, in backward passes too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from .._capture.recorder import Recording
from .._optimizer.ledger import Number
from .log import Asked

_NAMES = (
    "mul", "mul_", "multiply", "multiply_", "__mul__", "__rmul__", "__imul__", "div", "div_", "divide", "divide_",
     "true_divide", "true_divide_", "__truediv__", "__itruediv__", "__rtruediv__", "__div__", "__idiv__", "__rdiv__",
     "add", "add_", "__add__", "__radd__", "__iadd__", "sub", "sub_", "subtract", "subtract_", "__sub__", "__rsub__",
    "__isub__",
)  # fmt: skip
_ARITHMETIC = frozenset({vars(owner)[name] for owner in (torch, torch.Tensor, torch._C.TensorBase) for name in _NAMES
                         if name in vars(owner)})  # fmt: skip
# Of another sign and size when calls are recorded again.
_MARKS = {float: (float.fromhex("0x1.9e3779b97f4a8p-3"), -421.75), int: (1_640_531_527, -97_411)}


def kind_of(value: Any) -> type | None:
    """`float` or `int`, if a value is one that may become an operand."""
    if isinstance(value, float):
        return float
    return int if type(value) is int and -(1 << 63) <= value < 1 << 63 else None


def changed_numbers(before: Asked, now: Asked, values: Sequence[Any]) -> list[int]:
    """The operands of a call that are other numbers than before; none if anything else is different too."""
    same = (before.function, before.structure, before.modes) == (now.function, now.structure, now.modes)
    if not same or now.function not in _ARITHMETIC:
        return []
    pairs = enumerate(zip(before.operands, now.operands, strict=True))
    changed = [i for i, (old, new) in pairs if old != new and new[0] != "number"]
    numbers = [i for i in changed if before.operands[i][0] == "plain" and kind_of(values[i]) is not None]
    same_kind = all(before.operands[i][1][0] is type(values[i]) for i in numbers)
    return numbers if numbers == changed and same_kind else []


def mark(index: int, kind: type, again: bool) -> Any:
    """What stands for the number of that index while calls are recorded; other marks when they are recorded again.

    What PyTorch makes of a mark, instead of handing it on, is another constant then: the recordings differ.
    """
    return _MARKS[kind][again] + index * (2.0**-30 if kind is float else 1)


def lift(recording: Recording, kinds: Sequence[type], again: bool) -> bool:
    """Puts numbers in place of their marks; whether each was found."""
    numbers = {(kind, mark(index, kind, again)): Number(index, kind) for index, kind in enumerate(kinds)}
    found: set[int] = set()

    def lifted(tree: Any) -> Any:
        if type(tree) in (list, tuple):
            return type(tree)([lifted(item) for item in tree])
        number = numbers.get((type(tree), tree)) if type(tree) in _MARKS else None
        if number is None:
            return tree
        found.add(number.index)
        return number

    if numbers:
        recording.calls[:] = [
            replace(call, args=lifted(call.args), kwargs={key: lifted(value) for key, value in call.kwargs.items()})
            for call in recording.calls
        ]
    return len(found) == len(kinds)
