"""`lowtide.snapshot`: what a memory snapshot of PyTorch says, and what a packed arena would need instead."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .._base.whole_files import write_whole
from .._core import format_bytes
from .._report.source_lines import text_of
from ..errors import InvalidSnapshotError
from .figures import Figures
from .page import excerpt_of, lead, notes, page_of, shown
from .planned import Planned
from .recorded import Device, devices_of, read_devices

_SHOWN = 10


class Snapshot:
    """One device of a snapshot. `print` it, or use `figures()`; `save` writes a page, `graph` is for other commands."""

    def __init__(self, figures: Figures, name: str) -> None:
        self._figures = figures
        self._name = name

    @property
    def graph(self) -> Any:
        """The trace as a `Graph`: an operator for each allocation, which reads what is freed before the next one."""
        return Planned(self._figures).graph

    @property
    def html(self) -> str:
        """The page: one file that loads nothing."""
        return page_of(self._figures, f"Memory of {self._name}")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page, wholly or not at all."""
        write_whole(Path(path), self.html)

    def figures(self, top: int = _SHOWN) -> dict[str, Any]:
        """Bytes now and at their peaks, the packed arena and its bound, and the `top` lines that hold the peak."""
        return self._figures.to_dict(top)

    def __str__(self) -> str:
        return self.text()

    def text(self, top: int = _SHOWN) -> str:
        """The figures in words, with the `top` lines that hold the peak."""
        figures = self._figures
        peak = figures.peak_bytes
        shown_bytes = {
            name: format_bytes(value) for name, value in self.figures(top).items() if name.endswith("_bytes")
        }
        rows = [
            ("device", f"cuda:{figures.device.index}, {len(figures.device.events)} events"),
            ("reserved", "{peak_reserved_bytes} at most, {reserved_bytes} in the end"),
            ("in use", "{peak_requested_bytes} at most, {requested_bytes} in the end"),
            ("packed", "{packed_bytes} in one arena; no arena is below {packed_bound_bytes}"),
            ("cost", "{fragmentation_bytes} reserved beyond a packed arena" + self._share()),
        ]
        lines = [f"{name:<9} {said.format(**shown_bytes)}" for name, said in rows]
        lines += [f"note      {note}" for note in notes(figures)]
        lines += ["", f"peak      {format_bytes(peak)} at allocation {figures.peak_at} of {figures.lives.allocations}"]
        for holder in figures.holders[:top]:
            count = "1 block" if holder.count == 1 else f"{holder.count} blocks"
            before = ", in use before the recording began" if holder.is_from_before else ""
            share = f"{100 * holder.bytes / max(1, peak):5.1f} %"
            lines.append(f"{format_bytes(holder.bytes):>11} {share}  {shown(holder.place)}: {count}{before}")
            if line := text_of(holder.place.source):
                lines.append(f"{'':21}{line}")
        return "\n".join(lines)

    def _share(self) -> str:
        reserved = self._figures.peak_reserved_bytes
        return f", {100 * self._figures.fragmentation_bytes / reserved:.1f} % of all that was" if reserved else ""

    def _repr_html_(self) -> str:
        return excerpt_of(self._figures, f"Memory of {self._name}")

    def __repr__(self) -> str:
        return f"<Snapshot: {lead(self._figures)}>"


def snapshot(
    source: str | os.PathLike[str] | dict[str, Any], *, device: int | None = None, effort: float = 1.0
) -> Snapshot:
    """What a memory snapshot of PyTorch says: of the device with the most memory, or of `device`.

    `source` is the path of what `torch.cuda.memory._dump_snapshot` wrote, or what `torch.cuda.memory._snapshot()` gave.
    A file is read as data: nothing in it is ever run. With a history, as `torch.cuda.memory._record_memory_history()`
    records it, all blocks are packed into one arena, each for as long as it was in use. `effort` scales the work of
    packing. Raises `InvalidSnapshotError`.

        lowtide.snapshot("trace.pickle").save("page.html")
        print(lowtide.snapshot(torch.cuda.memory._snapshot()))
    """
    if not 0 < effort < 1e6:
        raise ValueError(f"effort: expected a factor above 0, got {effort!r}")
    name, found = ("a snapshot", devices_of(source)) if isinstance(source, dict) else _read(Path(source))
    if not found:
        raise InvalidSnapshotError(f"{name}: no device has any memory there")
    if device is not None:
        found = [one for one in found if one.index == device]
        if not found:
            raise ValueError(f"device: expected one that the snapshot tells of, got {device}")
    return Snapshot(max((Figures(one, effort) for one in found), key=lambda one: one.peak_reserved_bytes), name)


def _read(path: Path) -> tuple[str, list[Device]]:
    return path.name, read_devices(path)
