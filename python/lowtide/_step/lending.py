"""Gradients that stay in the arena when a step or a region is over, and who finds them there.

Who holds such a gradient holds its place, and what runs meanwhile needs another one: the arena would be as large as
both together. So whoever begins to run looks at all who lend. Who lends something at that time does so no more: its
gradients lie beside the arena from then on. Those that are there are moved out, if only their parameters hold them.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

from .. import _torch

_all: weakref.WeakSet[Lending] = weakref.WeakSet()


class Lending:
    """Whether the gradients of a step, or of a region, may stay in the arena."""

    def __init__(self, are_held: Callable[[], bool], *, allowed: bool) -> None:
        """`are_held` is a method that says whether somebody holds gradients of the last run."""
        self._are_held = weakref.WeakMethod(are_held)
        self.allowed = allowed
        _all.add(self)

    def end(self) -> None:
        """For good."""
        self.allowed = False

    def end_if_held(self) -> None:
        """Ends if somebody holds gradients now."""
        are_held = self._are_held()
        if self.allowed and are_held is not None and are_held():
            self.end()


def end_what_is_held() -> None:
    """Somebody begins to run."""
    for lending in list(_all):
        lending.end_if_held()
    if _torch.new_loans():
        move_out()
        _torch.forget_new_loans()


def move_out() -> None:
    """Gives gradients of this thread that lie in the arena ordinary memory, where only their parameters hold them."""
    leaves = _torch.with_lent_gradients(gc.get_objects())  # the list of all objects holds gradients too
    _torch.move_gradients_out(leaves)
