"""A plan as a trace that chrome://tracing and ui.perfetto.dev show: operators, bytes alive, and what leaves memory.

Times are microseconds. Where the graph has no times, every operator takes one. Operators wait for no transfer here: one
is drawn from the step that it is issued before to the step that it is over before.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, groupby
from typing import Any

from .._base.graph_file import GraphFile
from .._report import bands
from .._report.source_lines import short
from .._report.timeline import Timeline, bytes_by_band

_PROCESS, _OPERATORS = 1, 1  # numbers that a viewer groups by


def chrome_trace(title: str, timeline: Timeline, file: GraphFile, tiers: list[str]) -> dict[str, Any]:
    """The object form of the Trace Event Format; `tiers` are names, by their number in the plan, memory first."""
    timed = sum(timeline.times) > 0
    durations = [nanos / 1000 if timed else 1.0 for nanos in timeline.times]
    begins = list(accumulate(durations, initial=0.0))
    events = [
        {"ph": "M", "name": "process_name", "pid": _PROCESS, "args": {"name": title}},
        {"ph": "M", "name": "thread_name", "pid": _PROCESS, "tid": _OPERATORS, "args": {"name": "operators"}},
        *_operators(timeline, file, begins, durations),
        *_counters(timeline, file, begins),
        *_transfers(timeline, file, begins, tiers),
    ]
    about = {
        "times": "of the graph's operators" if timed else "none: every operator takes 1 us",
        "peak_bytes": timeline.plan.peak_bytes,
        "arena_bytes": timeline.plan.arena_bytes,
        "resident_bytes": timeline.plan.resident_bytes,
    }
    return {"displayTimeUnit": "ms", "traceEvents": events, "otherData": about}


def _operators(
    timeline: Timeline, file: GraphFile, begins: list[float], durations: list[float]
) -> Iterator[dict[str, Any]]:
    seen: set[int] = set()
    for step, (op, (_, part, parts)) in enumerate(zip(timeline.order, timeline.parts, strict=True)):
        fields = file.ops[op]
        again = op in seen and parts == 1
        seen.add(op)
        told = {
            "step": step,
            "source": short(fields.get("source", "")),
            "module": fields.get("module", ""),
            "part": f"{part + 1} of {parts}" if parts > 1 else "",
            "made_bytes": sum(file.buffers[buffer]["size"] for buffer in file.writes(op)) // parts,
            "workspace_bytes": fields.get("workspace", 0),
        }
        yield {
            "ph": "X",
            "name": fields["name"],
            "cat": "again" if again else "backward" if fields.get("backward") else "forward",
            "pid": _PROCESS,
            "tid": _OPERATORS,
            "ts": begins[step],
            "dur": durations[step],
            "args": {name: value for name, value in told.items() if value != ""},
        }


def _counters(timeline: Timeline, file: GraphFile, begins: list[float]) -> Iterator[dict[str, Any]]:
    """Where they change. A counter has the same names all the time."""
    by_band = bytes_by_band(timeline, file, bands.bands_of(file))
    shown = [band for band, alive in enumerate(by_band) if any(alive)]
    columns = enumerate(zip(*(by_band[band] for band in shown), strict=True))
    for alive, steps in groupby(columns, key=lambda column: column[1]):
        step, _ = next(steps)
        yield _counter(begins[step], {bands.NAMES[band]: size for band, size in zip(shown, alive, strict=True)})
    yield _counter(begins[-1], {bands.NAMES[band]: 0 for band in shown})


def _counter(at: float, bytes: dict[str, int]) -> dict[str, Any]:
    return {"ph": "C", "name": "bytes alive", "pid": _PROCESS, "ts": at, "args": bytes}


def _transfers(timeline: Timeline, file: GraphFile, begins: list[float], tiers: list[str]) -> Iterator[dict[str, Any]]:
    plan = timeline.plan
    buffers, where = plan.block_buffers(), plan.block_tiers()
    for number, (source, target, issue, wait) in enumerate(plan.transfers()):
        leaves = where[source] == 0
        name = file.buffers[buffers[source]].get("name") or f"buffer {buffers[source]}"
        common = {
            "cat": f"to {tiers[where[target]]}" if leaves else f"from {tiers[where[source]]}",
            "name": name,
            "id": number,
            "pid": _PROCESS,
            "tid": _OPERATORS,
        }
        size = file.buffers[buffers[source]]["size"]
        yield {**common, "ph": "b", "ts": begins[issue], "args": {"bytes": size}}
        yield {**common, "ph": "e", "ts": begins[wait]}
