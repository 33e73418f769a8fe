"""Packing: the hard problems of minimalloc, and large generated ones."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from bench.lib.markdown import table
from bench.page.amounts import MIB
from bench.page.results import Results

Row = dict[str, Any]


def values(results: Results) -> dict[str, str]:
    found = results.written("packing_table", lambda rows: _hard(rows) | {"scale": _scale(rows)})
    return {**found, "permutations": str(results["packing_table"].options["permutations"])}


def _hard(answers: Sequence[Row]) -> dict[str, str]:
    problems = _by(("problem",), _of(answers, "challenging"))
    medians = {name: statistics.median(row["cpu_seconds"] for row in rows) for (name,), rows in problems.items()}
    slowest = max(medians, key=medians.__getitem__)
    return {
        "packed": f"{sum(map(_all_fit, problems.values()))} of {len(problems)}",
        "hard_sum": f"{sum(medians.values()):.2f}",
        "hard_slowest": f"{slowest} with {medians[slowest]:.2f}",
    }


def _of(answers: Sequence[Row], section: str) -> list[Row]:
    """Ours."""
    return [row for row in answers if (row["section"], row["packer"]) == (section, "lowtide")]


def _all_fit(rows: Sequence[Row]) -> bool:
    return all(row["arena"] is not None and row["arena"] <= row["capacity"] for row in rows)


def _scale(answers: Sequence[Row]) -> str:
    """The worst of the seeds in each column."""
    rows = []
    for (family, size), found in _by(("family", "asked"), [row | _asked(row) for row in _of(answers, "scale")]).items():
        worst = max(row["arena"] / row["most_alive"] for row in found)
        seconds = max(row["seconds"] for row in found)
        memory = max(row["peak_bytes"] for row in found) / MIB
        rows.append((family, f"{size:,}", f"{worst:.6f}", f"{seconds:.2f}", f"{memory:.0f}"))
    return table(("family", "buffers", "arena / bound", "seconds", "memory MiB"), rows)


def _asked(row: Row) -> Row:
    """Problems are named by family, size and seed."""
    family, size, _ = row["problem"].split("-")
    return {"family": family, "asked": int(size)}


def _by(names: tuple[str, ...], rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found
