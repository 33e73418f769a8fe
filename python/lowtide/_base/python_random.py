"""The random numbers that PyTorch knows nothing of: those of Python's `random` and of `numpy.random`."""

from __future__ import annotations

import random
import sys


class PythonRandom:
    """The state of both global generators, as it is now."""

    def __init__(self) -> None:
        self._numpy = sys.modules.get("numpy")
        self._python_state = random.getstate()
        self._numpy_state = None if self._numpy is None else self._numpy.random.get_state()

    def drawn_from(self) -> str | None:
        """Which of the two has been drawn from or seeded since."""
        if random.getstate() != self._python_state:
            return "random"
        if self._numpy is not None and self._numpy_state is not None:
            (_, before, position, *_), (_, now, now_at, *_) = self._numpy_state, self._numpy.random.get_state()
            if position != now_at or (before != now).any():
                return "numpy.random"
        return None

    def stir(self) -> None:
        """Draws from both, so that they are where they were never before: whoever seeds them then is seen."""
        random.random()
        if self._numpy is not None:
            self._numpy.random.random_sample()

    def restore(self) -> None:
        """Puts both back."""
        random.setstate(self._python_state)
        if self._numpy is not None:
            self._numpy.random.set_state(self._numpy_state)
