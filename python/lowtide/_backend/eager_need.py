"""What a region needs in eager, beside what is the caller's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .._base.pause import TURN
from .._lower.lowering import Lowered
from .._lower.profile_rows import OpProfile


@dataclass(frozen=True, slots=True)
class EagerNeed:
    """Bytes that are alive at once: the most, and those between the passes."""

    most: int
    held: int


def eager_need(lowered: Lowered, profiles: Sequence[OpProfile]) -> EagerNeed:
    """In program order: gradients from their birth on, all else while it is used.

    An output is used until the forward pass is over. The caller may hold it for longer.
    """
    turn = next(place for place, operator in enumerate(lowered.operators) if operator.target is TURN)
    last_use = {ref.buffer: place for place, op in enumerate(lowered.operators) for ref in op.reads()}
    ends: dict[int, list[int]] = {}
    alive = most = held = 0
    for place, (operator, profile) in enumerate(zip(lowered.operators, profiles, strict=True)):
        for ref in operator.new_results():
            buffer = lowered.buffers[ref.buffer]
            alive += buffer.nbytes
            if buffer.kind == "planned" or place < turn:
                ends.setdefault(max(place, last_use.get(ref.buffer, place)), []).append(buffer.nbytes)
        most = max(most, alive + profile.workspace)
        held = alive if place == turn else held
        alive -= sum(ends.pop(place, ()))
    return EagerNeed(most, held)
