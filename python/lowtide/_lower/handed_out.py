"""Gradients that are planned as all else is: they lie in the arena from their birth, and stay there for the caller.

Otherwise a gradient is the caller's from the start of the step: its bytes are there beside the arena before it is made.
In the arena others can lie at its place until then, and it can take the place of an operand that dies. Of such a step
the last operator hands the gradients out, after everything else; who holds them holds their part of the arena.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .. import _core
from .._base.pause import HAND_OUT
from .._capture.recorder import Ref, Where
from .lowering import Lowered, Operator, is_effect
from .profile_rows import OpProfile


def with_gradients_in_arena(lowered: Lowered, gradients: Sequence[Ref]) -> Lowered:
    """The same step with those of the gradients in the arena that it makes there.

    The step as it is if it makes none, or has operators that only raise errors: nothing could wait for those.
    """
    made = {ref.buffer: lowered.buffers[ref.buffer] for ref in gradients}
    mine = {index for index, buffer in made.items() if buffer.kind == "made" and buffer.nbytes > 0}
    if not mine or any(is_effect(operator) for operator in lowered.operators):
        return lowered
    buffers = [
        replace(buffer, kind="planned") if index in mine else buffer for index, buffer in enumerate(lowered.buffers)
    ]
    given = [ref for ref in dict.fromkeys(gradients) if ref.buffer in mine]
    last = Operator(HAND_OUT, [given], [], [], [], Where("hand_out", ""), backward=True)
    last.held = [lowered.whole(buffer) for buffer in _last_effects(lowered) if buffer not in mine]
    return replace(lowered, buffers=buffers, operators=[*lowered.operators, last], kept=lowered.kept | mine)


def with_hand_out(profiles: Sequence[OpProfile], lowered: Lowered) -> list[OpProfile]:
    """The profiles of what `with_gradients_in_arena` has made of the step that they are of."""
    added = len(lowered.operators) - len(profiles)
    return [*profiles, *[OpProfile((), 0, 0)] * added]


def hands_out_last(lowered: Lowered, plan: _core.Plan) -> bool:
    """Whether nothing runs after gradients are handed out, where they are."""
    places = [step for step, index in enumerate(plan.order) if lowered.operators[index].target is HAND_OUT]
    return not places or places == [len(plan.order) - 1]


def _last_effects(lowered: Lowered) -> list[int]:
    """For each operator of which no later one reads anything: a buffer that it makes or writes."""
    read: set[int] = set()
    found: list[int] = []
    for operator in reversed(lowered.operators):
        touched = [*operator.writes, *(ref.buffer for ref in operator.new_results())]
        touched = [buffer for buffer in touched if buffer not in lowered.absent]
        if touched and read.isdisjoint(touched):
            found.append(touched[0])
        read.update(ref.buffer for ref in [*operator.reads(), *operator.held])
    return list(dict.fromkeys(found))
