"""Gradients that stay in the arena when a step or a region is over, and who finds them there.

Who holds such a gradient holds its place, and what runs meanwhile needs another one: the arena would be as large as
both together. So whoever begins to run looks at all who lend. Who lends something at that time does so no more: its
gradients lie beside the arena from then on. Those that are there are moved out, if only their parameters hold them.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable

import torch

from .. import _torch
from ..errors import InfeasibleError, add_note

_all: weakref.WeakSet[Lending] = weakref.WeakSet()
_held_of: weakref.WeakSet[object] = weakref.WeakSet()  # models whose gradients have been held
_WHILE_COUNTED = next(sys.getrefcount(one) for one in [object()]) - 1  # references to what is counted, beside its list


class Lending:
    """Whether the gradients of a step, or of a region, may stay in the arena."""

    def __init__(self, are_held: Callable[[], bool], of: object, *, allowed: bool) -> None:
        """`are_held` is a method that says whether somebody holds gradients of the last run.

        They are those `of` a model: where some of another size were held, these will be.
        """
        self._are_held = weakref.WeakMethod(are_held)
        self._of = weakref.ref(of)
        self._was_held = allowed and of in _held_of
        self._leaves: list[torch.Tensor] = []  # whose gradients it has lent
        self.allowed = allowed and not self._was_held
        _all.add(self)

    def lend(self, leaves: Iterable[torch.Tensor]) -> None:
        """Their gradients are in the arena now. A leaf that nobody else holds is let go of."""
        known = set(map(id, self._leaves))
        self._leaves += [leaf for leaf in leaves if id(leaf) not in known]

    def end(self) -> None:
        """For good."""
        self.allowed = False

    def is_held(self) -> bool:
        """Whether somebody holds gradients now. If nobody does, it lends nothing, and lets go of the leaves."""
        are_held = self._are_held()
        if are_held is not None and are_held():
            return True
        self._leaves.clear()
        return False

    def end_if_held(self) -> None:
        """Ends if somebody holds gradients now; those that only leaves hold are moved out."""
        if not (self.allowed or self._leaves) or not self.is_held():
            return
        self.move_out()
        if self.allowed:
            self._was_held = True
            self.end()
            if (of := self._of()) is not None:
                _held_of.add(of)

    def move_out(self) -> None:
        """Gives what it has lent ordinary memory, where only its leaves hold it."""
        _torch.move_gradients_out(self._leaves)
        self.is_held()  # lets go of the leaves if all were moved

    def explain(self, error: InfeasibleError) -> None:
        """Says so where a budget that was kept before is not kept any more because of that."""
        if self._was_held:
            add_note(
                error,
                "lowtide: somebody held gradients of an earlier call when this step, or another one, began, so they "
                "lie beside the arena from then on: let go of them before the next call, or hold copies",
            )


def end_what_is_held() -> None:
    """Somebody begins to run."""
    _let_go_of_unused_leaves()
    for lending in list(_all):
        lending.end_if_held()


def _let_go_of_unused_leaves() -> None:
    """A model that is used no more goes, and what its gradients hold of the arena with it.

    Weak references would not keep leaves, but `swap_tensors` refuses tensors that have any.
    """
    lent = [lending for lending in list(_all) if lending._leaves and lending.is_held()]
    here = Counter(id(leaf) for lending in lent for leaf in lending._leaves)
    for lending in lent:
        lending._leaves[:] = (
            leaf for leaf in lending._leaves if sys.getrefcount(leaf) > here[id(leaf)] + _WHILE_COUNTED
        )


def _after_collection(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] > 0:
        _let_go_of_unused_leaves()


gc.callbacks.append(_after_collection)
