"""Gradients that stay in the arena when a step or a region is over, and who finds them there.

Who holds such a gradient holds its place, and what runs meanwhile needs another one: the arena would be as large as
both together. So whoever begins to run looks at all who lend. Who lends something at that time does so no more: its
gradients lie beside the arena from then on. Those that are there are moved out, if only their parameters hold them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

import torch

from .. import _torch
from ..errors import InfeasibleError, add_note

_all: weakref.WeakSet[Lending] = weakref.WeakSet()
_held_of: weakref.WeakSet[object] = weakref.WeakSet()  # models whose gradients have been held


class Lending:
    """Whether the gradients of a step, or of a region, may stay in the arena."""

    def __init__(
        self,
        are_held: Callable[[], bool],
        leaves: Callable[[], Iterable[torch.Tensor]],
        of: object,
        *,
        allowed: bool,
    ) -> None:
        """`are_held` is a method that says whether somebody holds gradients of the last run, `leaves` for whom it was.

        They are those `of` a model: where some of another size were held, these will be.
        """
        self._are_held = weakref.WeakMethod(are_held)
        self._leaves = weakref.WeakMethod(leaves)
        self._of = weakref.ref(of)
        self._was_held = allowed and of in _held_of
        self.allowed = allowed and not self._was_held
        self.has_lent = False  # since somebody last began to run
        _all.add(self)

    def end(self) -> None:
        """For good."""
        self.allowed = False

    def end_if_held(self) -> None:
        """Ends if somebody holds gradients now; those that only leaves hold are moved out."""
        are_held = self._are_held()
        has_lent, self.has_lent = self.has_lent, False
        if not (self.allowed or has_lent) or are_held is None or not are_held():
            return
        if has_lent:
            self.move_out()
        if self.allowed:
            self._was_held = True
            self.end()
            if (of := self._of()) is not None:
                _held_of.add(of)

    def move_out(self) -> None:
        """Gives what it has lent ordinary memory, where only its leaves hold it."""
        leaves = self._leaves()
        if leaves is not None:
            _torch.move_gradients_out([*leaves()])

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
    for lending in list(_all):
        lending.end_if_held()
