"""Step memory: the table, as the benchmark prints it too."""

from __future__ import annotations

from typing import Any

from bench.lib.markdown import table
from bench.page.results import Results

MIB = 2**20
COLUMNS = ("model", "eager MiB", "planned MiB", "planned / eager", "with keep_grads=False", "planned / eager")


def cells(row: dict[str, Any]) -> tuple[object, ...]:
    eager, planned, without = (row[f"{side}_bytes"] / MIB for side in ("eager", "planned", "without_grads"))
    return (
        row["model"], f"{eager:.1f}", f"{planned:.1f}", f"{planned / eager:.2f}", f"{without:.1f}",
        f"{without / eager:.2f}",
    )  # fmt: skip


def values(results: Results) -> dict[str, str]:
    return results.written("step_memory", lambda rows: {"table": table(COLUMNS, map(cells, rows))})
