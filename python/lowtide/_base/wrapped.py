"""Attributes of modules and classes that others stand in front of while a call runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class _Attribute:
    owner: Any
    name: str
    wrap: Callable[[Any], Any]
    own: Any = None
    by: Any = None  # what `wrap(own)` has given


class Wrapped:
    """While open, attributes are what `wrap(own)` gives: `(owner, name, wrap)`.

    It opens again and again, so that is made once for each `own`.
    """

    def __init__(self, *attributes: tuple[Any, str, Callable[[Any], Any]]) -> None:
        self._attributes = [_Attribute(*attribute) for attribute in attributes]

    def __enter__(self) -> None:
        for one in self._attributes:
            own = vars(one.owner)[one.name]
            if own is not one.own:
                one.own, one.by = own, one.wrap(own)
        for one in self._attributes:
            setattr(one.owner, one.name, one.by)

    def __exit__(self, *_: object) -> None:
        for one in self._attributes:
            setattr(one.owner, one.name, one.own)
