"""Captures in words: what each holds for, why it was made, and how many calls it has served."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .sharing import Sharing


@dataclass(slots=True)
class CaptureRecord:
    """One capture, for the user to read: why it was made, what it holds for, how many calls it has served."""

    reason: str
    sharing: Sharing = ()  # memory that arguments share, if the step writes it
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
    """A tensor as `describe_tensor` describes it, or a plain value: "float32[6, 8]"."""
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
