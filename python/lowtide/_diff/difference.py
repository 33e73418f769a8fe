"""`lowtide.diff`: what the peak of a step gained and lost from one version of its code to the next."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _core
from .._base.whole_files import write_whole
from .._core import format_bytes
from .._report.report import report
from .._report.source_lines import short, text_of
from .holders import Held, Holder, Peak, Sources, peak_of
from .page import page_of

_SHOWN = 15


@dataclass(frozen=True)
class Row:
    """One holder of the peak, before and after. `line` is the text of the source line, `place` its file and number."""

    kind: str
    op: str
    module: str
    place: str
    line: str
    old_bytes: int
    new_bytes: int

    @property
    def gain_bytes(self) -> int:
        """Above 0 where it grew."""
        return self.new_bytes - self.old_bytes


class Diff:
    """What changed at the peak. `print` it; `.rows`, `.to_dict()` and `.save(path)` have the same for others."""

    def __init__(self, old: Peak, new: Peak, graphs: tuple[_core.Graph, _core.Graph] | None = None) -> None:
        self._old, self._new = old, new
        self._graphs = graphs
        self.old_bytes = old.total_bytes
        self.new_bytes = new.total_bytes
        changed = [row for row in map(_row, *_both(old, new)) if row.gain_bytes]
        self.rows = sorted(_without_moves(changed), key=lambda row: (-abs(row.gain_bytes), row.place, row.op))
        """The largest change first; what did not change is left out."""

    @property
    def gain_bytes(self) -> int:
        """Above 0 where the peak grew: the gains of all rows together."""
        return self.new_bytes - self.old_bytes

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "old_bytes": self.old_bytes,
            "new_bytes": self.new_bytes,
            "gain_bytes": self.gain_bytes,
            "old_peak_at": self._old.at,
            "new_peak_at": self._new.at,
            "rows": [
                {
                    "kind": row.kind,
                    "op": row.op,
                    "module": row.module,
                    "source": row.place,
                    "line": row.line,
                    "old_bytes": row.old_bytes,
                    "new_bytes": row.new_bytes,
                    "gain_bytes": row.gain_bytes,
                }
                for row in self.rows
            ],
        }

    def __str__(self) -> str:
        lines = [
            f"peak      {format_bytes(self.old_bytes)} before, {format_bytes(self.new_bytes)} now: "
            f"{signed(self.gain_bytes)} in eager PyTorch",
            f"at        {self._old.at or 'no operator'} before",
            f"          {self._new.at or 'no operator'} now",
        ]
        for row in self.rows[:_SHOWN]:
            module = f", in {row.module}" if row.module else ""
            lines.append(f"{signed(row.gain_bytes):>12}  {row.kind}: {row.op or 'of the model'}{module}")
            if row.place:
                lines.append(f"{'':14}{row.place}{': ' if row.line else ''}{row.line}")
        left = self.rows[_SHOWN:]
        if left:
            lines.append(f"{signed(sum(row.gain_bytes for row in left)):>12}  {len(left)} smaller changes")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Diff: {signed(self.gain_bytes)}>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a page: the changes, and the pages of both versions side by side. Both graphs are planned for it."""
        if self._graphs is None:
            raise ValueError("a page needs the graphs of both versions; one of them is known by its peak alone")
        old, new = (
            report(graph, title=title).html for graph, title in zip(self._graphs, ("Before", "Now"), strict=True)
        )
        said = f"{format_bytes(self.old_bytes)} before, {format_bytes(self.new_bytes)} now: {signed(self.gain_bytes)}."
        rows = [
            (
                signed(row.gain_bytes),
                format_bytes(row.old_bytes),
                format_bytes(row.new_bytes),
                row.kind,
                row.op,
                ", in ".join(filter(None, (row.place, row.module))),
                row.line,
            )
            for row in self.rows
        ]
        write_whole(Path(path), page_of(f"The peak of the step in eager PyTorch: {said}", rows, old, new))


_NOTHING = Held(0, "", "")


def _both(old: Peak, new: Peak) -> tuple[list[Holder], list[Held], list[Held]]:
    holders = list({**new.held, **old.held})
    return holders, [old.held.get(one, _NOTHING) for one in holders], [new.held.get(one, _NOTHING) for one in holders]


def _row(holder: Holder, before: Held, now: Held) -> Row:
    seen = now if now.place else before
    return Row(holder.kind, holder.op, holder.module, seen.place, seen.text, before.bytes, now.bytes)


def _without_moves(rows: list[Row]) -> list[Row]:
    """What went at one line of a file and came at another, as much of the same, has moved with it."""
    gone: dict[tuple[str, str, str, str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if not row.new_bytes:
            gone[_moving(row, row.old_bytes)].append(row)
    moved: set[int] = set()
    for row in rows:
        if not row.old_bytes and (others := gone[_moving(row, row.new_bytes)]):
            moved |= {id(row), id(others.pop(0))}
    return [row for row in rows if id(row) not in moved]


def _moving(row: Row, size: int) -> tuple[str, str, str, str, int]:
    return row.kind, row.op, row.module, row.place.rpartition(":")[0], size


def signed(amount: int) -> str:
    """ "+1.50 MiB"."""
    return f"{'-' if amount < 0 else '+'}{format_bytes(abs(amount))}"


def diff(old: _core.Graph, new: _core.Graph) -> Diff:
    """What the peak of a step in eager PyTorch gained and lost, by module and source line, from one graph to another.

    Where a line has moved within its file and holds as much as before, nothing has changed.

        print(lowtide.diff(lowtide.Graph.load("before.json"), lowtide.Graph.load("now.json")))
    """
    for graph in (old, new):
        if not isinstance(graph, _core.Graph):
            raise TypeError(f"lowtide.diff: expected two graphs, got {type(graph).__qualname__}")
    before = Sources(short, lambda source: "", as_captured=False)
    now = Sources(short, text_of, as_captured=False)
    return Diff(peak_of(old, before), peak_of(new, now), (old, new))
