"""What does not fit: the table, as the benchmark prints it too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.lib.markdown import table
from bench.page.results import Results

COLUMNS = ("budget", "step", "seconds", "compute", "transfers", "of the larger", "stored GB", "loaded GB",
           "process GiB")  # fmt: skip


def cells(result: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    """A row for each step of one budget."""
    for index, row in enumerate(result["rows"]):
        larger = max(row["compute_seconds"], row["transfer_seconds"])
        yield (
            result["budget"], index + 1, f"{row['seconds']:.1f}", f"{row['compute_seconds']:.1f}",
            f"{row['transfer_seconds']:.1f}", f"{row['seconds'] / larger:.2f}", f"{row['stored_bytes'] / 1e9:.1f}",
            f"{row['loaded_bytes'] / 1e9:.1f}", f"{row['process_bytes'] / 2**30:.2f}",
        )  # fmt: skip


def values(results: Results) -> dict[str, str]:
    return results.written(
        "step_swap",
        lambda found: {
            "parameters": f"{found[0]['parameters'] / 1e9:.2f} billion",
            "table": table(COLUMNS, [row for result in found for row in cells(result)]),
        },
    )
