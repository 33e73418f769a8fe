"""The models of the papers: the table of docs/zoo.md, as the benchmark prints it too."""

from __future__ import annotations

from typing import Any

from bench.lib.markdown import table
from bench.page.results import Results

MIB = 2**20
COLUMNS = (
    "model", "parameters M", "paper", "batch", "side or length", "dtype",
    "ops", "buffers", "resident MiB", "peak MiB", "bound MiB",
    "live MiB", "reserved MiB", "expandable MiB", "seconds",
)  # fmt: skip


def cells(row: dict[str, Any]) -> list[object]:
    mib = {name: f"{row[f'{name}_bytes'] / MIB:.1f}" for name in ("resident", "peak", "bound", "live")}
    return [
        row["model"], f"{row['parameters'] / 1e6:.1f}", row["paper"], row["batch"], row["extent"], row["dtype"],
        row["ops"], row["buffers"], *mib.values(),
        f"{row['reserved_bytes'] / MIB:.0f}", f"{row['expandable_bytes'] / MIB:.0f}", f"{row['seconds']:.1f}",
    ]  # fmt: skip


def values(results: Results) -> dict[str, str]:
    return results.written("zoo_held", lambda rows: {"table": table(COLUMNS, map(cells, rows))})
