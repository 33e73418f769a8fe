"""What becomes of calls that cannot be planned: they run eager and say so once, or they are refused.

Without a budget eager code is as good as planned code, only larger. With one it is not what was asked for: such calls
are refused, unless the user has said that they may run eager.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._base.decisions import decided
from .._base.interrupts import signals_held
from .._base.memory_errors import is_out_of_memory
from .._base.sources import OURS, warn_user
from .._capture.leftovers import LeftBehindError
from ..errors import CaptureError, InfeasibleError, LimitError, MemoryGuardError

_ANSWERS = (InfeasibleError, LimitError, MemoryGuardError, LeftBehindError)


class Fallback:
    """`on_unsupported` as the user gave it; `budgets` names what was given of budgets, `instead` how calls run then."""

    def __init__(
        self, name: str, on_unsupported: str | None, budgets: Sequence[str], *, instead: str = "eager"
    ) -> None:
        self._name = name
        self._instead = instead
        self._allows = on_unsupported == "eager"
        self._told: set[str] = set()
        self.not_kept = f"{' and '.join(budgets)} {'are' if len(budgets) > 1 else 'is'} not kept" if budgets else ""
        self.refuses = on_unsupported == "raise" or (on_unsupported is None and bool(budgets))

    def refusal(self, reason: str) -> CaptureError:
        """What to raise for a call that is refused."""
        decided("run", "refused", function=self._name, reason=reason)
        if not self.not_kept:
            return CaptureError(reason)
        return CaptureError(f'{reason}; {self._instead}, {self.not_kept}: on_unsupported="eager" allows that')

    def say(self, reason: str) -> None:
        """Warns of a reason to run eager, if it is a new one."""
        if reason not in self._told:
            self._told.add(reason)
            decided("run", self._instead, function=self._name, reason=reason.removeprefix(": ").strip())
            warn_user(f"lowtide: {self.describe(reason)}")

    def describe(self, reason: str) -> str:
        """The same in words."""
        return f"{self._name} runs {self._instead}{reason}{f'; {self.not_kept}' if self.not_kept else ''}"


def is_for_the_caller(error: Exception) -> bool:
    """Whether an error is an answer, and no reason to run eager: a budget that cannot be kept, or no memory."""
    return isinstance(error, _ANSWERS) or signals_held.raised(error) or is_out_of_memory(error)


def reason_of(error: Exception) -> str:
    """Why a call is not planned: what a capture says, or which error came from which line of Lowtide's own code."""
    if isinstance(error, CaptureError):
        return str(error)
    line = ""
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file.startswith(OURS):
            line = f" (lowtide/{file[len(OURS) :]}:{trace.tb_lineno})"
        trace = trace.tb_next
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0] if said else ''}{line}"
