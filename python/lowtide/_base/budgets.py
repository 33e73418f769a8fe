"""Budgets as people write them, read in one way everywhere: `compile`, `plan`, `adapt` and the program `lowtide`.

6 * 2**30, "6GiB", "800MB"        bytes
0.6, "60%"                        a share of what eager needs
20, 1.5, "20ms", "1.5s"           time; a number is milliseconds
"16GB/s"                          a rate: what a link moves
"""

from __future__ import annotations

import math
import numbers
from typing import Any

from .. import _core


def read_memory_budget(budget: Any) -> int | float | None:
    """Bytes (an int), or a share of what eager needs (a float up to 1). `ValueError` for anything else."""
    if budget is None:
        return None
    if isinstance(budget, str):
        return _core.parse_budget(budget)
    number = _number(budget, "memory_budget", 'bytes, text such as "6GiB" or "60%", or a share up to 1')
    if isinstance(number, int):
        if number <= 0:
            raise ValueError(f"memory_budget: expected bytes above 0, got {number}")
        return number
    if not 0 < number <= 1:
        meant = f': did you mean {number / 100:g}, or "{number:g}MiB"?' if 1 < number <= 100 else ""
        raise ValueError(
            f"memory_budget: expected a share above 0 and at most 1, or bytes as an int, got {number}{meant}"
        )
    return number


def read_byte_budget(budget: Any) -> int:
    """Bytes, where there is nothing to take a share of."""
    read = read_memory_budget(budget)
    if not isinstance(read, int):
        raise ValueError(f'memory_budget: expected bytes or text such as "6GiB", got {budget!r}')
    return read


def read_latency_budget(budget: Any) -> int | None:
    """Nanoseconds, of a number of milliseconds or a text such as "20ms". `ValueError` for anything else."""
    if budget is None:
        return None
    if isinstance(budget, str):
        return _core.parse_time_budget_ns(budget)
    number = _number(budget, "latency_budget", 'milliseconds or text such as "20ms"')
    nanos = int(number * 1_000_000) if math.isfinite(number) else 0
    if nanos <= 0:
        raise ValueError(f"latency_budget: expected milliseconds above 0, got {budget}")
    return nanos


def _number(value: Any, name: str, expected: str) -> int | float:
    """As Python's own: NumPy has others."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}: expected {expected}, got {value!r}")
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def read_link(link: Any) -> int:
    """Bytes a second that a link moves. `ValueError` for anything else."""
    if not isinstance(link, str):
        raise ValueError(f'link: expected bytes a second such as "16GB/s", got {link!r}')
    try:
        return _core.parse_rate(link)
    except ValueError as error:
        raise ValueError(f"link: {error}") from None
