"""Operators that the user wrote in Python (`torch.library.custom_op`): their own state, while they run alone.

An operator runs alone to be measured. One that counts its calls or keeps an average in a variable of its own must not
notice: whatever its code can reach is put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS

from .._guards.surroundings import restore
from .._guards.walk import Walk


@contextmanager
def own_state_kept(target: torch._ops.OpOverload) -> Iterator[None]:
    """Puts back what the operator's own Python changes; nothing for an operator that has none."""
    code = _code_of(target)
    if not code:
        yield
        return
    walk = Walk(torch.nn.Module(), (), set(), everything=True)
    for function in code:
        walk.start(function)
    contents = [place.content() for place in walk.places]
    tensors = [(tensor.data, tensor.detach().clone()) for tensor in walk.tensors.values()]
    try:
        yield
    finally:
        restore(walk.places, contents)
        for tensor, content in tensors:  # no version tells: operators run below what counts them
            tensor.copy_(content)


def _code_of(target: torch._ops.OpOverload) -> list[Callable[..., Any]]:
    definition = OPDEFS.get(target._schema.name)
    return [] if definition is None else [definition._init_fn, *definition._backend_fns.values()]
