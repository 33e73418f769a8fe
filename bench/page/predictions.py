"""Predicted times and peaks, beside measured ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.page.amounts import more, span
from bench.page.results import Results

NEAR_TIME = 0.10
NEAR_PEAK = 0.02


def values(results: Results) -> dict[str, str]:
    return {
        **results.written("step_prediction", _times, "times_"),
        **results.written("fit_measured", _peaks, "peaks_"),
    }


def _times(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    far = [row["settled_of_step"] for row in rows if abs(row["settled_of_step"] - 1) > NEAR_TIME]
    return {
        "models": str(len(rows)),
        **{
            column: str(sum(abs(row[column] - 1) <= NEAR_TIME for row in rows))
            for column in ("alone_of_program", "alone_of_step", "settled_of_program", "settled_of_step")
        },
        "others": span(far) if far else "none",
    }


def _peaks(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for side in ("eager", "planned"):
        errors = [row[side]["predicted"] / row[side]["measured"] - 1 for row in rows]
        found[f"{side}_near"] = f"{sum(abs(error) <= NEAR_PEAK for error in errors)} of {len(errors)}"
        found[f"{side}_worst"] = more(max(errors, key=abs))
    return found
