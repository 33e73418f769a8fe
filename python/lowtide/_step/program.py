"""The program of a plan: a lowered step in the form that the runtime runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from .. import _core, _torch
from .._base.devices import alignment_on
from .._base.pause import PAUSE, TURN
from .._base.schemas import DEFAULT
from .._capture.recorder import Ref
from .._lower.lowering import CLONE, Buffer, Lowered, Operator, is_random, optional_updates, reuses
from .._lower.profile_rows import OpProfile
from .._lower.step_parts import Parts
from .._optimizer.template import Number
from ..errors import InvalidPlanError
from .memory_guard import OFF, MemoryGuard
from .part_steps import PartSteps
from .swapping import SwapTier


@dataclass(slots=True)
class Program:
    """A plan in executable form, and how to find its parts again."""

    runtime: _torch.Program
    operators: list[int]  # by call: which operator it is
    buffers: list[int]  # by buffer of the runtime: which of the step's it stands for
    parts: dict[int, str] = field(default_factory=dict)  # calls that run a part -> the signature of its profile


def _kind_of_block(buffer: Buffer, *, is_home: bool, in_memory: bool) -> str:
    """What the runtime is told of a block: the first of each buffer is where the caller finds that, if it does."""
    if buffer.kind == "planned":
        return "planned" if in_memory else "slot"
    if not is_home:
        return "planned"
    return "made" if buffer.kind == "aside" else buffer.kind


def assemble(
    lowered: Lowered,
    profiles: Sequence[OpProfile],
    plan: _core.Plan,
    numbers: Sequence[int | float],
    guard: MemoryGuard = OFF,
    swap: SwapTier | None = None,
    parts: Parts | None = None,
) -> Program:
    """Builds the program of a verified plan: tensors at their planned addresses, calls in planned order.

    The runtime has a buffer for each block of the plan: the step's own buffers come first, in their order. Each step of
    the plan is one call. `parts` are those of the graph that was planned.
    """
    if plan.alignment_bytes % alignment_on(lowered.device) != 0:
        expected = alignment_on(lowered.device)
        raise InvalidPlanError(f"the plan is aligned to {plan.alignment_bytes} bytes, not to {expected}")
    assembly = _Assembly(lowered, profiles, plan, guard, swap, parts)
    given = iter(lowered.outputs)
    for step, index in enumerate(plan.order):
        assembly.add_step(step, index)
        if lowered.operators[index].target is PAUSE:
            assembly.runtime.add_pause(step)
        elif lowered.operators[index].target is TURN:
            for ref in islice(given, lowered.outputs_at_turn):
                assembly.runtime.add_output(assembly.value(ref.buffer, ref))
            assembly.runtime.add_turn(assembly.kept_bytes(step))
    for ref in given:
        assembly.runtime.add_output(assembly.value(ref.buffer, ref))
    assembly.runtime.finish(list(numbers))
    return Program(assembly.runtime, plan.order, assembly.buffers, assembly.part_signatures)


class _Assembly:
    def __init__(
        self,
        lowered: Lowered,
        profiles: Sequence[OpProfile],
        plan: _core.Plan,
        guard: MemoryGuard,
        swap: SwapTier | None,
        parts: Parts | None,
    ) -> None:
        self.lowered = lowered
        self.profiles = profiles
        self.plan = plan
        self.runtime = _torch.Program(lowered.device, plan.arena_bytes, guard.level)
        self.buffers = plan.block_buffers()
        self.offsets = [offset + guard.margin for offset in plan.offsets()]
        self.workspaces = [offset + guard.margin for offset in plan.workspace_offsets()]
        self.part_steps = PartSteps(lowered, plan, parts)
        self.part_signatures: dict[int, str] = {}
        self.values: dict[tuple[int, Ref], int] = {}
        self.ending: dict[int, list[int]] = {}
        self.kinds: list[str] = []  # by block
        self.homes: dict[int, int] = {}
        self.opened: set[int] = set()  # blocks that parts deliver to
        self.first_call: dict[int, int] = {}  # by operator
        self.runs_left: dict[int, int] = {}  # by operator: calls that its first run still has
        self._add_blocks(swap)

    def _add_blocks(self, swap: SwapTier | None) -> None:
        plan, runtime, buffers = self.plan, self.runtime, self.buffers
        own = list(range(len(self.lowered.buffers)))
        handed_out = {ref.buffer for ref in self.lowered.outputs}  # what is planned of it lives on behind the step
        assert buffers[: len(own)] == own, "block i stands in for buffer i"
        tiers = plan.block_tiers()
        if any(tiers):
            assert swap is not None, "a plan with a tier needs one"
            runtime.use_tier(swap.slow, plan.tier_arena_bytes[0])
        for block, end in enumerate(plan.ends()):
            buffer = self.lowered.buffers[buffers[block]]
            kind = _kind_of_block(buffer, is_home=block < len(own), in_memory=tiers[block] == 0)
            self.kinds.append(kind)
            offset = self.offsets[block] if kind in ("planned", "slot") else 0
            runtime.add_buffer(kind, buffer.nbytes // self.part_steps.held(block).count, offset, buffer.device)
            if kind == "planned" and end > 0 and not (block < len(own) and block in handed_out):
                self.ending.setdefault(end - 1, []).append(block)
        self.homes = {b: buffers[b] for b, tier in enumerate(tiers) if tier == 0 and tiers[buffers[b]] != 0}
        for block, home in self.homes.items():
            runtime.add_home(block, home)
        for source, target, issue, wait in plan.transfers():
            runtime.add_transfer(source, target, issue, wait, stores=tiers[source] == 0)

    def value(self, block: int, ref: Ref) -> int:
        """The window `ref` on this block."""
        if (block, ref) not in self.values:
            if block in self.homes:  # what it shares with others is seen at its home
                self.value(self.homes[block], ref)
            added = self.runtime.add_value(block, ref.dtype, ref.sizes, ref.strides, ref.offset)
            self.values[block, ref] = added
        return self.values[block, ref]

    def add_step(self, step: int, index: int) -> None:
        """The next step of the plan runs operator `index`, or a part of it."""
        block_of = {self.buffers[block]: block for block in self.plan.step_blocks(step)}
        operator = self.lowered.operators[index]
        part = self.part_steps.at(step, index, block_of)
        first = self.first_call.setdefault(index, step)
        left = self.runs_left.setdefault(index, 1 if part is None else part.call.count)
        self.runs_left[index] = left - 1
        left_out = optional_updates(operator, self.lowered.buffers) if left <= 0 else []
        draws_like = first if left <= 0 and is_random(operator) else -1
        pairs = [(block_of[source], block_of[made]) for source, made in reuses(operator, self.lowered.buffers)]
        replaces = [pair for pair in pairs if self.offsets[pair[0]] == self.offsets[pair[1]]]
        if part is None:
            requests = self._requests(step, index, block_of)
            workspace = self.profiles[index].workspace
            delivers, opens = [], []
        else:
            self.part_signatures[step] = part.signature
            operator = part.call.operator
            opens = self._opened(part.call.results, operator, block_of)
            outside = [(self.lowered.buffers[self.buffers[b]].nbytes, -1) for b in opens if self.kinds[b] == "made"]
            requests = [*outside, *part.requests(block_of, self.offsets, self.workspaces[step])]
            workspace, delivers = part.workspace, part.call.delivers()
        # The turn stands for whoever makes the tangents: it is not the program that writes them.
        written = [block_of[buffer] for buffer in operator.writes if operator.target is not TURN]
        self.runtime.add_call(
            operator.target._schema.name,
            operator.target._schema.overload_name,
            [
                self._describe(None if i in left_out else argument, block_of)
                for i, argument in enumerate(operator.arguments)
            ],
            [self._result(ref, block_of) for ref in operator.results],
            requests,
            self.ending.get(step, []),
            [] if left_out else [*written, *(self.homes[block] for block in written if block in self.homes)],
            replaces,
            (self.workspaces[step], workspace),
            operator.grad_mode,
            _core.op_row(operator.target._schema.name).leaves_results_unwritten,
            operator.target is CLONE and part is None,
            draws_like,
            delivers,
            opens,
        )

    def _describe(self, argument: Any, block_of: dict[int, int]) -> tuple[str, Any]:
        if argument is DEFAULT:
            return ("default", None)
        if isinstance(argument, Ref):
            return ("value", self.value(block_of[argument.buffer], argument))
        if isinstance(argument, Number):
            return ("number", argument.index)
        if isinstance(argument, (list, tuple)) and any(isinstance(i, (Ref, Number)) for i in argument):
            return ("list", [self._describe(item, block_of) for item in argument])
        return ("constant", argument)

    def _result(self, ref: Ref | None, block_of: dict[int, int]) -> int:
        return -1 if ref is None or ref.buffer in self.lowered.absent else self.value(block_of[ref.buffer], ref)

    def _requests(self, step: int, index: int, block_of: dict[int, int]) -> list[tuple[int, int]]:
        """By request of a whole operator: its bytes, and its place in the arena or -1."""
        operator = self.lowered.operators[index]
        requests: list[tuple[int, int]] = []
        for request in self.profiles[index].requests:
            ref = operator.results[request.result] if request.result >= 0 else None
            if ref is not None and operator.made[request.result] and self.kinds[block_of[ref.buffer]] == "planned":
                requests.append((request.bytes, self.offsets[block_of[ref.buffer]]))
            elif request.result < 0 and request.offset >= 0:
                requests.append((request.bytes, self.workspaces[step] + request.offset))
            else:
                requests.append((request.bytes, -1))
        return requests

    def kept_bytes(self, step: int) -> int:
        """The end of what lies in the arena behind a step."""
        lives = zip(self.plan.begins(), self.plan.ends(), strict=True)
        left = [b for b, (begin, end) in enumerate(lives) if self.kinds[b] == "planned" and begin <= step < end - 1]
        return max((self.offsets[b] + self.lowered.buffers[self.buffers[b]].nbytes for b in left), default=0)

    def _opened(self, results: Iterable[int], operator: Operator, block_of: dict[int, int]) -> list[int]:
        """The blocks that a part is the first to deliver to."""
        refs = [operator.results[result] for result in results]
        blocks = dict.fromkeys(block_of[ref.buffer] for ref in refs if ref is not None)
        opens = [block for block in blocks if block not in self.opened]
        self.opened.update(opens)
        return opens
