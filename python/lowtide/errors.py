"""What can go wrong, one class for each kind.

Errors of the core carry a stable ``code``, and their messages begin with it: ``E1xx`` the graph, ``E2xx`` the plan,
``E3xx`` infeasible, ``E4xx`` a limit.

>>> from lowtide.errors import InfeasibleError, LowtideError
>>> try:
...     raise InfeasibleError("E301: too little", code="E301", bound_bytes=4096, step=3, culprits=[("h", 4096)])
... except LowtideError as error:
...     print(error.code, error.culprits)
E301 [('h', 4096)]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = [
    "CaptureError",
    "InfeasibleError",
    "InvalidGraphError",
    "InvalidPlanError",
    "InvalidSnapshotError",
    "LimitError",
    "LowtideError",
    "MemoryGuardError",
]


class LowtideError(Exception):
    """Anything that Lowtide could not do; ``code`` is listed in docs/errors.md, and empty where nothing is."""

    def __init__(self, *message: object, code: str = "") -> None:
        super().__init__(*message)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:  # an error of a worker process reaches its parent
        return _unpickled, (type(self), self.args), self.__dict__


def _unpickled(kind: type[LowtideError], args: tuple[object, ...]) -> LowtideError:
    return kind.__new__(kind, *args)


class CaptureError(LowtideError):
    """A program could not be turned into a graph."""


class InvalidGraphError(LowtideError):
    """What was described cannot be a graph; ``code`` says in which way (``"E104"``)."""


class InvalidPlanError(LowtideError):
    """A plan is wrong; ``code`` says in which way (``"E215"``)."""


class InvalidSnapshotError(LowtideError):
    """A file is no memory snapshot of PyTorch, or one that is damaged or does not tell all; the message says what."""


class InfeasibleError(LowtideError):
    """A budget cannot be kept.

    ``bound_bytes`` is what no order and layout can do without (resident and planned bytes), ``step`` where the
    most bytes are alive, ``culprits`` who holds them: names and sizes, largest first.
    """

    def __init__(
        self, message: str, *, code: str = "", bound_bytes: int, step: int, culprits: Sequence[tuple[str, int]]
    ) -> None:
        super().__init__(message, code=code)
        self.bound_bytes = bound_bytes
        self.step = step
        self.culprits = list(culprits)


class LimitError(LowtideError):
    """A limit was reached; ``best`` is the best answer found until then, or ``None``."""

    def __init__(self, message: str, *, code: str = "", best: Any = None) -> None:
        super().__init__(message, code=code)
        self.best = best


class MemoryGuardError(LowtideError):
    """An operator of a guarded step read or wrote where it must not.

    ``kind`` is one of those listed in docs/errors.md, ``suspects`` the operators that may have done it, with their
    source lines: one, unless the damage was found later than it was done.
    """

    def __init__(self, message: str, *, kind: str, suspects: Sequence[str]) -> None:
        super().__init__(message)
        self.kind = kind
        self.suspects = list(suspects)


def add_note(error: BaseException, note: str) -> None:
    """As the method of Python 3.11 does: a traceback ends with it."""
    error.__notes__ = [*getattr(error, "__notes__", ()), note]
