"""Assembly: from a lowered step to a verified plan and a program that runs it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import _core, _torch
from .custom_operators import own_state_kept
from .errors import CaptureError
from .interrupts import signals_held
from .lowering import (
    CLONE,
    Lowered,
    Operator,
    is_effect,
    is_random,
    optional_updates,
    reuses,
    runs_once,
)
from .memory_guard import OFF, MemoryGuard
from .opaque_update import OPAQUE_UPDATE
from .profile_rows import OpProfile, Request
from .profiles import DEFAULT, ProfileCache, signature_of, take_profile
from .recorder import QUANTIZED, Ref, is_pure
from .scratch import Scratch
from .update_template import Number


def profile_operators(
    lowered: Lowered, cache: ProfileCache, number: Callable[[Number], int | float]
) -> tuple[list[str], list[OpProfile]]:
    """The signature and profile of every operator, of which each distinct one was run on scratch tensors by now.

    Those that the cache knows from disk are run once, to see that they do what it says; the others are timed as well.
    """
    signatures: list[str] = []
    profiles: list[OpProfile] = []
    corrected: dict[int, tuple[Ref, Ref]] = {}  # buffer -> the window as captured, and as it really is
    scratch = Scratch(number)
    random_state = torch.get_rng_state()
    try:
        for operator in lowered.operators:
            if corrected:
                operator.arguments = _correct(operator.arguments, corrected)
                operator.results = _correct(operator.results, corrected)
            signature = signature_of(operator.target, operator.arguments, operator.results, operator.grad_mode)
            profile = _known(operator, signature, cache, scratch) if can_run_alone(operator) else _assumed(operator)
            if profile is None:
                signals_held.look()
                profile = _profile(operator, [scratch.own(argument) for argument in operator.arguments], timed=True)
                cache.put(signature, profile)
            if lowered.absent and any(ref.buffer in lowered.absent for ref in operator.reads()):
                raise CaptureError(f"{operator.target} reads a result that is not there ({operator.where.source})")
            for correction in profile.corrections:
                told = operator.results[correction.result]
                assert told is not None
                if not correction.dtype:
                    lowered.absent.add(told.buffer)
                    lowered.buffers[told.buffer].nbytes = 0
                    continue
                dtype = getattr(torch, correction.dtype)
                if dtype in QUANTIZED:
                    raise CaptureError(
                        f"{operator.target} gives a quantized tensor ({dtype}), which cannot be planned "
                        f"({operator.where.source})"
                    )
                real = told._replace(dtype=dtype, sizes=correction.sizes, strides=correction.strides)
                corrected[told.buffer] = (told, real)
                operator.results[correction.result] = real
            signatures.append(signature)
            profiles.append(profile)
    finally:
        torch.set_rng_state(random_state)
    lowered.outputs = _correct(lowered.outputs, corrected)
    cache.save()
    return signatures, profiles


def _correct(tree: Any, corrected: dict[int, tuple[Ref, Ref]]) -> Any:
    """Windows on results whose fakes were wrong, as they really are; the rest of the tree as it is."""
    if isinstance(tree, Ref):
        if tree.buffer not in corrected:
            return tree
        told, real = corrected[tree.buffer]
        if (told.sizes, told.strides) == (real.sizes, real.strides):
            return tree._replace(dtype=real.dtype)
        if (tree.sizes, tree.strides) != (told.sizes, told.strides):
            raise CaptureError("a view of a result whose sizes or strides the capture cannot know")
        return real
    if isinstance(tree, (list, tuple)):
        return [_correct(item, corrected) for item in tree]
    return tree


def assume_profiles(lowered: Lowered) -> list[OpProfile]:
    """Profiles without running anything: every operator allocates its results and nothing else."""
    return [_assumed(operator) for operator in lowered.operators]


def can_run_alone(operator: Operator) -> bool:
    """Whether it may run on scratch tensors.

    Not the user's own rule, nor a check that scratch values would fail.
    """
    return not (is_effect(operator) or operator.target is OPAQUE_UPDATE)


def _assumed(operator: Operator) -> OpProfile:
    made = zip(operator.results, operator.made, strict=True)
    return OpProfile(tuple(Request(ref.extent(), i, -1) for i, (ref, new) in enumerate(made) if ref and new), 0, 0)


def _known(operator: Operator, signature: str, cache: ProfileCache, scratch: Scratch) -> OpProfile | None:
    """Its profile in the cache, if the operator does here what that says."""
    profile = cache.get(signature)
    if profile is None or cache.is_confirmed(signature, profile):
        return profile
    for _ in range(2):  # the first run in a process may set something up
        signals_held.look()
        arguments = [_to_confirm(operator, argument, scratch) for argument in operator.arguments]
        with contextlib.suppress(Exception):  # what is wrong with it is told where it is taken anew
            if _profile(operator, arguments, timed=False).behaviour == profile.behaviour:
                cache.confirm(signature, profile.behaviour)
                return profile
    cache.forget(signature)
    return None


def _to_confirm(operator: Operator, argument: Any, scratch: Scratch) -> tuple[str, Any]:
    """Only of PyTorch's own operators it is known what they write."""
    return scratch.lent(argument, operator.writes) if is_pure(operator.target) else scratch.own(argument)


def _profile(operator: Operator, arguments: Sequence[tuple[str, Any]], *, timed: bool) -> OpProfile:
    try:
        with own_state_kept(operator.target):
            return take_profile(
                operator.target, arguments, operator.results, operator.made, operator.grad_mode, timed=timed
            )
    except CaptureError as error:
        raise CaptureError(f"{error} ({operator.where.source})") from error


def build_graph(lowered: Lowered, profiles: Sequence[OpProfile], margin: int = 0) -> _core.Graph:
    """The planner's view of the step: buffers, versions, operators in program order.

    Whatever lies in the arena gets `margin` bytes more on either side.
    """
    _take_real_sizes(lowered, profiles)
    builder = _core.GraphBuilder()
    for buffer in lowered.buffers:
        resident = buffer.kind != "planned"
        size = buffer.nbytes if resident else _with_margins(buffer.nbytes, margin)
        builder.buffer(size, resident=resident, initial=buffer.kind == "bound", role=buffer.role, name=buffer.name)
    versions = [0] * len(lowered.buffers)
    values: dict[tuple[Ref, int], int] = {}

    def value(ref: Ref) -> int:
        key = (ref, versions[ref.buffer])
        if key not in values:
            values[key] = builder.value(ref.buffer, str(ref.dtype)[6:], ref.sizes)
        return values[key]

    for operator, profile in zip(lowered.operators, profiles, strict=True):
        reads = [value(ref) for ref in dict.fromkeys([*operator.reads(), *operator.held])]
        new = [
            ref.buffer for ref, made in zip(operator.results, operator.made, strict=True) if made and ref is not None
        ]
        writes = [*operator.writes, *new]
        op = builder.op(
            str(operator.target),
            reads,
            writes,
            workspace=_with_margins(profile.workspace, margin),
            time_ns=profile.time_ns,
            random=is_random(operator),
            mutating=bool(operator.writes),
            must_not_recompute=runs_once(operator) or not lowered.kept.isdisjoint(writes),
            may_skip_updates=bool(optional_updates(operator, lowered.buffers)),
            backward=operator.backward,
            source=operator.where.source,
            module=operator.where.module,
            region=operator.region,
        )
        for source, result in reuses(operator, lowered.buffers):
            builder.reuse(op, source, result)
        for written in writes:
            versions[written] += 1
    return builder.build()


def _with_margins(size: int, margin: int) -> int:
    return size + 2 * margin if size else 0


def _take_real_sizes(lowered: Lowered, profiles: Sequence[OpProfile]) -> None:
    """Fake metadata says how large a result is, the profile how large its allocation is."""
    for operator, profile in zip(lowered.operators, profiles, strict=True):
        for request in profile.requests:
            ref = operator.results[request.result] if 0 <= request.result < len(operator.results) else None
            if ref is not None and operator.made[request.result] and ref.buffer not in lowered.absent:
                lowered.buffers[ref.buffer].nbytes = request.bytes


@dataclass(slots=True)
class Program:
    """A plan in executable form, and how to find its parts again."""

    runtime: _torch.Program
    operators: list[int]  # by call: which operator it is
    buffers: list[int]  # by buffer of the runtime: which of the step's it stands for


def assemble(
    lowered: Lowered,
    profiles: Sequence[OpProfile],
    plan: _core.Plan,
    numbers: Sequence[int | float],
    guard: MemoryGuard = OFF,
) -> Program:
    """Builds the program of a verified plan: tensors at their planned addresses, calls in planned order.

    The runtime has a buffer for each block of the plan: the step's own buffers come first, in their order.
    """
    runtime = _torch.Program(plan.arena_bytes, guard.level)
    buffers = plan.block_buffers()
    own = list(range(len(lowered.buffers)))
    assert buffers[: len(own)] == own, "block i stands in for buffer i"
    offsets = [offset + guard.margin for offset in plan.offsets()]
    workspaces = [offset + guard.margin for offset in plan.workspace_offsets()]
    ending: dict[int, list[int]] = {}
    for block, end in enumerate(plan.ends()):
        buffer = lowered.buffers[buffers[block]]
        planned = buffer.kind == "planned"
        runtime.add_buffer(buffer.kind, buffer.nbytes, offsets[block] if planned else 0)
        if planned and end > 0:
            ending.setdefault(end - 1, []).append(block)
    values: dict[tuple[int, Ref], int] = {}
    first_call: dict[int, int] = {}  # by operator

    def value(block: int, ref: Ref) -> int:
        if (block, ref) not in values:
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
            if ref is not None and operator.made[request.result] and lowered.buffers[ref.buffer].kind == "planned":
                requests.append((request.bytes, offsets[block_of[ref.buffer]]))
            elif request.result < 0 and request.offset >= 0:
                requests.append((request.bytes, workspaces[step] + request.offset))
            else:
                requests.append((request.bytes, -1))
        pairs = [(block_of[source], block_of[made]) for source, made in reuses(operator, lowered.buffers)]
        runtime.add_call(
            operator.target._schema.name,
            operator.target._schema.overload_name,
            [describe(None if i in left_out else argument) for i, argument in enumerate(operator.arguments)],
            [result(ref) for ref in operator.results],
            requests,
            ending.get(step, []),
            [] if left_out else [block_of[buffer] for buffer in operator.writes],
            [pair for pair in pairs if offsets[pair[0]] == offsets[pair[1]]],
            (workspaces[step], profile.workspace),
            operator.grad_mode,
            _core.op_leaves_results_unwritten(operator.target._schema.name),
            operator.target is CLONE,
            first if first != step and is_random(operator) else -1,
        )

    for step, index in enumerate(plan.order):
        add_call(step, index, {buffers[block]: block for block in plan.step_blocks(step)})
    for ref in lowered.outputs:
        runtime.add_output(value(ref.buffer, ref))
    runtime.finish(list(numbers))
    return Program(runtime, plan.order, buffers)
