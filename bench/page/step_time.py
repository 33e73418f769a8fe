"""Step time: the table, as the benchmark prints it too."""

from __future__ import annotations

from typing import Any

from bench.lib.markdown import table
from bench.page.results import Results

COLUMNS = ("optimizer", "threads", "batch", "eager ms", "planned ms", "planned / eager")


def cells(row: dict[str, Any]) -> tuple[object, ...]:
    eager, planned = row["eager_ms"], row["planned_ms"]
    shape = f"{row['batch']} x {row['length']}"
    return row["optimizer"], row["threads"], shape, f"{eager:.2f}", f"{planned:.2f}", f"{planned / eager:.2f}"


def values(results: Results) -> dict[str, str]:
    return results.written("step_time", lambda rows: {"table": table(COLUMNS, map(cells, rows))})
