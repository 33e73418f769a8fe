"""What a step needs beyond parameters and the state of Adam, measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from bench.page.amounts import MIB, span
from bench.page.results import Results

FULL = "resnet50_96"  # in its published size; all others are small


def values(results: Results) -> dict[str, str]:
    return results.written("step_zoo", _measured)


def _measured(figures: Sequence[dict[str, Any]]) -> dict[str, str]:
    rows = {row["model"]: row for row in figures}
    full = rows.pop(FULL)
    ratios = [row["planned_bytes"] / row["eager_bytes"] for row in rows.values()]
    return {
        "full_planned": f"{full['planned_bytes'] / MIB:.1f} MiB",
        "full_eager": f"{full['eager_bytes'] / MIB:.1f} MiB",
        "models": str(len(rows)),
        "ratios": span(ratios),
        "mean": f"{statistics.geometric_mean(ratios):.2f}",
        "equal": f"{sum(row['equal'] for row in figures)} of {len(figures)}",
    }
