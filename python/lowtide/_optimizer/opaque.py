"""An operator that updates one parameter by the user's own rule, where the rule has no template.

It runs inside the program like any other operator, so the gradient's memory is free again right after it; what the rule
allocates inside is not planned.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch

_library = torch.library.Library("lowtide", "DEF")  # type: ignore[no-untyped-call]
_library.define("opaque_update(Tensor(a!) parameter, Tensor gradient, int key) -> ()")  # type: ignore[no-untyped-call]

_rules: dict[int, Callable[[torch.Tensor], None]] = {}
_keys = itertools.count()


def _opaque_update(parameter: torch.Tensor, gradient: torch.Tensor, key: int) -> None:
    _rules[key](gradient)


_library.impl("opaque_update", _opaque_update, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]

OPAQUE_UPDATE = torch.ops.lowtide.opaque_update.default


def register_rule(rule: Callable[[torch.Tensor], None]) -> int:
    """Makes `rule(gradient)` callable from a program, by the key that it gives."""
    key = next(_keys)
    _rules[key] = rule
    return key


def forget_rule(key: int) -> None:
    """The program that calls it is gone."""
    _rules.pop(key, None)
