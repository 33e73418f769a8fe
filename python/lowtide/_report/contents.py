"""All that a page shows, found once: the graph, its plans over their steps, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .. import _core
from .._base.graph_file import GraphFile
from .._base.plan_decisions import stated
from .._base.progress import plan_in_sight
from ..errors import LowtideError
from . import bands
from .changes import Change, changes_of
from .front import Front, front_of
from .timeline import Timeline, bytes_by_band, timeline_of

EAGER, PLANNED = "eager, in program order", "planned"
_TOP = 30
_LINK_RATE = 16 * 10**9  # of what `explain` says about swapping, which the page does not show


@dataclass(frozen=True)
class Holders:
    """Who holds the peak of one plan: the fields that `explain` has, or why it cannot tell."""

    fields: dict[str, Any]
    refused: str = ""


@dataclass(frozen=True)
class Contents:
    """Of one graph and one plan of it. What takes long is found when it is asked for."""

    title: str
    graph: _core.Graph
    file: GraphFile
    band_of: list[int]
    eager: Timeline
    planned: Timeline
    band_names: Sequence[str] = bands.NAMES

    @cached_property
    def eager_by_band(self) -> list[list[int]]:
        """By band and step: the bytes alive in program order."""
        return bytes_by_band(self.eager, self.file, self.band_of)

    @cached_property
    def planned_by_band(self) -> list[list[int]]:
        """The same as planned."""
        return bytes_by_band(self.planned, self.file, self.band_of)

    @cached_property
    def changes(self) -> list[Change]:
        """What runs again, leaves memory or runs in parts."""
        return changes_of(self.planned, self.file, ["memory", *self.tiers])

    @cached_property
    def front(self) -> Front | None:
        """Memory against time; none without times."""
        return front_of(self.graph, self.file)

    @cached_property
    def eager_holders(self) -> Holders:
        """Who holds the peak of the graph as eager PyTorch runs it."""
        return _holders(self.graph, None)

    @cached_property
    def planned_holders(self) -> Holders:
        """Who holds the peak of the plan."""
        return _holders(self.graph, self.planned.plan)

    @cached_property
    def tiers(self) -> list[str]:
        """Names of the memories behind links."""
        return [tier.get("name") or "a tier without a name" for tier in self._stated.get("tiers", [])]

    @property
    def provenance(self) -> dict[str, str]:
        """How the plan came about."""
        provenance: dict[str, str] = self._stated.get("provenance", {})
        return provenance

    @cached_property
    def _stated(self) -> dict[str, Any]:
        return stated(self.planned.plan)


def contents_of(title: str, graph: _core.Graph, plan: _core.Plan | None) -> Contents:
    """Plans the graph if there is no plan. Raises `InvalidPlanError` for a plan of another graph."""
    if plan is None:
        plan = plan_in_sight(graph)
    file = GraphFile(graph)
    return Contents(
        title,
        graph,
        file,
        bands.bands_of(file),
        timeline_of(EAGER, graph, file, in_program_order(graph)),
        timeline_of(PLANNED, graph, file, plan),
    )


def in_program_order(graph: _core.Graph) -> _core.Plan:
    """The plan nearest to what eager PyTorch does: nothing is moved, made in place or run again."""
    return _core.plan(graph, order="program", reuse=False, recompute="none")


def _holders(graph: _core.Graph, plan: _core.Plan | None) -> Holders:
    try:
        return Holders(json.loads(_core.explain(graph, plan, top=_TOP, swap_per_second=_LINK_RATE)[1]))
    except (LowtideError, ValueError) as error:
        return Holders({}, str(error))
