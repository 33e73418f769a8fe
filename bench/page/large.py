"""Large models and the zoo's steps, planned only: what is left of memory for so much more time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.lib.markdown import table
from bench.page.amounts import GIB
from bench.page.results import Results

MODELS = {"gpt_neo_1.3b": "GPT-Neo-1.3B", "btlm_3b": "BTLM-3B"}
Row = dict[str, Any]


def values(results: Results) -> dict[str, str]:
    return {**results.written("trade_large", _large), **results.written("trade_front", _front, "front_")}


def _large(rows: Sequence[Row]) -> dict[str, str]:
    first, *extras = (f"+{100 * lowest['extra']:.0f} %" for lowest in rows[0]["lowest"])
    return {"table": table(("model", "ops", "eager GiB", f"{first} time", *extras), map(_cells, rows))}


def _cells(row: Row) -> tuple[object, ...]:
    """Peaks in percent of eager's, and in brackets their bounds."""
    share = 100 / row["eager_bytes"]
    lowest = [f"{share * one['peak_bytes']:.1f} ({share * one['bound_bytes']:.1f})" for one in row["lowest"]]
    return MODELS[row["model"]], row["ops"], f"{row['eager_bytes'] / GIB:.1f}", *lowest


def _front(rows: Sequence[Row]) -> dict[str, str]:
    """On how many steps every trade of the other planners is reached."""
    models = {row["model"] for row in rows}
    behind = {row["model"] for row in rows if row["ahead"]}
    return {"steps": str(len(models)), "reached": str(len(models - behind))}
