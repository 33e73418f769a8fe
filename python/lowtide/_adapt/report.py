"""What an adapted model did, batch by batch: figures, a line of progress, and a picture."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import _core

_REMEMBERED = 20_000  # batches; the oldest are forgotten


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One batch. Bytes are of everything that counts against the budget."""

    number: int
    extents: tuple[int, ...]
    dropped: int  # blocks
    blocks: int
    predicted_bytes: int | None  # None: nothing like it was seen before
    peak_bytes: int
    budget_bytes: int
    sheltered: bool
    collected: bool
    planning_us: float

    @property
    def error(self) -> float | None:
        """How far the prediction was off, as a share of the peak."""
        return None if self.predicted_bytes is None else abs(self.predicted_bytes - self.peak_bytes) / self.peak_bytes

    def line(self) -> str:
        """batch 120 [8, 384]: 3 of 12 blocks dropped, predicted 812.0 MiB, was 811.2 MiB of 1.0 GiB"""
        predicted = "unknown" if self.predicted_bytes is None else _core.format_bytes(self.predicted_bytes)
        was, budget = _core.format_bytes(self.peak_bytes), _core.format_bytes(self.budget_bytes)
        return (
            f"batch {self.number} {list(self.extents)}: {self.dropped} of {self.blocks} blocks dropped, "
            f"predicted {predicted}, was {was} of {budget}"
        )


class History:
    """The batches so far."""

    def __init__(self) -> None:
        self.records: deque[BatchRecord] = deque(maxlen=_REMEMBERED)
        self.batches = 0

    def add(self, record: BatchRecord) -> None:
        """Remembers one more."""
        self.records.append(record)
        self.batches += 1

    def stats(self) -> dict[str, float | int]:
        """Figures over the batches that are remembered; errors are of those that were predicted."""
        records = list(self.records)
        errors = [record.error for record in records if record.error is not None]
        micros = sorted(record.planning_us for record in records)
        return {
            "batches": self.batches,
            "sheltered": sum(record.sheltered for record in records),
            "collected": sum(record.collected for record in records),
            "dropped_share": _mean([record.dropped / max(record.blocks, 1) for record in records]),
            "over_budget": sum(record.peak_bytes > record.budget_bytes for record in records),
            "peak_bytes": max((record.peak_bytes for record in records), default=0),
            "mean_error": _mean(errors),
            "planning_us_median": micros[len(micros) // 2] if micros else 0.0,
            "planning_us_p99": micros[min(len(micros) - 1, len(micros) * 99 // 100)] if micros else 0.0,
        }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def draw(records: Iterable[BatchRecord], path: str | Path) -> None:
    """Writes a picture (SVG) of memory by batch: peaks as bars, predictions as dots, the budget as a line."""
    shown = list(records)
    if not shown:
        raise ValueError("there is nothing to draw: no batch has been trained on yet")
    width, height, left, top = 960, 320, 80, 24
    highest = max(max(r.peak_bytes, r.predicted_bytes or 0, r.budget_bytes) for r in shown) * 1.05
    step = width / len(shown)

    def y(count: float) -> float:
        return top + height * (1 - count / highest)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 20} {top + height + 40}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{left + width + 20}" height="{top + height + 40}" fill="white"/>',
    ]
    for i, record in enumerate(shown):
        fill = "#d62728" if record.peak_bytes > record.budget_bytes else "#aec7e8" if record.sheltered else "#1f77b4"
        bar = height * record.peak_bytes / highest
        parts.append(
            f'<rect x="{left + i * step:.2f}" y="{y(record.peak_bytes):.2f}" width="{max(step * 0.9, 0.3):.2f}" '
            f'height="{bar:.2f}" fill="{fill}"><title>{record.line()}</title></rect>'
        )
        if record.predicted_bytes is not None:
            parts.append(
                f'<circle cx="{left + (i + 0.45) * step:.2f}" cy="{y(record.predicted_bytes):.2f}" '
                f'r="{min(2.0, max(step / 3, 0.5)):.2f}" fill="#ff7f0e"/>'
            )
    budget = shown[-1].budget_bytes
    parts.append(
        f'<line x1="{left}" x2="{left + width}" y1="{y(budget):.2f}" y2="{y(budget):.2f}" stroke="black" '
        'stroke-dasharray="6 3"/>'
    )
    for count, name in ((budget, "budget"), (highest / 2, ""), (0, "")):
        parts.append(
            f'<text x="{left - 6}" y="{y(count) + 4:.2f}" text-anchor="end">{_core.format_bytes(int(count))}</text>'
        )
        if name:
            parts.append(f'<text x="{left + width - 4}" y="{y(count) - 4:.2f}" text-anchor="end">{name}</text>')
    parts.append(
        f'<text x="{left}" y="{top + height + 28}">batches {shown[0].number} to {shown[-1].number}: peak (bars; light '
        "while sheltered, red above the budget), predicted (dots)</text></svg>"
    )
    Path(path).write_text("\n".join(parts))
