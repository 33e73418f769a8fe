"""Which tests of a table run: of one with several columns, rows in which each value of each column comes once.

    @pytest.mark.parametrize("optimizer", ["sgd", "adam"])
    @pytest.mark.parametrize("model", ["bert", "gpt2"])     # runs 2 of 4: sgd with bert, adam with gpt2

LOWTIDE_FULL=1   all rows
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest


def cover(items: list[pytest.Item]) -> None:
    """Leaves out what a quick run does without."""
    if os.environ.get("LOWTIDE_FULL"):
        return
    tables: dict[tuple[Any, Any], list[pytest.Item]] = {}
    for item in items:
        tables.setdefault((item.parent, getattr(item, "originalname", item.name)), []).append(item)
    kept = {item for table in tables.values() for item in _rows(table)}
    items[:] = [item for item in items if item in kept]


def _rows(table: list[pytest.Item]) -> Iterable[pytest.Item]:
    """Row by row, that with the most values which have not come yet."""
    values = {item: _values(item) for item in table}
    if len(table) == 1 or min(map(len, values.values())) < 2:
        return table
    missing = set().union(*values.values())
    rows = []
    while missing:
        rows.append(max(table, key=lambda item: len(values[item] & missing)))
        missing -= values[rows[-1]]
    return rows


def _values(item: pytest.Item) -> set[tuple[str, int]]:
    """By column and identity: values need not be hashable."""
    row = getattr(item, "callspec", None)
    return set() if row is None else {(name, id(value)) for name, value in row.params.items()}
