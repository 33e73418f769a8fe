"""Stand-ins for what a capture must not depend on: arguments that may change, what an update rule returns.

An object that can change unnoticed (an array, a picture, a list of file names that is another one at each call) may be
in a batch as long as the step does nothing with it but hand it on.
"""

from __future__ import annotations

from typing import Any

from ..errors import CaptureError


class Sealed:
    """Refuses every use by name. What remains possible: to pass it around, to return it, to compare it with None."""

    __slots__ = ("__weakref__", "_refusal")

    def __init__(self, refusal: str) -> None:
        object.__setattr__(self, "_refusal", refusal)

    def __getattribute__(self, name: str) -> Any:
        raise CaptureError(object.__getattribute__(self, "_refusal"))


def _refuse(self: Sealed, *_args: Any, **_kwargs: Any) -> Any:
    raise CaptureError(object.__getattribute__(self, "_refusal"))


def sealed_argument(name: str, value: Any) -> Sealed:
    """Stands in for an argument that is no tensor and may change."""
    said = f"the step uses {name}, a {type(value).__qualname__}, which can change unnoticed"
    return Sealed(f"{said}; pass numbers and tensors, or let the function close over it")


_OPERATORS = (
    "abs add and bool bytes call ceil complex contains delattr delitem divmod enter eq exit float floor floordiv "
    "format ge getitem gt hash iadd iand index int invert ior isub iter ixor le len lshift lt matmul mod mul ne neg "
    "next or pos pow radd rand rdivmod repr reversed rfloordiv rlshift rmatmul rmod rmul ror round rpow rrshift rshift "
    "rsub rtruediv rxor setattr setitem str sub truediv trunc xor"
)
for _name in _OPERATORS.split():
    setattr(Sealed, f"__{_name}__", _refuse)
