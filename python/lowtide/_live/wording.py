"""Logs in words: what a program holds for, and how a call is another one than its log has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._guards.report import show, show_argument
from .._guards.surroundings import Surroundings
from .atoms import name_of
from .log import Asked
from .modes import differing_modes

_MOST_LISTED = 8


def difference(expected: Asked | None, asked: Asked, surroundings: Surroundings, numbers: Sequence[int | float]) -> str:
    """How a call is another one than was expected; `numbers` are those of live Python, where they are operands."""
    name = name_of(asked.function)
    if expected is None:
        return f"{name} is called where the step ended before"
    if expected.function != asked.function:
        return f"{name} is called instead of {name_of(expected.function)}"
    if expected.modes != asked.modes:
        return f"{name} is called under other modes: {differing_modes(expected.modes, asked.modes)}"
    if expected.state != asked.state:
        changed = surroundings.differences(expected.state, asked.state) or ["parameter groups"]
        return f"what {name} sees has changed: {'; '.join(changed)}"
    for before, after in zip(expected.operands, asked.operands, strict=False):
        if before != after:
            return f"{name} is called with {_shown(before, ())} -> {_shown(after, numbers)}"
    return f"{name} is called with other arguments"


def listed(title: str, names: list[str]) -> str:
    """The first of them, and how many more there are."""
    more = f", and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return f"{title}: {', '.join(names[:_MOST_LISTED]) or 'none'}{more}"


def _shown(operand: tuple[Any, ...], numbers: Sequence[int | float]) -> str:
    if operand[0] == "plain":
        return show(operand[1]) or "an object"
    if operand[0] == "number":
        return str(numbers[operand[1]]) if numbers else "other numbers"
    if operand[0] == "outside" and len(operand) == 3:
        return show_argument(operand[2])
    if operand[0] in ("parameter", "buffer"):
        return str(operand[1])
    return f"the gradient of {operand[1]}" if operand[0] == "gradient" else "a tensor of the step"
