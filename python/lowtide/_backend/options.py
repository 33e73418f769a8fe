"""What may be in `torch.compile(..., backend="lowtide", options={...})`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._base.budgets import read_memory_budget

_NAMES = ("memory_budget", "on_unsupported", "engine")
_ENGINES = ("arena", "inductor")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one call of `torch.compile`."""

    memory_budget: int | float | None = None  # bytes, or a share
    on_unsupported: str | None = None
    engine: str = "arena"


def read_options(options: Mapping[str, Any] | None) -> Options:
    """Raises `ValueError` for a name or a value that there is none of."""
    given = dict(options or {})
    for name in given:
        if name not in _NAMES:
            raise ValueError(
                f'options of backend="lowtide": expected {", ".join(_NAMES[:-1])} or {_NAMES[-1]}, got {name!r}'
            )
    on_unsupported = given.get("on_unsupported")
    if on_unsupported not in (None, "eager", "raise"):
        raise ValueError(f'on_unsupported: expected "eager", "raise" or None, got {on_unsupported!r}')
    engine = given.get("engine", "arena")
    if engine not in _ENGINES:
        raise ValueError(f'engine: expected "arena" or "inductor", got {engine!r}')
    return Options(read_memory_budget(given.get("memory_budget")), on_unsupported, engine)
