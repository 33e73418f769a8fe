"""Guards in words: what a capture holds for, and what has changed when it does not serve a call."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from .guards import MODE_NAMES, Guards
from .sharing import show_sharing

if TYPE_CHECKING:
    from .surroundings import Surroundings

_MOST_ARGUMENTS = 12
_SHOWN_MODES = ("grad mode", "autocast", "threads", "default dtype")


@dataclass(slots=True)
class CaptureRecord:
    """One capture, for the user to read: why it was made, what it holds for, how many calls it has served."""

    guards: Guards
    names: list[str]  # of the leaves of the arguments
    reason: str
    holds_for: list[str] = field(default_factory=list)
    calls: int = 0


def explain_captures(records: Sequence[CaptureRecord]) -> list[str]:
    """Each capture: why it was made, what it holds for (of all but the first: what is different), calls."""
    lines: list[str] = []
    for index, record in enumerate(records):
        told = [line for line in record.holds_for if index == 0 or line not in records[0].holds_for]
        served = f"served {count(record.calls, 'call')}"
        lines += [f"capture {index + 1}: {record.reason}", *(f"    {line}" for line in (*told, served))]
    return lines


def count(number: int, noun: str) -> str:
    """ "1 call", "2 calls"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def show(key: Any) -> str:
    """The value behind a `plain_key`, or "" if it cannot be shown in a few characters."""
    if not isinstance(key, tuple) or len(key) < 2:
        return ""
    if key[0] is float:
        return repr(float.fromhex(key[1]))
    text = repr(key[1]) if key[0] in (int, bool, str, bytes, type(None), torch.dtype, torch.device) else ""
    return text if len(text) <= 60 else f"{text[:57]}..."


def show_argument(key: Hashable) -> str:
    """A leaf of the arguments as `read_arguments` describes it: "float32[6, 8]"."""
    if isinstance(key, str):
        return f"the model's own {key}"
    assert isinstance(key, tuple)
    if isinstance(key[0], type) and issubclass(key[0], torch.Tensor):
        return _show_tensor(*key[:5])
    return show(key) or f"a {key[0].__qualname__}"


def _show_tensor(kind: type, dtype: torch.dtype, shape: tuple[int, ...], strides: Any, requires_grad: bool) -> str:
    said = f"{str(dtype)[6:]}{list(shape)}"
    if kind is not torch.Tensor:
        said = f"{kind.__qualname__} {said}"
    if not isinstance(strides, tuple):
        said += f", {strides}"
    elif torch.empty(shape, device="meta").stride() != strides:
        said += f" with strides {list(strides)}"
    return said + (", requires a gradient" if requires_grad else "")


def explain_miss(records: Sequence[CaptureRecord], guards: Guards, names: list[str], around: Surroundings) -> str:
    """Which guards do not hold, with their old and new values: those of the nearest capture, the latest of several."""
    if not records:
        return "first call"
    differences: list[list[str]] = [_differences(record, guards, names, around) for record in reversed(records)]
    nearest = min(differences, key=len)
    return "; ".join(nearest) or "which parameters have a gradient at entry"


def _differences(record: CaptureRecord, guards: Guards, names: list[str], around: Surroundings) -> list[str]:
    old = record.guards
    said: list[str] = []
    if record.names != names:
        said.append(f"arguments ({', '.join(record.names)}) -> ({', '.join(names)})")
    else:
        said += [
            f"argument {name}: {show_argument(was)} -> {show_argument(now)}"
            for name, was, now in zip(names, old.arguments, guards.arguments, strict=True)
            if was != now
        ]
        if old.structure != guards.structure:
            said.append("the classes of what holds the arguments")
    said += [
        f"{name}: {was} -> {now}"
        for name, was, now in zip(MODE_NAMES, old.modes, guards.modes, strict=True)
        if was != now
    ]
    if old.groups != guards.groups:
        said.append(f"parameter groups: {_show_groups(old.groups)} -> {_show_groups(guards.groups)}")
    if old.sharing != guards.sharing and record.names == names:
        said.append(" -> ".join(show_sharing(sharing, names) for sharing in (old.sharing, guards.sharing)))
    return said + around.differences(old.surroundings, guards.surroundings)


def describe(guards: Guards, names: Sequence[str], around: Surroundings, any_gradients: bool) -> list[str]:
    """What a capture holds for, a line for each kind of guard."""
    arguments = [f"{name}: {show_argument(key)}" for name, key in zip(names, guards.arguments, strict=True)]
    if len(arguments) > _MOST_ARGUMENTS:
        arguments[_MOST_ARGUMENTS:] = [f"and {len(arguments) - _MOST_ARGUMENTS} more arguments"]
    modes = [f"{name} {value}" for name, value in zip(MODE_NAMES, guards.modes, strict=True) if name in _SHOWN_MODES]
    return [
        *arguments,
        f"modes: {', '.join(modes)}, and {len(MODE_NAMES) - len(modes)} more",
        f"parameter groups: {_show_groups(guards.groups)}",
        f"in Python: {around.describe()}",
        f".grad at entry: {'any' if any_gradients else 'set for the same parameters'}",
        *([show_sharing(guards.sharing, names)] if guards.sharing else []),
    ]


def _show_groups(groups: tuple[tuple[tuple[int, ...], ...], ...]) -> str:
    return " and ".join(str([len(group) for group in optimizer]) for optimizer in groups) or "none"
