"""How much less memory one method needs than another, over the steps that both have planned."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]  # of order_table


def reduction(rows: Sequence[Row], ours: str, other: str, *, batch_one: bool, total: bool = False) -> str:
    """As a geometric mean: of planned bytes, or with `total` of resident ones too."""
    by_step = {(row["method"], row["model"], row["batch"]): row for row in rows if "refused" not in row}
    ratios = [
        _bytes(by_step[ours, model, batch], total) / _bytes(row, total)
        for (method, model, batch), row in by_step.items()
        if method == other and (batch == 1) == batch_one
    ]
    return f"{100 * (statistics.geometric_mean(ratios) - 1):+.1f} %" if ratios else ""


def _bytes(row: Row, total: bool) -> int:
    return row["planned"] + (row["resident"] if total else 0)
