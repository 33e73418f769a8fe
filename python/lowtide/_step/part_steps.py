"""The steps of a plan that run a part of an operator: which windows, which requests, and where results go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .. import _core
from .._lower.lowering import Lowered
from .._lower.part_calls import PartCall
from .._lower.profile_rows import PartProfile
from .._lower.step_parts import Parts
from ..errors import InvalidPlanError


@dataclass(frozen=True, slots=True)
class Held:
    """What a block holds of its buffer: one part, or the whole."""

    period: int = 0
    index: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True)
class PartStep:
    """One part of an operator, ready to be called."""

    call: PartCall
    profile: PartProfile
    signature: str
    workspace: int  # that the plan gives it

    def requests(self, block_of: Mapping[int, int], offsets: Sequence[int], workspace: int) -> list[tuple[int, int]]:
        """By request: its bytes, and its place in the arena or -1; `workspace` is where that lies."""
        served: list[tuple[int, int]] = []
        copied = {result for result in self.call.results if not self._is_in_place(result)}
        for request in self.profile.requests:
            if request.delivers >= 0 and request.delivers not in copied:
                continue
            if request.result in self.call.results and request.result not in copied:
                delivery = self.call.results[request.result]
                served.append((request.bytes, offsets[block_of[delivery.place.buffer]] + delivery.begin))
            elif request.offset >= 0 and request.offset + request.bytes <= self.workspace:
                served.append((request.bytes, workspace + request.offset))
            else:
                served.append((request.bytes, -1))
        return served

    def _is_in_place(self, result: int) -> bool:
        return self.call.results[result].in_place and result in self.profile.in_place


class PartSteps:
    """What a plan says of parts, by step and by block."""

    def __init__(self, lowered: Lowered, plan: _core.Plan, parts: Parts | None) -> None:
        self._lowered = lowered
        self._steps: list[tuple[int, int, int]] = plan.step_parts()
        self._blocks = [Held(*held) for held in plan.block_parts()]
        self._parts = parts
        if parts is None and any(count > 1 for *_, count in self._steps):
            raise InvalidPlanError("the plan runs operators in parts, which this step has none of")

    def held(self, block: int) -> Held:
        """What this block holds of its buffer."""
        return self._blocks[block] if self._blocks else Held()

    def at(self, step: int, index: int, block_of: Mapping[int, int]) -> PartStep | None:
        """The part that the step runs of operator `index`; None if it runs the whole."""
        axis, part, count = self._steps[step] if self._steps else (0, 0, 1)
        if count == 1 or self._parts is None:
            return None
        alone = {buffer: self.held(block).period for buffer, block in block_of.items() if self.held(block).count > 1}
        found = self._parts.run(index, axis, part, count, alone)
        return PartStep(found.call, found.profile, found.signature, self._parts.workspace(index, axis, count))
