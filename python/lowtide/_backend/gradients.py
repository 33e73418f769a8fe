"""Where the gradients of a region lie: in its arena from their birth, or apart from it.

In the arena they take no bytes before they are made, and fewer operators run again to keep a budget. But who holds
them holds its place, and what runs meanwhile needs another one. Loops differ: most let go of gradients before the next
forward pass, some add to them, or look at them while another model runs. So they lie apart at first, and move into the
arena, if that pays, when the next forward pass of the region finds nobody who holds any; they lie apart for good when
any region's forward pass finds somebody who does. A region that begins while another one is between its passes has them
apart too: that one's backward pass wants its whole place.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

from .._step.lending import Lending, end_what_is_held
from ..errors import InfeasibleError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .._step.program import Program
    from .sized import SizedRegion

_all: weakref.WeakSet[Gradients] = weakref.WeakSet()


class Gradients:
    """Those of a region for inputs of one form."""

    def __init__(self, owner: SizedRegion, *, may_move: bool) -> None:
        self._owner = weakref.ref(owner)
        self._lending = Lending(self._are_held, owner, allowed=may_move)
        self._given = self._moved = False
        _all.add(self)

    @property
    def in_arena(self) -> bool:
        """Whether they are to lie there."""
        return self._moved and self._lending.allowed

    def places(self) -> list[bool]:
        """Whether they lie in the arena: as it is to be, and then as it may be if no plan keeps the budget so."""
        return [self.in_arena, *([True] if self._lending.allowed and not self.in_arena else [])]

    def were_given(self, *, in_arena: bool) -> None:
        """A backward pass is over; it is still autograd's."""
        self._given = True
        if in_arena and (node := torch._C._current_autograd_node()) is not None:
            adding = [following for following, _ in node.next_functions]
            self._lending.lend(leaf for leaf in (getattr(one, "variable", None) for one in adding) if leaf is not None)

    def before_forward(self) -> None:
        """Looks at who holds gradients of any region or step, and at which regions are between their passes."""
        end_what_is_held()
        if any(one._is_under_way() for one in list(_all)):
            self._lending.end()
        self._moved = self._given

    def stay_apart(self) -> None:
        """From now on, for good."""
        self._lending.end()

    def explain(self, error: InfeasibleError) -> None:
        """Says in an error if they are beside the arena because they were held."""
        self._lending.explain(error)

    def _are_held(self) -> bool:
        return any(program.runtime.held_outputs for program in self._programs())

    def _programs(self) -> Iterator[Program]:
        owner = self._owner()
        plans = [] if owner is None else [*owner.retired, *([owner.planned] if owner.planned is not None else [])]
        return (program for planned in plans for program in planned.programs)

    def _is_under_way(self) -> bool:
        owner = self._owner()
        return owner is not None and bool(owner.runs())
