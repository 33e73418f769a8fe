"""Random numbers in a capture: whoever sets or draws them in a way that a tape cannot repeat is found.

Nothing is drawn while a step is captured, as nothing is computed. So the watch draws a number itself at the start and
at each random operator: the default generator is then at a place where it has never been, and any other place means
that the step has set it, by whatever name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.utils._python_dispatch import _disable_current_modes

from .._base.python_random import PythonRandom
from .._base.random_states import move_random_states, read_random_states, same_random_states, set_random_states
from ..errors import CaptureError


class MovedRandomState(CaptureError):
    """A generator of the whole process is where it should not be: the step has moved it, or another thread has."""


class RandomWatch:
    """Where the default generator of PyTorch must be."""

    def __init__(self) -> None:
        self.was_set = False
        self.drawn = False  # by a random operator on the tape
        self._expected = read_random_states()

    def look(self) -> None:
        """Notes whether the generator has been set since the last number."""
        with _disable_current_modes():
            self.was_set = self.was_set or not same_random_states(read_random_states(), self._expected)

    def forget(self) -> None:
        """The capture is over: whoever still holds the watch holds no state."""
        self._expected = ()

    def draw(self) -> None:
        """A random operator is on the tape."""
        self.drawn = True
        self.move()

    def move(self) -> None:
        """Lets the generator stand where it has never been before."""
        self.look()
        with _disable_current_modes():
            move_random_states()
            self._expected = read_random_states()


@contextmanager
def random_state_kept(watch: RandomWatch) -> Iterator[None]:
    """Restores every random state, and refuses what a tape cannot repeat.

    Numbers drawn by Python or NumPy would be frozen; a random state that is set inside the step would not be set again.
    """
    torch_state = read_random_states()
    before = PythonRandom()
    watch.move()
    before.stir()
    stirred = PythonRandom()
    try:
        yield
        watch.look()
        drawn = stirred.drawn_from()
    finally:
        set_random_states(torch_state)
        before.restore()
    if drawn is not None:
        raise MovedRandomState(
            f"the step draws numbers from `{drawn}` or seeds it; pass them to the function as tensors"
        )
    if watch.was_set:
        raise MovedRandomState("the step sets PyTorch's random state; do it outside the function")
