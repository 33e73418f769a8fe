"""Arguments of calls, as the schema of their operator names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class _Default:
    def __repr__(self) -> str:
        return "-"


DEFAULT = _Default()
"""Stands for an argument that takes its schema's default."""


def positional(target: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """A call's arguments in the order of its schema."""
    given = list(args)
    for argument in target._schema.arguments[len(given) :]:
        given.append(kwargs.get(argument.name, DEFAULT))
    return given
