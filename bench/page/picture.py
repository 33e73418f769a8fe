"""The picture of the README: what it shows, in figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.lib import markdown
from bench.page.results import Results

GIB = 2**30


def table(curves: Sequence[dict[str, Any]]) -> str:
    """The first is eager's."""
    peak, time = curves[0]["peak_bytes"], curves[0]["time_ns"]
    rows = [
        (
            curve["name"], f"{curve['peak_bytes'] / GIB:.2f}", f"{100 * curve['peak_bytes'] / peak:.0f} %",
            f"{curve['time_ns'] / 1e6:.1f}", f"{100 * curve['time_ns'] / time:.1f} %",
        )
        for curve in curves
    ]  # fmt: skip
    return markdown.table(("", "peak GiB", "of eager", "milliseconds", "of eager"), rows)


def values(results: Results) -> dict[str, str]:
    return results.written("step_picture", lambda figures: {"table": table(figures["curves"])})
