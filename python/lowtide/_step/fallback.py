"""Which errors are answers for the caller, and what is said of all others, after which calls run eager."""

from __future__ import annotations

from .._base.interrupts import signals_held
from .._base.memory_errors import is_out_of_memory
from .._base.sources import OURS
from .._capture.leftovers import LeftBehindError
from ..errors import CaptureError, InfeasibleError, LimitError, MemoryGuardError

_ANSWERS = (InfeasibleError, LimitError, MemoryGuardError, LeftBehindError)


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
