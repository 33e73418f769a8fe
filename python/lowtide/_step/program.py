"""The program of a plan: a lowered step in the form that the runtime runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import _core, _torch
from .._base.devices import alignment_on
from .._base.pause import PAUSE
from .._base.schemas import DEFAULT
from .._capture.recorder import Ref
from .._lower.lowering import CLONE, Buffer, Lowered, is_random, optional_updates, reuses
from .._lower.profile_rows import OpProfile
from .._optimizer.template import Number
from ..errors import InvalidPlanError
from .memory_guard import OFF, MemoryGuard
from .swapping import SwapTier


@dataclass(slots=True)
class Program:
    """A plan in executable form, and how to find its parts again."""

    runtime: _torch.Program
    operators: list[int]  # by call: which operator it is
    buffers: list[int]  # by buffer of the runtime: which of the step's it stands for


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
) -> Program:
    """Builds the program of a verified plan: tensors at their planned addresses, calls in planned order.

    The runtime has a buffer for each block of the plan: the step's own buffers come first, in their order.
    """
    device = lowered.device
    if plan.alignment_bytes % alignment_on(device) != 0:
        raise InvalidPlanError(f"the plan is aligned to {plan.alignment_bytes} bytes, not to {alignment_on(device)}")
    runtime = _torch.Program(device, plan.arena_bytes, guard.level)
    buffers = plan.block_buffers()
    own = list(range(len(lowered.buffers)))
    assert buffers[: len(own)] == own, "block i stands in for buffer i"
    offsets = [offset + guard.margin for offset in plan.offsets()]
    workspaces = [offset + guard.margin for offset in plan.workspace_offsets()]
    tiers = plan.block_tiers()
    if any(tiers):
        assert swap is not None, "a plan with a tier needs one"
        runtime.use_tier(swap.slow, plan.tier_arena_bytes[0])
    ending: dict[int, list[int]] = {}
    kinds: list[str] = []  # by block
    for block, end in enumerate(plan.ends()):
        buffer = lowered.buffers[buffers[block]]
        kinds.append(_kind_of_block(buffer, is_home=block < len(own), in_memory=tiers[block] == 0))
        placed = kinds[-1] in ("planned", "slot")
        runtime.add_buffer(kinds[-1], buffer.nbytes, offsets[block] if placed else 0, buffer.device)
        if kinds[-1] == "planned" and end > 0:
            ending.setdefault(end - 1, []).append(block)
    homes = {block: buffers[block] for block, tier in enumerate(tiers) if tier == 0 and tiers[buffers[block]] != 0}
    for block, home in homes.items():
        runtime.add_home(block, home)
    for source, target, issue, wait in plan.transfers():
        runtime.add_transfer(source, target, issue, wait, stores=tiers[source] == 0)
    values: dict[tuple[int, Ref], int] = {}
    first_call: dict[int, int] = {}  # by operator

    def value(block: int, ref: Ref) -> int:
        if (block, ref) not in values:
            if block in homes:  # what it shares with others is seen at its home
                value(homes[block], ref)
            values[block, ref] = runtime.add_value(block, ref.dtype, ref.sizes, ref.strides, ref.offset)
        return values[block, ref]

    def add_call(step: int, index: int, block_of: dict[int, int]) -> None:
        """`block_of` gives the block of each of the operator's buffers at this step."""
        operator, profile = lowered.operators[index], profiles[index]
        first = first_call.setdefault(index, step)
        left_out = optional_updates(operator, lowered.buffers) if first != step else []

        def describe(argument: Any) -> tuple[str, Any]:
            if argument is DEFAULT:
                return ("default", None)
            if isinstance(argument, Ref):
                return ("value", value(block_of[argument.buffer], argument))
            if isinstance(argument, Number):
                return ("number", argument.index)
            if isinstance(argument, (list, tuple)) and any(isinstance(i, (Ref, Number)) for i in argument):
                return ("list", [describe(item) for item in argument])
            return ("constant", argument)

        def result(ref: Ref | None) -> int:
            return -1 if ref is None or ref.buffer in lowered.absent else value(block_of[ref.buffer], ref)

        requests: list[tuple[int, int]] = []
        for request in profile.requests:
            ref = operator.results[request.result] if request.result >= 0 else None
            if ref is not None and operator.made[request.result] and kinds[block_of[ref.buffer]] == "planned":
                requests.append((request.bytes, offsets[block_of[ref.buffer]]))
            elif request.result < 0 and request.offset >= 0:
                requests.append((request.bytes, workspaces[step] + request.offset))
            else:
                requests.append((request.bytes, -1))
        written = [block_of[buffer] for buffer in operator.writes]
        pairs = [(block_of[source], block_of[made]) for source, made in reuses(operator, lowered.buffers)]
        runtime.add_call(
            operator.target._schema.name,
            operator.target._schema.overload_name,
            [describe(None if i in left_out else argument) for i, argument in enumerate(operator.arguments)],
            [result(ref) for ref in operator.results],
            requests,
            ending.get(step, []),
            [] if left_out else [*written, *(homes[block] for block in written if block in homes)],
            [pair for pair in pairs if offsets[pair[0]] == offsets[pair[1]]],
            (workspaces[step], profile.workspace),
            operator.grad_mode,
            _core.op_row(operator.target._schema.name).leaves_results_unwritten,
            operator.target is CLONE,
            first if first != step and is_random(operator) else -1,
        )

    for step, index in enumerate(plan.order):
        add_call(step, index, {buffers[block]: block for block in plan.step_blocks(step)})
        if lowered.operators[index].target is PAUSE:
            runtime.add_pause(step)
    for ref in lowered.outputs:
        runtime.add_output(value(ref.buffer, ref))
    runtime.finish(list(numbers))
    return Program(runtime, plan.order, buffers)
