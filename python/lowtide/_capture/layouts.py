"""Strides of results, as operators were seen to give them where PyTorch's fakes have others.

Autograd looks at strides when it chooses between formulas, and Python may too. So a capture whose fakes had wrong ones
is not what eager does. It is made again, and then its fakes have the strides that are known here.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch

_PLAIN = (bool, int, str, torch.dtype, torch.layout, torch.memory_format, torch.device)


class Layouts:
    """By call: the results whose fakes are wrong, and their strides."""

    def __init__(self) -> None:
        self._strides: dict[torch._ops.OpOverload, dict[Hashable, dict[int, tuple[int, ...]]]] = {}

    def learn(
        self, target: torch._ops.OpOverload, arguments: Sequence[Any], result: int, strides: tuple[int, ...]
    ) -> bool:
        """What a call that ran gave. False if it was known."""
        known = self._strides.setdefault(target, {}).setdefault(_key(arguments), {})
        is_new = known.get(result) != strides
        known[result] = strides
        return is_new

    def knows(self, target: torch._ops.OpOverload) -> bool:
        """Whether some call of this operator has results whose fakes are wrong."""
        return target in self._strides

    def of(self, target: torch._ops.OpOverload, arguments: Sequence[Any]) -> dict[int, tuple[int, ...]]:
        """By result whose fake is wrong, its strides."""
        return self._strides.get(target, {}).get(_key(arguments), {})


layouts = Layouts()
"""Those of this process."""


def _key(argument: Any) -> Hashable:
    """Numbers that may be others at every call do not count: no operator lays out its results by them."""
    if hasattr(argument, "strides"):  # a `Ref`, whose module needs this one
        return (argument.dtype, argument.sizes, argument.strides)
    if isinstance(argument, (list, tuple)):
        return tuple(map(_key, argument))
    return argument if isinstance(argument, _PLAIN) else type(argument).__name__
