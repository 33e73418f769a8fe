"""A region for inputs of one form: its graph, its plan, and the programs that run it.

Each run has a program to itself from the beginning of its forward pass to the end of its backward pass. A second
forward pass before the first one's backward pass gets another, and another place in the arena.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import _core, _torch
from .._base.devices import CPU, alignment_on, why_not_planned
from .._base.interrupts import signals_held
from .._base.pause import TURN
from .._capture.recorder import Ref
from .._capture.tape import Root
from .._lower.graph import build_graph, can_run_alone, profile_operators
from .._lower.handed_out import hands_out_last, with_gradients_in_arena, with_hand_out
from .._lower.lowering import Lowered, Operator, lower
from .._lower.part_cache import PartCache
from .._lower.profile_rows import OpProfile
from .._lower.profiles import ProfileCache
from .._lower.step_parts import Parts
from .._lower.sums_apart import with_sums_apart
from .._step.beside import PeakMeter
from .._step.in_parts import plan_in_parts
from .._step.memory_guard import OFF, MemoryGuard, explain_fault
from .._step.program import Program, assemble
from ..errors import CaptureError, InfeasibleError, add_note
from .eager_need import eager_need
from .gradients import Gradients
from .halves import Halves
from .recording import Joint, Layout, Recorded, record, tangent_layouts

_NOTHING = torch.empty(0, dtype=torch.uint8)
_MOST_RECORDINGS = 3  # each knows more of how results are laid out
_MOST_REPLANS = 3
_WORTH_MOVING = 0.99  # of its time: what a plan with gradients in the arena takes at most

Plan = Callable[[_core.Graph, "int | None", int], _core.Plan]  # of a graph, within so many bytes, so aligned
_Plan = Callable[[_core.Graph, "int | None"], _core.Plan]  # the same on the region's device


class GaveUp(RuntimeError):
    """A backward pass whose forward pass has left nothing behind, or something else than it needs."""


@dataclass(frozen=True, slots=True)
class Graphed:
    """A lowered region, and its graph."""

    lowered: Lowered
    profiles: list[OpProfile]
    graph: _core.Graph
    gradients_in_arena: bool


@dataclass(slots=True)
class Planned:
    """A plan of a region, and its programs: as many as there have been runs at once."""

    lowered: Lowered
    profiles: list[OpProfile]
    plan: _core.Plan
    parts: Parts | None
    budget: int | None  # that it was made for
    kept_bytes: int  # of the arena, between the two passes
    gradients_in_arena: bool
    programs: list[Program] = field(default_factory=list)

    @property
    def need(self) -> int:
        """The most bytes that a run has, beside what is the caller's: the arena, and what is handed out."""
        return self.plan.arena_bytes + self.handed_out

    @property
    def handed_out(self) -> int:
        """Bytes of outputs and gradients beside the arena."""
        return sum(buffer.nbytes for buffer in self.lowered.buffers if buffer.kind == "made")

    @property
    def held(self) -> int:
        """Bytes that a run has between its passes, gradients that are to come included."""
        return self.kept_bytes + self.handed_out

    def held_by(self, program: Program) -> int:
        """The same of a certain run: it may be backward twice, or all of its place may be beside the arena."""
        in_arena = max(self.kept_bytes, program.runtime.annex_bytes)
        return in_arena + self.handed_out + program.runtime.bytes_put_aside

    def under_way(self) -> list[Program]:
        """Programs of runs that are not over."""
        return [program for program in self.programs if program.runtime.is_under_way]


class SizedRegion:
    """A region for inputs of one form."""

    def __init__(
        self, joint: Joint, halves: Halves | None, given: Sequence[Any], cache: ProfileCache, guard: MemoryGuard
    ) -> None:
        """`given` are the inputs: the form of tensors, and the value of all else."""
        self.given = given
        self._saved = [] if halves is None else halves.saved
        self._cache = cache
        self._guard = guard
        self._replans = 0
        self.planned: Planned | None = None
        self.retired: list[Planned] = []  # plans that were replaced, with runs that are not over
        with PeakMeter(True, _device_of(given)) as alone:
            self.recorded, self.lowered, self.profiles, self._signatures = _learn(joint, given, cache)
        self.learning_bytes = alone.bytes
        self.graph = build_graph(self.lowered, self.profiles, guard.margin)
        self.gradients = Gradients(self, may_move=halves is not None and guard is OFF)
        self.beside = sum(buffer.nbytes for buffer in self.lowered.buffers if buffer.kind == "bound")
        # With checkpoints, which the graph knows of, eager needs less than in program order.
        in_order = eager_need(self.lowered, self.profiles)
        self.eager_bytes = min(in_order.most, self.graph.eager_bytes - self.beside)  # beside what is the caller's
        self.eager_held = min(in_order.held, self.eager_bytes)  # between its passes
        self._inputs: list[tuple[int, int]] = []  # buffer, input
        self._tangents: list[tuple[int, int]] = []  # buffer, tangent
        self._constants: list[tuple[int, torch.Tensor]] = []
        for index, buffer in enumerate(self.lowered.buffers):
            root = buffer.root
            if buffer.kind != "bound" or not isinstance(root, Root):
                continue
            if root.kind == "constant":
                self._constants.append((index, root.key))
            elif root.key < len(given):
                self._inputs.append((index, root.key))
            else:
                self._tangents.append((index, root.key - len(given)))
        self.writes_inputs = any(
            self.lowered.buffers[written].root is not None and not _is_turn(operator)
            for operator in self.lowered.operators
            for written in operator.writes
        )
        outputs = self._deliveries()
        self._first, self._second = outputs[: joint.num_outputs], outputs[joint.num_outputs :]
        if halves is not None and all(kind == "value" for kind, _ in self._second):
            raise CaptureError("its backward pass gives no gradients")

    def _deliveries(self) -> list[tuple[str, Any]]:
        """By output of the graph: what it is at the end of its pass."""
        found: list[tuple[str, Any]] = []
        place = {ref: index for index, ref in reversed(list(enumerate(self.lowered.outputs)))}
        at_turn = self.lowered.outputs_at_turn
        windows = iter(enumerate(self.lowered.outputs))
        inputs, tangents = dict(self._inputs), dict(self._tangents)
        for output in self.recorded.outputs:
            if not isinstance(output, Ref):
                found.append(("value", output))
                continue
            index, ref = next(windows)
            window = Layout(ref.dtype, ref.sizes, ref.strides, ref.device)
            if ref.buffer in inputs and ref.offset == 0 and window == self.given[inputs[ref.buffer]]:
                found.append(("input", inputs[ref.buffer]))
            elif ref.buffer in tangents and ref.offset == 0 and window == self.recorded.tangents[tangents[ref.buffer]]:
                found.append(("tangent", tangents[ref.buffer]))
            else:  # what is handed out twice is one tensor
                first = place[ref] if (place[ref] < at_turn) == (index < at_turn) else index
                found.append(("result", first if index < at_turn else first - at_turn))
        return found

    # -- planning ------------------------------------------------------------------------------------------------------

    def plan(self, budget: int | None, plan: Plan, *, in_parts: bool = True) -> Planned:
        """A plan for so many bytes, with the gradients in the arena where that pays. Raises `InfeasibleError`.

        Those of other plans, which are there already, may stay where they are.
        """
        before = self.planned
        found = self._plan_for(budget, plan, in_parts=in_parts)
        if not found.gradients_in_arena or before is None or before.budget != budget or self._pays(found, before):
            return found
        self.gradients.stay_apart()
        return before

    def _pays(self, moved: Planned, apart: Planned) -> bool:
        above_eager = apart.budget is None and apart.need > self.eager_bytes
        return moved.plan.time_ns < _WORTH_MOVING * apart.plan.time_ns or (above_eager and moved.need < apart.need)

    def _plan_for(self, budget: int | None, plan: Plan, *, in_parts: bool) -> Planned:
        """A plan for so many bytes beside what is the caller's, or none more than eager. Raises `InfeasibleError`.

        `in_parts`: operators may run in parts if no plan of whole ones keeps the budget.
        """
        parts: Parts | None = None
        limit = None if budget is None else budget + self.beside
        alignment = alignment_on(self.lowered.device)

        def plan_here(graph: _core.Graph, limit: int | None) -> _core.Plan:
            return plan(graph, limit, alignment)

        try:
            graphed, found = self._plan_whole(limit, plan_here)
        except InfeasibleError as error:
            whole = not in_parts or self._guard is not OFF or self.lowered.device != CPU
            if error.code != "E301" or whole:
                raise
            graphed, parts, found = self._in_parts(limit, plan_here, error)
        planned = Planned(
            graphed.lowered, graphed.profiles, found, parts, budget, 0, graphed.gradients_in_arena
        )  # fmt: skip
        planned.programs.append(self._assemble(planned))
        planned.kept_bytes = min(_kept_bytes(planned), found.arena_bytes)
        return planned

    def needs_plan(self, budget: int | None) -> bool:
        """Whether what is planned is not for this budget, or has gradients where they are not to be."""
        if self.planned is None or self.planned.budget != budget:
            return True
        return self.planned.gradients_in_arena not in self.gradients.places()

    def _plan_whole(self, limit: int | None, plan: _Plan) -> tuple[Graphed, _core.Plan]:
        refused: InfeasibleError | None = None
        for graphed in self._graphs():
            try:
                found = self._plan_as_eager(graphed.graph, plan) if limit is None else plan(graphed.graph, limit)
            except InfeasibleError as error:
                refused = error
            else:
                if hands_out_last(graphed.lowered, found):
                    return graphed, found
        assert refused is not None, "a region with its gradients apart hands nothing out"
        raise refused

    def _graphs(self) -> Iterator[Graphed]:
        """The region with its gradients where they are to be, or else may be."""
        for in_arena in self.gradients.places():
            if in_arena:
                yield self._with_gradients(self.lowered, self.profiles)
            else:
                yield Graphed(self.lowered, self.profiles, self.graph, False)

    def _with_gradients(self, lowered: Lowered, profiles: list[OpProfile]) -> Graphed:
        """The same with its gradients in the arena."""
        count = lowered.outputs_at_turn
        given = {ref.buffer for ref in lowered.outputs[:count]}
        moved = with_gradients_in_arena(lowered, [ref for ref in lowered.outputs[count:] if ref.buffer not in given])
        profiles = with_hand_out(profiles, moved)
        return Graphed(moved, profiles, build_graph(moved, profiles, self._guard.margin), True)

    def _plan_as_eager(self, graph: _core.Graph, plan: _Plan) -> _core.Plan:
        """Without a budget: the fastest plan, or one that runs operators again if that is larger than eager."""
        found = plan(graph, None)
        limit = self.eager_bytes + self.beside
        if found.resident_bytes + found.arena_bytes > limit:
            with contextlib.suppress(InfeasibleError):
                found = plan(graph, limit)
        return found

    def use(self, planned: Planned) -> Planned:
        """Runs that begin from now on have this plan."""
        if planned is not self.planned:
            old = [*self.retired, *([self.planned] if self.planned is not None else [])]
            self.retired = [other for other in old if other.under_way()]
            self.planned = planned
        return planned

    def _in_parts(self, limit: int | None, plan: _Plan, error: InfeasibleError) -> tuple[Graphed, Parts, _core.Plan]:
        """Operators run in parts, with the bits of the whole, if that keeps the budget."""
        lowered = with_sums_apart(lower(self.recorded.tape, {}))
        lowered.outputs_at_turn = self.lowered.outputs_at_turn
        _, profiles = profile_operators(lowered, self._cache, lambda _: 0)
        graphed = Graphed(lowered, profiles, build_graph(lowered, profiles), False)
        if self.gradients.in_arena:
            graphed = self._with_gradients(lowered, profiles)
        try:
            found = plan_in_parts(
                graphed.lowered, graphed.profiles, graphed.graph, PartCache(), lambda _: 0,
                lambda graph: plan(graph, limit), bits="assumed",
            )  # fmt: skip
        except InfeasibleError as also:
            raise also from error
        if not hands_out_last(graphed.lowered, found.plan):
            raise error
        return graphed, found.parts, found.plan

    def _assemble(self, planned: Planned) -> Program:
        with torch.inference_mode(False):
            program = assemble(planned.lowered, planned.profiles, planned.plan, (), self._guard, None, planned.parts)
        for buffer, tensor in self._constants:
            program.runtime.bind(buffer, tensor)
        return program

    def runs(self) -> list[tuple[Planned, Program]]:
        """Those that are not over, of all plans."""
        plans = [*self.retired, *([self.planned] if self.planned is not None else [])]
        return [(planned, program) for planned in plans for program in planned.under_way()]

    def find(self, runtime: _torch.Program) -> tuple[Planned, Program] | None:
        """The plan that a program runs."""
        plans = [*self.retired, *([self.planned] if self.planned is not None else [])]
        return next(((p, program) for p in plans for program in p.programs if program.runtime is runtime), None)

    # -- running -------------------------------------------------------------------------------------------------------

    def take(self, planned: Planned) -> Program:
        """A program that nobody runs, claimed."""
        for program in planned.programs:
            if program.runtime.claim():
                return program
        program = self._assemble(planned)
        program.runtime.claim()
        planned.programs.append(program)
        return program

    def forward(self, planned: Planned, program: Program, inputs: Sequence[Any]) -> list[Any] | None:
        """The outputs of the forward pass and what it saves, or None if these inputs share memory that it writes."""
        runtime = program.runtime
        try:
            for buffer, index in self._inputs:
                runtime.bind(buffer, inputs[index], transient=True)
            shares = self.writes_inputs and runtime.overlap() is not None
        except BaseException:
            runtime.unclaim()
            raise
        if shares:
            runtime.unclaim()
            return None
        results = _run(planned, program, runtime.run_to_turn)
        count = self.lowered.outputs_at_turn
        token = results[count] if len(results) > count else _NOTHING
        given = [self._deliver(kind, what, results, inputs, ()) for kind, what in self._first]
        return [*given, token, *(self._save(name, inputs) for name in self._saved)]

    def _save(self, name: str, inputs: Sequence[Any]) -> Any:
        if name in self.recorded.values:
            return self.recorded.values[name]
        index = self.recorded.placeholders.get(name)
        return _NOTHING if index is None else inputs[index]

    def backward(
        self, planned: Planned, program: Program, tangents: Sequence[torch.Tensor], *, again: bool
    ) -> list[Any]:
        """The gradients; `again`: there will be another backward pass of this run."""
        runtime = program.runtime
        changed = runtime.changed_since_turn()
        if changed >= 0:
            runtime.unclaim()
            name = planned.lowered.buffers[program.buffers[changed]].name
            raise GaveUp(
                f"lowtide: {name} was changed in place, or given other memory, between the forward pass of a compiled "
                "region and its backward pass, which needs it as it was: change it after backward(), or change a copy"
            )
        try:
            laid_out = [_as_laid_out(t, form) for t, form in zip(tangents, self.recorded.tangents, strict=True)]
            for buffer, index in self._tangents:
                runtime.bind(buffer, laid_out[index], transient=True)
        except BaseException:
            runtime.unclaim()
            raise
        results = _run(planned, program, lambda look: runtime.run_from_turn(again, look))
        self.gradients.were_given(in_arena=planned.gradients_in_arena)
        return [self._deliver(kind, what, results, (), tangents) for kind, what in self._second]

    @staticmethod
    def _deliver(
        kind: str, what: Any, results: Sequence[torch.Tensor], inputs: Sequence[Any], tangents: Sequence[torch.Tensor]
    ) -> Any:
        if kind == "result":
            return results[what]
        if kind == "value":
            return what
        return inputs[what] if kind == "input" else tangents[what]

    def learn_from(self, planned: Planned, program: Program) -> bool:
        """After a pass: whether requests were others than their profiles said, so that it is to be planned again."""
        missed = program.runtime.missed_calls
        if not missed or planned is not self.planned or program.runtime.escapes or self._replans >= _MOST_REPLANS:
            return False
        operators = [program.operators[call] for call in missed if call not in program.parts]
        wrong = [index for index in operators if can_run_alone(planned.lowered.operators[index])]
        if not wrong or planned.parts is not None:
            return False
        self._replans += 1
        for index in wrong:
            self._cache.forget(self._signatures[index])
        self._signatures, self.profiles = profile_operators(self.lowered, self._cache, lambda _: 0)
        self.graph = build_graph(self.lowered, self.profiles, self._guard.margin)
        return True


def _learn(
    joint: Joint, given: Sequence[Any], cache: ProfileCache
) -> tuple[Recorded, Lowered, list[OpProfile], list[str]]:
    """Records the region and profiles its operators; again where results are laid out in another way than recorded."""
    cache.refresh()
    for _ in range(_MOST_RECORDINGS):
        recorded = record(joint, given, tangent_layouts(joint, given))
        lowered = lower(recorded.tape, {})
        lowered.outputs_at_turn = sum(isinstance(ref, Ref) for ref in recorded.outputs[: joint.num_outputs])
        try:
            signatures, profiles = profile_operators(lowered, cache, lambda _: 0)
        except CaptureError:
            if not any(lowered.misled.values()):
                raise
            continue
        if not any(lowered.misled.values()):
            return recorded, lowered, profiles, signatures
    raise CaptureError(f"{next(iter(lowered.misled))} gives other strides than PyTorch predicts")


def _device_of(given: Sequence[Any]) -> torch.device:
    """The one whose memory is planned, if it can be."""
    devices = {form.device for form in given if isinstance(form, Layout) and not why_not_planned(form.device)}
    return next(iter(devices - {CPU}), CPU)


def _is_turn(operator: Operator) -> bool:
    return operator.target is TURN


def _kept_bytes(planned: Planned) -> int:
    plan = planned.plan
    step = next(s for s, index in enumerate(plan.order) if _is_turn(planned.lowered.operators[index]))
    lives = zip(plan.begins(), plan.ends(), plan.offsets(), plan.block_buffers(), strict=True)
    ends = [
        offset + planned.lowered.buffers[buffer].nbytes
        for begin, end, offset, buffer in lives
        if offset >= 0 and begin <= step < end - 1
    ]
    return max(ends, default=0)


def _as_laid_out(tensor: torch.Tensor, form: Layout) -> torch.Tensor:
    """A tangent with the strides that AOTAutograd has said it would have."""
    if form.is_of(tensor):
        return tensor
    copy = torch.empty_strided(form.sizes, form.strides, dtype=form.dtype, device=form.device)
    return copy.copy_(tensor)


def _run(planned: Planned, program: Program, run: Callable[[Any], list[torch.Tensor]]) -> list[torch.Tensor]:
    """Runs a half; what stops it says at which operator."""
    try:
        with signals_held:
            return run(signals_held.lookout)
    except BaseException as error:
        fault = program.runtime.memory_fault
        if fault is not None:
            raise explain_fault(fault, planned.lowered, program.operators, program.buffers) from None
        failed = program.runtime.failed_call
        if failed >= 0:
            where = planned.lowered.operators[program.operators[failed]]
            add_note(error, f"lowtide: the compiled region stopped at {where.target} ({where.where.source})")
        raise
