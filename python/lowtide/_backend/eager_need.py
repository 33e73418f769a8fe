"""What a region needs in eager, beside what is the caller's."""

from __future__ import annotations

from collections.abc import Sequence

from .._base.pause import TURN
from .._lower.lowering import Lowered
from .._lower.profile_rows import OpProfile


def eager_need(lowered: Lowered, profiles: Sequence[OpProfile]) -> int:
    """The most bytes alive at once in program order: gradients from their birth on, all else while it is used.

    An output is used until the forward pass is over. The caller may hold it for longer.
    """
    turn = next(place for place, operator in enumerate(lowered.operators) if operator.target is TURN)
    last_use = {ref.buffer: place for place, op in enumerate(lowered.operators) for ref in op.reads()}
    ends: dict[int, list[int]] = {}
    alive = most = 0
    for place, (operator, profile) in enumerate(zip(lowered.operators, profiles, strict=True)):
        for ref in operator.new_results():
            buffer = lowered.buffers[ref.buffer]
            alive += buffer.nbytes
            if buffer.kind == "planned" or place < turn:
                ends.setdefault(max(place, last_use.get(ref.buffer, place)), []).append(buffer.nbytes)
        most = max(most, alive + profile.workspace)
        alive -= sum(ends.pop(place, ()))
    return most
