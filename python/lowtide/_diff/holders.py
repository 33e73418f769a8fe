"""Who holds the peak of a step, by what two versions of its code have in common."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import _core
from .._report.changes import pattern_of
from .._report.source_lines import split

_ALL = 1 << 30
_FORMAT = "lowtide-peak"
_BY_NAME = ("input", "output")
_BY_ROLE = (*_BY_NAME, "parameter", "buffer", "optimizer state", "gradient", "kept gradient", "constant")
"""Kinds of which `explain` puts all together, whatever line made them."""

_LINK_RATE = 16 * 10**9  # what `explain` would swap over; not used here


class Holder(NamedTuple):
    """Tensors of one kind, made by one operator of one source line in modules that differ by numbers alone."""

    kind: str
    op: str
    module: str
    file: str
    line: str  # its text, which stays as the file around it changes; its number where no text is known


class Held(NamedTuple):
    """How much a holder has, and where and what its line is."""

    bytes: int
    place: str
    text: str


@dataclass(frozen=True)
class Peak:
    """Of a step as eager PyTorch runs it."""

    total_bytes: int
    at: str  # the operator at the peak, and where it is
    held: dict[Holder, Held]


class Sources(NamedTuple):
    """Where the code of a graph lies. Nobody knows of a graph from a file whether its code is still as it was."""

    name_of: Callable[[str], str]  # a place as both versions name it
    text_of: Callable[[str], str]  # the line there, empty if it is not known
    as_captured: bool  # these are the lines that it was captured from


def peak_of(graph: _core.Graph, sources: Sources) -> Peak:
    """All who hold it."""
    fields: dict[str, Any] = json.loads(_core.explain(graph, None, top=_ALL, swap_per_second=_LINK_RATE)[1])
    held: dict[Holder, Held] = {}
    for group in fields["holders"]:
        made = group["made_by"]
        if made is None or group["kind"] in _BY_ROLE:
            made = {"op": group["name"] if group["kind"] in _BY_NAME else "", "source": "", "module": ""}
            group["modules"] = ""
        place, text = sources.name_of(made["source"]), sources.text_of(made["source"])
        file, number = split(place)
        module = pattern_of(group["modules"].partition(" (")[0] or made["module"])
        line = text if text and sources.as_captured else str(number)
        holder = Holder(group["kind"], made["op"], module, file, line)
        before = held[holder].bytes if holder in held else 0
        held[holder] = Held(before + group["bytes"], place, text)
    total = fields["total_bytes"]
    if sum(each.bytes for each in held.values()) != total:
        raise AssertionError(f"holders do not add up to the {total} bytes of the peak")
    at = fields["peak_op"]
    return Peak(total, f"{at['op']} {sources.name_of(at['source'])}".strip() if at else "", held)


def saved(peak: Peak) -> dict[str, Any]:
    """As a JSON file of it has it: see docs/report.md."""
    rows = [
        {**holder._asdict(), "place": held.place, "bytes": held.bytes}
        for holder, held in sorted(peak.held.items(), key=lambda item: (-item[1].bytes, item[0]))
    ]
    return {"format": _FORMAT, "version": 1, "peak_bytes": peak.total_bytes, "at": peak.at, "held": rows}


def loaded(content: Any) -> Peak:
    """What `saved` gave. Raises ValueError for anything else."""
    try:
        if content["format"] != _FORMAT or content["version"] != 1:
            raise ValueError(f"expected a {_FORMAT} of version 1")
        held: dict[Holder, Held] = {}
        for row in content["held"]:
            holder = Holder(*(str(row[name]) for name in Holder._fields))
            text = "" if holder.line.isdigit() else holder.line
            held[holder] = Held(_count(row["bytes"]), str(row["place"]), text)
        peak = Peak(_count(content["peak_bytes"]), str(content["at"]), held)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"this is no {_FORMAT}: {type(error).__name__}: {error}") from None
    if sum(each.bytes for each in held.values()) != peak.total_bytes:
        raise ValueError("its holders do not add up to its peak")
    return peak


def _count(number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ValueError(f"expected bytes, a whole number, got {number!r}")
    return number
