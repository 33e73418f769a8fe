"""Orders and layouts of the zoo's steps, planned on paper."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from bench.page.amounts import GIB
from bench.page.results import Results

KINDS = ("order", "plan")  # without and with reuse
Row = dict[str, Any]


def values(results: Results) -> dict[str, str]:
    return {
        **results.written("order_zoo", _zoo),
        **results.written("packing_zoo", _packing, "packing_"),
        **results.written("order_scale", _scale, "scale_"),
        **results.written("order_irregular", _irregular, "irregular_"),
    }


def _zoo(rows: Sequence[Row]) -> dict[str, str]:
    gap = max(row[f"{kind}_arena_bytes"] / row[f"{kind}_bound_bytes"] - 1 for row in rows for kind in KINDS)
    alone, with_reuse = (sum(row[f"{kind}_peak_bytes"] == row[f"{kind}_bound_bytes"] for row in rows) for kind in KINDS)
    slowest = max(rows, key=_seconds)
    return {
        "steps": str(len(rows)),
        "proven": f"{alone} alone, and {with_reuse} together with reuse of operands' bytes",
        "gap": f"{100 * gap:.3f} %",
        "seconds": f"{_seconds(slowest):.1f} s ({slowest['model']} at batch {slowest['batch']})",
        **{
            f"{kind}_{'one' if batch_one else 'larger'}": _of_program(rows, kind, batch_one)
            for kind in KINDS
            for batch_one in (True, False)
        },
    }


def _seconds(row: Row) -> float:
    return max(row["order_seconds"], row["plan_seconds"])


def _of_program(rows: Sequence[Row], kind: str, batch_one: bool) -> str:
    """The peak beside that of program order, where gradients are dropped and Adam is as it comes."""
    ratios = [
        row[f"{kind}_peak_bytes"] / row["program_bytes"]
        for row in rows
        if (row["optimizer"], row["gradients"], row["batch"] == 1) == ("adam", "dropped", batch_one)
    ]
    return f"{statistics.geometric_mean(ratios):.2f}"


def _packing(rows: Sequence[Row]) -> dict[str, str]:
    gaps = [1 - row["peak_bytes"] / row["arena_bytes"] for row in rows]
    return {"fragmentation": f"{100 * max(gaps):.2f} %"}


def _scale(rows: Sequence[Row]) -> dict[str, str]:
    """Of the largest graphs."""
    largest = [row for row in rows if row["ops"] >= max(other["ops"] for other in rows) // 2]
    return {
        "gap": f"{100 * max(row['arena_bytes'] / row['bound_bytes'] - 1 for row in largest):.1f} %",
        "seconds": f"{max(row['plan_seconds'] for row in largest):.0f} s",
        "memory": f"{max(row['memory_bytes'] for row in largest) / GIB:.1f} GiB",
    }


def _irregular(rows: Sequence[Row]) -> dict[str, str]:
    proven = sum(row["best_bytes"] == row["bound_bytes"] for row in rows)
    return {"proven": f"{proven} of {len(rows)}"}
