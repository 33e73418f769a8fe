"""Amounts as the pages write them."""

from __future__ import annotations

from collections.abc import Iterable

MIB = 2**20
GIB = 2**30


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def more(share: float, digits: int = 1) -> str:
    """With its sign."""
    return f"{100 * share:+.{digits}f} %"


def span(amounts: Iterable[float], digits: int = 2) -> str:
    """From the lowest to the highest."""
    found = list(amounts)
    low, high = f"{min(found):.{digits}f}", f"{max(found):.{digits}f}"
    return low if low == high else f"{low} to {high}"
