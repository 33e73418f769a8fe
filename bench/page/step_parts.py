"""Steps in parts: the table, as the benchmark prints it too."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from bench.lib.markdown import table
from bench.page.results import Results

MIB = 2**20
COLUMNS = ("step", "side", "peak MiB", "of eager", "ms", "of eager", "ops in parts", "of them exact", "difference")


def cells(rows: list[dict[str, Any]]) -> Iterator[tuple[object, ...]]:
    """A line for each side of one step; eager is the first."""
    eager = rows[0]
    for row in rows:
        peak = row["peak_bytes"]
        in_parts = ("" if row is eager else row["operators_in_parts"], row["exact"] if row["side"] == "exact" else "")
        yield (
            row["step"], row["side"], f"{peak / MIB:.0f}", f"{peak / eager['peak_bytes']:.0%}",
            f"{row['seconds'] * 1e3:.0f}", f"{row['seconds'] / eager['seconds']:.2f}", *in_parts,
            "0" if row["difference"] == 0 else f"{row['difference']:.0e}",
        )  # fmt: skip


def values(results: Results) -> dict[str, str]:
    return results.written(
        "step_parts",
        lambda rows: {
            "table": table(
                COLUMNS, [line for _, step in groupby(rows, itemgetter("step")) for line in cells(list(step))]
            ),
        },
    )
