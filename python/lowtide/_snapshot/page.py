"""The page of a snapshot: the charts of `lowtide report`, of the allocator beside a packed arena."""

from __future__ import annotations

from .._base.graph_file import GraphFile
from .._core import format_bytes
from .._report.contents import Contents
from .._report.document import paragraphs, table, text
from .._report.page import AboutCharts, Section, page_with
from .._report.picture import Curve, drawn
from .._report.source_lines import short, text_of
from .._report.timeline import timeline_of
from .figures import Figures, Holder
from .places import Place
from .planned import BEFORE, Planned

_MOST_HOLDERS = 40
_BANDS = 7  # as many as the page has colors for
_OTHERS = "other lines"


def page_of(figures: Figures, title: str) -> str:
    """One file of HTML that loads nothing."""
    about = f"A step is an allocation here, of {figures.lives.allocations}; times are those of the recording."
    about_figures = _figures(figures) + paragraphs(notes(figures)) + _in_both_themes(figures)
    charts = AboutCharts(
        peaks=paragraphs([about]),
        map_note=text("Segments that PyTorch had at any time lie side by side there."),
        live_title="Bytes over the recording",
        time_name="time",
        first_unit="step",  # most of a recording may be waiting
    )
    return page_with(
        _contents(figures, title),
        text(lead(figures)),
        [Section("figures", "Figures", about_figures)],
        charts,
        [Section("holders", "Who holds the peak", _holders(figures))],
    )


def excerpt_of(figures: Figures, title: str) -> str:
    """A part that needs neither script nor style of its own, for a cell of a notebook."""
    head = f"<p><b>{text(title)}</b><br>{text(lead(figures))}</p>"
    return head + _reserved(figures) + _figures(figures) + paragraphs(notes(figures)) + _holders(figures)


def _contents(figures: Figures, title: str) -> Contents:
    planned = Planned(figures)
    file = GraphFile(planned.graph)
    names, band_of = _bands(figures)
    return Contents(
        title,
        planned.graph,
        file,
        band_of,
        timeline_of("PyTorch's allocator", planned.graph, file, planned.as_it_was()),
        timeline_of("packed", planned.graph, file, planned.packed()),
        names,
    )


def _bands(figures: Figures) -> tuple[list[str], list[int]]:
    """The largest holders of the peak, each a band, and all others; by life the number of its band."""
    lives = figures.lives
    largest = [holder.place for holder in figures.holders if not holder.is_from_before][: _BANDS - 2]
    band_by_place = {place: band for band, place in enumerate(largest, 1)}
    names = [BEFORE.op, *map(shown, largest), _OTHERS]
    band_of = [
        0 if lives.begins_before and life.begin == 0 else band_by_place.get(life.place, len(largest) + 1)
        for life in lives.lives
    ]
    return names, band_of


def shown(place: Place) -> str:
    """In a line."""
    return (
        " in ".join(filter(None, (place.op, place.function))) + (f", {short(place.source)}" if place.source else "")
        or "no line was recorded"
    )


def lead(figures: Figures) -> str:
    """The snapshot in a sentence."""
    reserved, packed = figures.peak_reserved_bytes, figures.packed.arena_bytes
    said = f"PyTorch reserved {format_bytes(reserved)}; one packed arena needs {format_bytes(packed)}"
    if reserved:
        said += f", {100 * packed / reserved:.1f} % of that"
    return said + "."


def notes(figures: Figures) -> list[str]:
    """What a reader has to know of it."""
    said = []
    if not figures.device.events:
        said.append(
            "The snapshot has no history, so what is in use now is all there is to pack: "
            "torch.cuda.memory._record_memory_history() before the first step records one."
        )
    elif figures.lives.begins_before:
        said.append(
            "Some memory was in use before the recording began. What of it was freed later is counted from the "
            "beginning."
        )
    if failures := [event for event in figures.device.events if event.action == "oom"]:
        times = "once" if len(failures) == 1 else f"{len(failures)} times; the last time"
        asked, free = format_bytes(failures[-1].size), format_bytes(failures[-1].address)
        said.append(f"The device ran out of memory {times}: {asked} were asked for, {free} of the device were free.")
    return said


def _figures(figures: Figures) -> str:
    packed = figures.packed
    rows = [
        ["reserved from the device", format_bytes(figures.peak_reserved_bytes), format_bytes(figures.reserved_bytes)],
        ["in use, as asked for", format_bytes(figures.peak_bytes), format_bytes(figures.requested_bytes)],
        ["in use, rounded up by the allocator", "", format_bytes(figures.rounded_bytes)],
        ["one packed arena", format_bytes(packed.arena_bytes), ""],
        ["bound: no arena is smaller", format_bytes(packed.bound_bytes), ""],
        ["reserved beyond a packed arena", format_bytes(figures.fragmentation_bytes), ""],
    ]
    return table("Figures of the snapshot", ["", "at most", "at the end"], rows, (1, 2))


def _in_both_themes(figures: Figures) -> str:
    """The style of the page shows one of them."""
    return "".join(f'<figure class="if-{theme}">{_reserved(figures, theme)}</figure>' for theme in ("light", "dark"))


def _reserved(figures: Figures, theme: str = "light") -> str:
    """Reserved and in use, over the allocations."""
    steps = list(range(figures.lives.allocations))
    curves = [
        Curve("reserved", steps, figures.lives.reserved, len(steps)),
        Curve("in use", steps, figures.alive, len(steps)),
    ]
    return drawn(curves, 0, "Reserved and in use", theme, timed=False, across="allocations", floor="")


def _holders(figures: Figures) -> str:
    peak = figures.peak_bytes
    rows = [
        [
            _place(holder),
            format_bytes(holder.bytes),
            f"{100 * holder.bytes / peak:.1f} %" if peak else "",
            str(holder.count),
        ]
        for holder in figures.holders[:_MOST_HOLDERS]
    ]
    rest = figures.holders[_MOST_HOLDERS:]
    if rest:
        bytes = sum(holder.bytes for holder in rest)
        rows.append([f"{len(rest)} more places", format_bytes(bytes), f"{100 * bytes / peak:.1f} %", ""])
    at = f"{format_bytes(peak)} are in use at allocation {figures.peak_at} of {figures.lives.allocations}."
    return paragraphs([at]) + table("Lines that hold the peak", ["what", "bytes", "share", "blocks"], rows, (1, 2, 3))


def _place(holder: Holder) -> str:
    line = text_of(holder.place.source)
    code = f'<code class="line">{text(line)}</code>' if line else ""
    before = '<br><span class="place">in use before the recording began</span>' if holder.is_from_before else ""
    return f"{text(shown(holder.place))}{before}{code}"
