"""The partitions of one graph, in the order in which budgets take them, with their predicted peaks.

Inductor's own comes first, the others by what they compute again. The first that keeps a budget is taken, so that
partitions are only tried as far as a budget asks for it. As the order does not depend on the budget, a lower budget
never gets a higher predicted peak.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import fx

from .._base.decisions import decided
from .inductor_peak import Peak, peak_of
from .partitions import Partition, Survey

Entry = tuple[Partition | None, Peak]  # None is Inductor's own


class Front:
    """What a graph may be parted into."""

    def __init__(self, graph: fx.GraphModule, example_inputs: Sequence[Any]) -> None:
        self._graph, self._inputs = graph, list(example_inputs)
        survey = Survey()
        self.own = peak_of(graph, example_inputs, survey)
        self._tried: list[Entry] = [(None, self.own)]
        self._waiting = survey.found

    def __iter__(self) -> Iterator[Entry]:
        yield from self._tried
        while self._waiting:
            partition = self._waiting.pop(0)
            peak = peak_of(self._graph, self._inputs, partition)
            decided("recompute", "tried", partition=str(partition), peak_bytes=peak.nbytes, held_bytes=peak.held)
            self._tried.append((partition, peak))
            yield partition, peak

    def within(self, limit: int) -> Entry | None:
        """The first that is predicted to have no more bytes at once."""
        return next((entry for entry in self if entry[1].nbytes <= limit), None)

    @property
    def smallest(self) -> Peak:
        """Of all partitions."""
        return min((peak for _, peak in self), key=lambda peak: peak.nbytes)
