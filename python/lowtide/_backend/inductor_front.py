"""The partitions of one graph, in the order in which budgets take them, with their predicted peaks.

Inductor's own comes first, the others by what they compute again. The first that keeps a budget is taken, so that
partitions are only tried as far as a budget asks for it. As the order does not depend on the budget, a lower budget
never gets a higher predicted peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from .._base.decisions import decided
from .inductor_internals import InductorError
from .inductor_peak import Peak, peak_of
from .partitions import Candidate, Partition, Survey

Entry = tuple[Partition | None, Peak]  # None is Inductor's own


class Front:
    """What a graph may be parted into."""

    def __init__(self, graph: fx.GraphModule, example_inputs: Sequence[Any]) -> None:
        self._graph, self._inputs = graph, list(example_inputs)
        survey = Survey()
        self.own = peak_of(graph, example_inputs, survey)
        self._candidates = survey.found
        self._known: dict[Candidate, Peak | None] = {}

    def within(self, limit: int) -> Entry | None:
        """The first that is predicted to have no more bytes at once."""
        if self.own.nbytes <= limit:
            return None, self.own
        for candidate in self._candidates:
            peak = self._peak(candidate) if candidate.held <= limit else None
            if peak is not None and peak.nbytes <= limit:
                return candidate.partition, peak
        return None

    @property
    def smallest(self) -> Peak:
        """Of all partitions."""
        least = self.own
        for candidate in sorted(self._candidates, key=lambda candidate: candidate.held):
            peak = self._peak(candidate) if candidate.held < least.nbytes else None
            if peak is not None and peak.nbytes < least.nbytes:
                least = peak
        return least

    def _peak(self, candidate: Candidate) -> Peak | None:
        """None if Inductor cannot compile it."""
        if candidate not in self._known:
            name = str(candidate.partition)
            try:
                self._known[candidate] = found = peak_of(self._graph, self._inputs, candidate.partition)
                decided("recompute", "tried", partition=name, peak_bytes=found.nbytes)
            except InductorError as error:
                self._known[candidate] = None
                decided("recompute", "not tried", partition=name, reason=str(error).partition("\n")[0])
        return self._known[candidate]
