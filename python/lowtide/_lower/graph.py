"""Profiles of a lowered step's operators, and the graph that is planned."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .. import _core
from .._base.decisions import decided
from .._base.devices import CPU
from .._base.interrupts import signals_held
from .._base.pause import HAND_OUT, PAUSE, TURN
from .._base.progress import ProgressLine
from .._base.random_states import read_random_states, set_random_states
from .._capture.layouts import layouts
from .._capture.recorder import QUANTIZED, Ref, is_pure
from .._optimizer.opaque import OPAQUE_UPDATE
from .._optimizer.template import Number
from ..errors import CaptureError
from .custom_operators import own_state_kept
from .lowering import (
    Lowered,
    Operator,
    is_effect,
    is_random,
    optional_updates,
    reuses,
    runs_once,
)
from .profile_rows import OpProfile, Request
from .profiles import ProfileCache, signature_of, take_profile
from .scratch import Scratch
from .shared_times import shared_times
from .step_parts import CountedAxis


def profile_operators(
    lowered: Lowered,
    cache: ProfileCache,
    number: Callable[[Number], int | float],
    make_room: Callable[[], None] = lambda: None,
) -> tuple[list[str], list[OpProfile]]:
    """The signature and profile of every operator, of which each distinct one was run on scratch tensors by now.

    Those that the cache knows from disk are run once, to see that they do what it says; the others are timed as well.
    Calls whose results have other strides than in the capture are in `lowered.misled` afterwards. Where jobs have times
    in common, the profiles have those.
    """
    shared = shared_times(lowered.operators) if cache.shares_times else None
    if shared is not None:
        cache.expect(shared.expected())
    signatures: list[str] = []
    profiles: list[OpProfile] = []
    corrected: dict[int, tuple[Ref, Ref]] = {}  # buffer -> the window as captured, and as it really is
    laid_out: dict[int, tuple[Ref, Ref]] = {}  # the same with the dtype of the capture, as the next one will have it
    scratch = Scratch(number, make_room)
    random_state = read_random_states()
    line = ProgressLine("profiling", len(lowered.operators))
    begin, run = time.perf_counter(), 0
    try:
        for index, operator in enumerate(lowered.operators):
            line.show(done=index)
            as_captured = operator.arguments
            if corrected:
                as_captured = _correct(as_captured, laid_out)
                operator.arguments = _correct(operator.arguments, corrected)
                operator.results = _correct(operator.results, corrected)
            signature = signature_of(operator.target, operator.arguments, operator.results, operator.grad_mode)
            profile = _known(operator, signature, cache, scratch) if can_run_alone(operator) else _assumed(operator)
            if profile is None:
                signals_held.look()
                run += 1
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
                same_sizes = (told.dtype, told.sizes) == (dtype, correction.sizes)
                if same_sizes and told.strides != correction.strides and index not in lowered.updates:
                    is_new = layouts.learn(operator.target, as_captured, correction.result, correction.strides)
                    call = f"{operator.target} ({operator.where.source})"
                    lowered.misled[call] = lowered.misled.get(call, False) or is_new
                device = CPU if correction.on_cpu else told.device
                real = told._replace(dtype=dtype, sizes=correction.sizes, strides=correction.strides, device=device)
                if correction.on_cpu:
                    lowered.lies_on_cpu(told.buffer)
                corrected[told.buffer] = (told, real)
                laid_out[told.buffer] = (told, real._replace(dtype=told.dtype, device=told.device))
                operator.results[correction.result] = real
            signatures.append(signature)
            profiles.append(profile)
    finally:
        line.clear()
        set_random_states(random_state)
    seconds = round(time.perf_counter() - begin, 4)
    decided("profile", "profiled", operators=len(profiles), run_alone=run, seconds=seconds)
    lowered.outputs = _correct(lowered.outputs, corrected)
    cache.save()
    if shared is not None:
        own = zip(lowered.operators, signatures, profiles, strict=True)
        agreed = shared.agree({name: profile for op, name, profile in own if can_run_alone(op)})
        profiles = [agreed.get(name, profile) for name, profile in zip(signatures, profiles, strict=True)]
    return signatures, profiles


def _correct(tree: Any, corrected: dict[int, tuple[Ref, Ref]]) -> Any:
    """Windows on results whose fakes were wrong, as they really are; the rest of the tree as it is."""
    if isinstance(tree, Ref):
        if tree.buffer not in corrected:
            return tree
        told, real = corrected[tree.buffer]
        if (told.sizes, told.strides) == (real.sizes, real.strides):
            return tree._replace(dtype=real.dtype, device=real.device)
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

    Not the user's own rule, nor a check that scratch values would fail, nor a pause, a turn or what hands out, which
    have all that lasts.
    """
    return not (is_effect(operator) or operator.target in (OPAQUE_UPDATE, PAUSE, TURN, HAND_OUT))


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


def build_graph(
    lowered: Lowered,
    profiles: Sequence[OpProfile],
    margin: int = 0,
    axes: Mapping[int, Sequence[CountedAxis]] | None = None,
) -> _core.Graph:
    """The planner's view of the step: buffers, versions, operators in program order, and how those run in parts.

    Whatever lies in the arena gets `margin` bytes more on either side; then nothing runs in parts.
    """
    _take_real_sizes(lowered, profiles)
    builder = _core.GraphBuilder()
    for buffer in lowered.buffers:
        resident = buffer.kind in ("bound", "made")
        size = buffer.nbytes if resident else _with_margins(buffer.nbytes, margin)
        if buffer.kind == "aside":
            size = 0  # of the device whose memory is planned
        builder.buffer(size, resident=resident, initial=buffer.kind == "bound", role=buffer.role, name=buffer.name)
    versions = [0] * len(lowered.buffers)
    values: dict[tuple[Ref, int], int] = {}

    def value(ref: Ref) -> int:
        key = (ref, versions[ref.buffer])
        if key not in values:
            values[key] = builder.value(ref.buffer, str(ref.dtype)[6:], ref.sizes)
        return values[key]

    for index, (operator, profile) in enumerate(zip(lowered.operators, profiles, strict=True)):
        reads = [value(ref) for ref in dict.fromkeys([*operator.reads(), *operator.held])]
        writes = [*operator.writes, *(ref.buffer for ref in operator.new_results())]
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
        for counted in axes.get(index, ()) if axes and not margin else ():
            counts = [(cost.count, cost.workspace, cost.time_ns, cost.exact) for cost in counted.counts]
            builder.axis(op, counted.periods.reads, counted.periods.writes, counts)
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
