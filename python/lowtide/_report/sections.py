"""The sections of a page that need no script: figures, changes, the front, the holders of the peak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .._core import format_bytes
from ..versions import __version__
from . import changes
from .contents import Contents, Holders
from .document import paragraphs, table, text
from .front_picture import front_picture
from .picture import curve_of, drawn
from .source_lines import short, text_of

_MOST_CHANGES = 40


def lead(contents: Contents) -> str:
    """The page in a sentence."""
    eager, planned = contents.graph.eager_bytes, contents.planned.total_bytes
    said = f"Eager PyTorch needs {format_bytes(eager)}; the plan {format_bytes(planned)}"
    if eager:
        said += f", {100 * planned / eager:.1f} % of that"
    before, after = contents.eager.plan.time_ns, contents.planned.plan.time_ns
    if before and after > before:
        said += f", in {100 * (after - before) / before:.1f} % more time of its operators"
    return text(said + ".")


def figures(contents: Contents) -> str:
    """A row per figure, of the step in program order and as planned."""
    plans = [contents.eager, contents.planned]
    rows: list[list[str]] = [
        ["resident and arena", *(format_bytes(one.total_bytes) for one in plans)],
        ["resident: there all the time", *(format_bytes(one.plan.resident_bytes) for one in plans)],
        ["arena: highest address of the step", *(format_bytes(one.plan.arena_bytes) for one in plans)],
        ["peak: most bytes of the arena alive at once", *(format_bytes(one.plan.peak_bytes) for one in plans)],
        ["fragmentation of the arena", *(f"{100 * one.plan.fragmentation:.1f} %" for one in plans)],
        ["bound: no plan as slow or faster has a smaller arena", "", format_bytes(contents.planned.plan.bound_bytes)],
        ["operators' time, with waits for transfers", *(_time(one.plan.time_ns) for one in plans)],
        ["steps", *(str(len(one.order)) for one in plans)],
    ]
    away = zip(
        contents.tiers, contents.planned.plan.tier_arena_bytes, contents.planned.plan.tier_resident_bytes, strict=True
    )
    rows += [[text(f"outside, in {tier}"), "", format_bytes(arena + resident)] for tier, arena, resident in away]
    return table("Figures of the step", ["", *(one.name for one in plans)], rows, (1, 2))


def _time(nanos: int) -> str:
    return f"{nanos / 1e6:.3f} ms" if nanos else "unknown"


def notes(contents: Contents) -> str:
    """What a reader may wonder about."""
    graph, eager = contents.graph, contents.eager
    said = [f"The graph has {graph.num_ops} operators and {graph.num_buffers} buffers."]
    in_order = eager.plan.resident_bytes + eager.plan.peak_bytes
    if in_order != graph.eager_bytes:
        said.append(
            f"Eager PyTorch needs {format_bytes(graph.eager_bytes)}, of which budgets are shares: there gradients "
            f"outlive the step, and regions run again as checkpoints do. Program order alone needs "
            f"{format_bytes(in_order)}."
        )
    if contents.planned.waits_ns > 0:
        said.append(f"Of the plan's time its operators wait {_time(contents.planned.waits_ns)} for transfers.")
    return paragraphs(said)


def peaks(contents: Contents) -> str:
    """What is alive at the peak, by band."""
    columns = [_at_peak(contents.eager_by_band), _at_peak(contents.planned_by_band)]
    names = ("peak, eager", "peak, planned")
    rows = [
        [
            f'<span class="swatch" data-band="{band}"></span>{text(name)}',
            *(format_bytes(column[1][band]) for column in columns),
        ]
        for band, name in enumerate(contents.band_names)
        if any(column[1][band] for column in columns)
    ]
    rows.append(["together", *(format_bytes(sum(column[1])) for column in columns)])
    rows.append(["at step", *(str(column[0]) for column in columns)])
    return table("Alive at the peak", ["role", *names], rows, (1, 2))


def _at_peak(by_band: list[list[int]]) -> tuple[int, list[int]]:
    """The first step with the most bytes, and what is alive there."""
    totals = [sum(column) for column in zip(*by_band, strict=True)]
    if not totals:
        return 0, [0] * len(by_band)
    step = totals.index(max(totals))
    return step, [band[step] for band in by_band]


def map_note(contents: Contents) -> str:
    """What the map leaves out."""
    resident = contents.planned.plan.resident_bytes
    return text(f"Resident buffers, {format_bytes(resident)}, lie outside of it.")


def picture(contents: Contents, theme: str = "light") -> str:
    """Both curves over each other, for where there are no scripts."""
    plans = [contents.eager, contents.planned]
    timed = all(sum(one.times) for one in plans)
    across = "milliseconds of its operators" if timed else "steps"
    curves = [curve_of(one, timed=timed) for one in plans]
    resident = contents.planned.plan.resident_bytes
    return drawn(curves, resident, contents.title, theme, timed=timed, across=across)


def changed(contents: Contents) -> str:
    """What runs again, leaves memory or runs in parts, and why."""
    if not contents.changes:
        return paragraphs(["Every operator runs once and whole, and nothing leaves memory."])
    peak = contents.planned.plan.peak_bytes + contents.planned.plan.resident_bytes
    why = (
        f"Why: at most {format_bytes(peak)} are alive at once. The last column says how many would be at least, had "
        "the buffers of that row alone stayed whole in memory."
    )
    rows = []
    for change, left_out in changes.biggest(contents.changes, _MOST_CHANGES):
        if change is None:
            rows.append([text(f"and {left_out} more rows"), "", "", "", "", ""])
            continue
        rows.append(
            [
                text(change.kind), _place(change.op, change.source, change.modules), _how(change),
                format_bytes(change.bytes), _time(change.time_ns) if change.time_ns else "",
                format_bytes(change.kept_bytes) if change.bytes else "",
            ]
        )  # fmt: skip
    columns = ["", "what", "how", "bytes", "more time", "alive if it stayed"]
    return paragraphs([why], "why") + table("Changes of the plan", columns, rows, (3, 4, 5))


def _how(change: changes.Change) -> str:
    if change.kind == changes.AGAIN:
        said = f"{change.count} more runs" if change.count != 1 else "1 more run"
    elif change.kind == changes.SWAPPED:
        said = f"{change.count} transfers to and from {', '.join(sorted(change.tiers))}"
    else:
        said = f"{change.count} runs of parts, up to {change.parts} of an operator" if change.count else "made in parts"
    return f'<span class="how">{text(said)}</span>'


def _place(op: str, source: str, modules: str) -> str:
    """An op, where it is, and the line itself."""
    where = ", ".join(filter(None, [short(source), modules and f"in {modules}"]))
    line = text_of(source)
    shown = f'<code class="line">{text(line)}</code>' if line else ""
    return f'<code>{text(op)}</code> <span class="place">{text(where)}</span>{shown}'


def front(contents: Contents) -> str:
    """The front as a picture and as a table."""
    found = contents.front
    if found is None:
        return paragraphs(
            ['The operators of this graph have no times: capture it with a device, such as device="A100".']
        )
    if len(found.trades) < 2:
        (_, alive), (_, bound) = found.trades[0], found.bounds[0]
        said = f"Nothing was found that is worth running again: {format_bytes(alive)} are alive at once"
        return paragraphs([f"{said}, and without swaps and parts, {format_bytes(bound)} at least."])
    said = (
        "Solid: the most bytes alive at once, resident ones included, for ever more operators that run again. Dashed: "
        "the bound; no plan without swaps and parts that recomputes as long or less has fewer. Dots: the plans of this "
        "page."
    )
    plans = [contents.eager, contents.planned]
    every = max(1, len(found.trades) // 10)
    rows = [
        [_time(nanos), format_bytes(alive), format_bytes(bound)]
        for (nanos, alive), (_, bound) in list(zip(found.trades, found.bounds, strict=True))[::every]
    ]
    points = table("Points of the front", ["operators' time", "alive at once", "bound"], rows, (0, 1, 2))
    return (
        paragraphs([said], "why")
        + f"<figure>{front_picture(found, plans)}</figure>"
        + f"<details><summary>Points of the front</summary>{points}</details>"
    )


def holders(contents: Contents) -> str:
    """Of the plan, and of eager beside it."""
    planned = _held(contents.planned_holders, "as planned")
    eager = _held(contents.eager_holders, "in eager PyTorch")
    return f"{planned}<details><summary>In eager PyTorch</summary>{eager}</details>"


def _held(held: Holders, how: str) -> str:
    if held.refused:
        return paragraphs([held.refused])
    fields = held.fields
    peak = fields["peak_op"]
    if peak is None:
        return paragraphs(["The step has no operators."])
    total = fields["total_bytes"]
    at = text(f"{format_bytes(total)} at step {peak['step']} of {fields['steps']}, at")
    where = f"<p>{at} {_place(peak['op'], peak['source'], peak['module'])}</p>"
    rows = list(_holder_rows(fields["holders"], total))
    rest = total - sum(holder["bytes"] for holder in fields["holders"])
    if rest:
        rows.append([text(f"{fields['groups'] - len(fields['holders'])} smaller groups"), *_share(rest, total), "", ""])
    columns = ["kind", "bytes", "share", "made by", "needed until"]
    return where + table(f"Who holds the peak {how}", columns, rows, (1, 2))


def _holder_rows(found: list[dict[str, Any]], total: int) -> Iterator[list[str]]:
    for holder in found:
        what = holder["kind"] + (", in use at the peak" if holder["in_use"] else "")
        shape = f"{holder['dtype']} [{', '.join(map(str, holder['shape']))}]" if holder["dtype"] else holder["name"]
        if holder["count"] > 1:
            shape = f"{holder['count']} of up to {format_bytes(holder['largest_bytes'])}, {shape}"
        made, last = holder["made_by"], holder["last_use"]
        yield [
            f'{text(what)}<br><span class="place">{text(shape)}</span>',
            *_share(holder["bytes"], total),
            _place(made["op"], made["source"], holder["modules"] or made["module"]) if made else "",
            f"step {last['step']}: {_place(last['op'], last['source'], last['module'])}" if last else "the end",
        ]


def _share(part: int, total: int) -> tuple[str, str]:
    return format_bytes(part), f"{100 * part / total:.1f} %" if total else ""


def origin(contents: Contents) -> str:
    """How all this came about."""
    made = contents.provenance
    how = [
        f"order {made['order']}" if made.get("order") else "",
        f"layout {made['layout']}" if made.get("layout") else "",
    ]
    how.append(f"recompute {made['recompute']}" if made.get("recompute") else "")
    said = ", ".join(filter(None, how))
    return text(
        f"Lowtide {__version__}. Graph {contents.graph.fingerprint}. Both plans were accepted by verify. "
        f"Planned: {said}."
        if said
        else f"Lowtide {__version__}. Graph {contents.graph.fingerprint}."
    )
