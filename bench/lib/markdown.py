"""Tables in Markdown, whole or line by line as their rows come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def line(cells: Iterable[object]) -> str:
    """One row."""
    return f"| {' | '.join(map(str, cells))} |"


def header(columns: Sequence[object]) -> str:
    """The names of the columns, and the rule below them."""
    return f"{line(columns)}\n|{'---|' * len(columns)}"


def table(columns: Sequence[object], rows: Iterable[Iterable[object]]) -> str:
    """All of it."""
    return "\n".join([header(columns), *map(line, rows)])
