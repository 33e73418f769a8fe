"""The regions of one call of `torch.compile`: they share a memory budget.

A budget is for what all regions have at once beside what is the caller's: their places in the arena, outputs and
gradients. A share is one of what eager has of them at once. Between its passes a region has what its backward pass
needs, while others run:

    bytes  |            [ C forward and backward ]
           |        [ B ........................ B ]
           |   [ A .................................. A ]
           +-------------------------------------------> time

Which regions there are, and which are open when another begins, is only seen when they run. A region is planned with
what those that are open leave of the budget. Where that is too little, all of them get a share as large as their need
in eager, from their next forward pass on, or the least that they can do with; what is exceeded until then is said.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import _core
from .._base.sources import warn_user
from .._compile.memory_budget import SCALAR_BYTES
from ..errors import InfeasibleError, add_note
from .options import Options
from .sized import Plan, Planned, SizedRegion

if TYPE_CHECKING:
    from .._step.program import Program
    from .region import Region

_MORE = 1.25  # as much more a region is given, again and again, that cannot do with what is left
_FIRST = 8  # the first that is tried is a share of its need in eager
_MOST_TRIES = 7  # at sharing out
_LITTLE = 2**20  # bytes of a region that comes first and cannot keep a share; what eager has of all is not known then


@dataclass(frozen=True, slots=True)
class Crowd:
    """Regions that were under way at once, how often each, and what they had then."""

    regions: Counter[SizedRegion]
    bytes: int


class Together:
    """The regions of one call of `torch.compile`, and what each of them may have."""

    def __init__(self, options: Options, given: object = None) -> None:
        """`given` is what `torch.compile` was given: graphs with the same object are one call's."""
        self.options = options
        self.given = given
        self.regions: weakref.WeakSet[Region] = weakref.WeakSet()
        self._eager_bytes = 0  # the most that eager would have had so far
        self._fullest: Crowd | None = None  # since none was under way, where the budget is a share
        self._above: Counter[SizedRegion] = Counter()  # regions that together had more than the budget
        self._allotted: weakref.WeakKeyDictionary[SizedRegion, int] = weakref.WeakKeyDictionary()
        self._excess = SCALAR_BYTES  # the most that was said
        self._learnt_above = False

    def _limit(self) -> int | None:
        """Bytes of the budget, as far as is known."""
        budget = self.options.memory_budget
        return int(budget * self._eager_bytes) if isinstance(budget, float) else budget

    def budget_of(self, sized: SizedRegion) -> int | None:
        """What a region may have, as far as is known."""
        limit = self._limit()
        return limit if limit is None else min(limit, self._allotted.get(sized, limit))

    def _open(self) -> Iterator[tuple[SizedRegion, Planned, Program]]:
        for region in list(self.regions):
            for sized in region.sizes():
                for planned, program in sized.runs():
                    yield sized, planned, program

    def ready(self, sized: SizedRegion, plan: Plan) -> Planned:
        """The plan for a forward pass that begins now. `plan` gives one within so many bytes.

        Raises `InfeasibleError`.
        """
        opened = [] if self.options.memory_budget is None else list(self._open())
        in_eager = sized.eager_bytes + sum(one.eager_held for one, _, _ in opened)
        self._eager_bytes = max(self._eager_bytes, in_eager)
        if sized.planned is None:
            self._check_learning(sized)
        if self._above and not opened:
            above = self._above
            if self.options.on_unsupported == "eager":  # then it is tried once
                self._above = Counter()
            self._share_out(above, plan)
            self._above = Counter()
        budget = self.budget_of(sized)
        if sized.planned is not None and not sized.needs_plan(budget):
            return sized.planned
        if budget is None or sized in self._allotted:
            return sized.use(self._plan(sized, budget, plan))
        held = sum(planned.held_by(program) for _, planned, program in opened)
        of_share = isinstance(self.options.memory_budget, float)
        if held or (of_share and sized.eager_bytes < _LITTLE):
            # In the middle of others: within what they leave, or as little as can be until all are known.
            found = self._least(sized, max(0, budget - held), plan)
        else:
            found = self._plan(sized, budget, plan)
        if held or of_share:  # later ones do not make what there is for this one more
            self._allotted[sized] = found.budget or 0
        return sized.use(found)

    def _least(self, sized: SizedRegion, budget: int, plan: Plan) -> Planned:
        """A plan within the budget, or within little more than it can do with."""
        budget = max(budget, 1)
        while True:
            try:
                return self._plan(sized, budget, plan, in_parts=False)
            except InfeasibleError:
                if budget >= 2 * sized.eager_bytes:
                    raise
                budget = max(int(budget * _MORE) + 1, sized.eager_bytes // _FIRST)

    def _share_out(self, crowd: Counter[SizedRegion], plan: Plan) -> None:
        """Plans regions anew that are under way at once, each so often, so that all of them are within the budget.

        Each gets a share as large as its need in eager, or what it can do with at least. As they are not all at their
        peak at once, shares can be of more than the budget.
        """
        budget = self._limit()
        assert budget is not None
        needs = sum(one.eager_bytes * count for one, count in crowd.items())
        least: dict[SizedRegion, Planned] = {}  # of those that cannot do with their share

        def within(one: SizedRegion, share: int) -> Planned:
            if one in least and share <= (least[one].budget or 0):
                return least[one]
            found = self._least(one, share, plan)
            if (found.budget or 0) > share:
                least[one] = found
            return found

        best: dict[SizedRegion, Planned] = {}
        low, high = 0.0, max(1.0, needs / max(1, budget))
        scale = 1.0
        for _ in range(_MOST_TRIES):
            shares = {one: max(1, int(scale * budget * one.eager_bytes / max(1, needs))) for one in crowd}
            tried = {one: within(one, share) for one, share in shares.items()}
            if _peak_of(crowd, tried) <= budget:
                best, low = tried, scale
            else:
                high = scale
                if all(one in least for one in crowd):
                    break
            scale = (low + high) / 2
        if not best:
            raise self._too_little(crowd, budget)
        for one, planned in best.items():
            self._allotted[one] = planned.budget or 0
            one.use(planned)

    def _too_little(self, crowd: Counter[SizedRegion], budget: int) -> InfeasibleError:
        amount = _core.format_bytes
        needs = [(f"a region, in eager {amount(one.eager_bytes)}", one.eager_bytes) for one in crowd]
        return InfeasibleError(
            f"E301: no plans were found with which {sum(crowd.values())} regions that are under way at once keep the "
            f"memory budget of {amount(budget)} beside what is the caller's",
            code="E301", bound_bytes=0, step=0, culprits=needs,
        )  # fmt: skip

    def _plan(self, sized: SizedRegion, budget: int | None, plan: Plan, *, in_parts: bool = True) -> Planned:
        try:
            return sized.plan(budget, plan, in_parts=in_parts)
        except InfeasibleError as error:
            if error.code == "E301":
                self._explain(error, sized, budget)
            raise

    def _explain(self, error: InfeasibleError, sized: SizedRegion, budget: int | None) -> None:
        amount = _core.format_bytes
        if isinstance(self.options.memory_budget, float):
            whose = "it" if self._eager_bytes == sized.eager_bytes else "all regions at once"
            in_eager = f"the {amount(self._eager_bytes)} that eager needs for {whose}"
            whole = f"{100 * self.options.memory_budget:g} % of {in_eager}"
        else:
            whole = f"of the memory budget of {amount(self.options.memory_budget or 0)} for all regions together"
        add_note(
            error,
            f"lowtide: the region has {amount(budget or 0)}, {whole}; the {amount(sized.beside)} of its parameters, "
            "inputs and incoming gradients are beside the budget, and in the figures above",
        )
        sized.gradients.explain(error)

    def check(self, running: Planned, program: Program) -> None:
        """After a pass: what was there at once is within the budget, or it is said, and planned otherwise then.

        A share is looked at when none is under way any more: until then, eager may come to have more at once.
        """
        limit = self._limit()
        if limit is None:
            return
        others = [(sized, planned, other) for sized, planned, other in self._open() if other is not program]
        there = running.need + program.runtime.bytes_put_aside + program.runtime.stats.unplanned_peak
        there += sum(planned.held_by(other) for _, planned, other in others)
        fullest = self._fullest
        if fullest is None or there > fullest.bytes:
            mine = [sized for region in self.regions for sized in region.sizes() if sized.find(program.runtime)]
            fullest = Crowd(Counter([*mine, *(sized for sized, *_ in others)]), there)
        if isinstance(self.options.memory_budget, float) and (others or program.runtime.is_under_way):
            self._fullest = fullest
            return
        self._fullest = None
        excess = fullest.bytes - limit
        if excess <= self._excess:
            return
        self._excess = excess
        self._above |= fullest.regions
        count, amount = fullest.regions.total(), _core.format_bytes
        warn_user(
            f"lowtide: memory_budget is not kept: {count} regions at once had {amount(fullest.bytes)} beside what is "
            f"the caller's, {amount(excess)} more than the budget; the next ones are planned with less, or raise "
            "InfeasibleError"
        )

    def _check_learning(self, sized: SizedRegion) -> None:
        """Where operators ran alone with more than the budget, before there was a plan, it is said."""
        budget = self.budget_of(sized)
        if budget is None or self._learnt_above or sized.learning_bytes <= budget + SCALAR_BYTES:
            return
        self._learnt_above = True
        amount = _core.format_bytes
        warn_user(
            "lowtide: memory_budget was not kept while a region was planned: its operators ran alone, to see what they "
            f"need, with {amount(sized.learning_bytes)}; its passes are within it"
        )


def _peak_of(crowd: Counter[SizedRegion], plans: dict[SizedRegion, Planned]) -> int:
    """The most bytes at once while one of them runs, and all others are between their passes."""
    held = sum(plans[one].held * count for one, count in crowd.items())
    return held + max(plans[one].need - plans[one].held for one in crowd)
