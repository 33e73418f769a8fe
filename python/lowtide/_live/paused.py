"""A captured step that has run up to a value which live Python asked for, and waits for what Python makes of it.

model(x), loss     loss.item()            backward(), step()
|--- deferred ---| the step runs, pauses |--- deferred ---| the rest of it runs, or all is put back
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._step.captured_step import CannotGoOn, CapturedStep
from .._step.fallback import is_for_the_caller
from ..errors import LowtideError
from .log import Entry, Log


class PausedRun:
    """One call's, of one log that the call has followed so far."""

    def __init__(self, log: Log, step: CapturedStep) -> None:
        self._log = log
        self.step = step

    @staticmethod
    def begin(log: Log, outside: Sequence[Any]) -> tuple[PausedRun, torch.Tensor] | None:
        """Begins the step that the log was run with last, and gives its first value; None if that cannot be done."""
        step = log.last
        if step is None or len(step.tape.pauses) != sum(entry.peek is not None for entry in log.entries):
            return None
        value = _value(step, lambda: step.begin(outside))
        return None if value is None else (PausedRun(log, step), value)

    def next_value(self, entries: Sequence[Entry], outside: Sequence[Any]) -> torch.Tensor | None:
        """The value of the last of the entries, if it is the next one that the step pauses for."""
        if not self._log.begins_with(entries):
            return None
        return _value(self.step, lambda: self.step.next_value(outside))

    def put_back(self) -> None:
        """Nothing of it has been done."""
        self.step.abandon()


def _value(step: CapturedStep, run: Callable[[], torch.Tensor | None]) -> torch.Tensor | None:
    """What it gives; None if it cannot go on, or if an operator has failed and all is as it was.

    That operator may be one that Python asks for only later. If it is not, it fails again when the value is computed by
    itself.
    """
    try:
        return run()
    except CannotGoOn:
        return None
    except Exception as error:
        if isinstance(error, LowtideError) or is_for_the_caller(error) or not (step.begun and step.undone):
            raise
        return None
