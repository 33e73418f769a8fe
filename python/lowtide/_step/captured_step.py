"""A captured step: its tape, the variants of its update, and how it is bound and run."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from statistics import fmean, median
from typing import Any

import torch

from .. import _core
from .._base.decisions import decided
from .._base.devices import alignment_on
from .._base.interrupts import signals_held
from .._base.stopwatch import Elapsed, Stopwatch
from .._capture.recorder import Ref
from .._capture.tape import Given, Own, Root, Tape, UpdateMark
from .._guards.report import CaptureRecord
from .._guards.sharing import Seen, sharing_of
from .._lower.graph import build_graph, can_run_alone, profile_operators
from .._lower.handed_out import hands_out_last, with_gradients_in_arena
from .._lower.lowering import Lowered, check_last, lower, numbers_of
from .._lower.part_cache import PartCache
from .._lower.profile_rows import OpProfile
from .._lower.profiles import ProfileCache, step_signature
from .._lower.step_parts import Parts
from .._lower.sums_apart import with_sums_apart
from .._optimizer.opaque import OPAQUE_UPDATE, forget_rule, register_rule
from .._optimizer.template import Number
from .._optimizer.twin import NotExpressible, OptimizerTwin, TwinRun
from ..errors import CaptureError, InfeasibleError, LowtideError, add_note
from .before_run import BeforeRun, draws, worth_keeping, written_until
from .beside import Beside, PeakMeter, resident_beside, update_bytes
from .binding import (
    Binding,
    Finder,
    Shared,
    SharedMemory,
    StaleBinding,
    check_shared,
    found_now,
    owner_of,
    written_when_bound,
)
from .fallback import is_for_the_caller
from .in_parts import InParts, count_in_parts, plan_in_parts
from .late_update import shares_gradients, step_late
from .lending import Lending, end_what_is_held
from .memory_guard import OFF, MemoryGuard, explain_fault
from .program import Program, assemble
from .reserved import reserved_beside
from .spent_graph import with_spent_graph
from .swapping import SwapTier, cannot_leave, is_away, may_leave

_MAX_REPLANS = 3


class CannotGoOn(Exception):
    """A step that has paused is to go on in another way than it was planned: it must be abandoned."""


@dataclass(slots=True)
class Variant:
    """One structure of the update, planned and ready."""

    lowered: Lowered
    signature: str  # of the step
    signatures: list[str]  # of its operators
    profiles: list[OpProfile]
    graph: _core.Graph
    plan: _core.Plan
    program: Program
    bindings: list[Binding]
    inputs: list[tuple[int, int]]  # buffer, leaf
    shared: list[Shared]
    rules: list[int]  # keys of opaque updates
    outside_ns: int  # what steps take outside the operators; 0 if that was not known when it was planned
    beside: Beside  # bytes that are counted beside the plan
    learning_bytes: int  # under a budget: the most that was there at once while operators ran alone; 0 beside swap
    residents: list[Any] = field(default_factory=list)  # what it was bound to last
    away: list[Binding] = field(default_factory=list)  # what has its home in a tier
    staying: list[Binding] = field(default_factory=list)  # what has it in memory
    replans: int = 0
    pauses: list[int] = field(default_factory=list)  # calls
    draws: bool = False  # a run may draw random numbers
    proven: bool = False  # it has run to its end
    settles: bool = False  # its calls are being timed
    outside: list[float] = field(default_factory=list)  # seconds of its steps outside the program, meanwhile
    in_parts: InParts = field(default_factory=InParts)
    lent: frozenset[int] = frozenset()  # outputs that stay in the arena


@dataclass(slots=True)
class Begun:
    """A run that has begun: what it found, and what it has come to so far."""

    variant: Variant
    before: BeforeRun
    there: int  # under a budget: bytes of the model, its optimizers and the batch
    inputs: int  # argument leaves that are bound
    pauses: int = 0
    taken: Elapsed = field(default_factory=Elapsed)
    peak_bytes: int = 0
    left_bytes: int = 0  # that it has made for the caller

    def count(self, part: PeakMeter, below: int = 0) -> None:
        """A part of it is over, which had so many bytes of the arena below it."""
        self.peak_bytes = max(self.peak_bytes, self.left_bytes + max(0, part.bytes - below))
        self.left_bytes += part.left


@dataclass(slots=True)
class RunReport:
    """What one run did, for statistics."""

    program: Elapsed = field(default_factory=Elapsed)  # what its operators took together
    highest_end: int = 0
    misses: int = 0
    unplanned_peak: int = 0
    escapes: list[str] = field(default_factory=list)
    held_bytes: int = 0  # under a budget: the most that was there at once, of the model, its optimizers and the step


class CapturedStep:
    """Runs one captured step function, planned."""

    def __init__(
        self,
        tape: Tape,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        cache: ProfileCache,
        plan: Callable[[_core.Graph, int, Beside, int, Sequence[int]], _core.Plan],
        record: CaptureRecord,
        *,
        keep_grads: bool,
        guard: MemoryGuard,
        spare_bytes: int,
        metered: bool,
        make_room: Callable[[Variant], None],
        swap: SwapTier | None = None,
        exact_parts: bool = True,
    ) -> None:
        self.tape = tape
        self.model = model
        self.optimizers = optimizers
        self._finder = Finder(tape, model, optimizers)
        self._cache = cache
        self._plan = plan
        self.record = record
        self._guard = guard
        self._spare_bytes = spare_bytes  # that may be allocated beside the plan
        self._metered = metered
        self._make_room = make_room
        self._swap = swap
        self._part_cache = PartCache()
        self._exact_parts = exact_parts  # the plan takes no others
        self._beside_seen = 0  # the most bytes that a step has had beside its graph, more than was expected
        self._twins: dict[int, OptimizerTwin] = {}
        self.eager_updates: dict[int, str] = {}  # optimizers that step eagerly after the program, and why
        for mark in tape.updates:
            updated = [tape.parameters[name] for name in mark.gradients]
            try:
                self._twins[mark.optimizer] = OptimizerTwin(optimizers[mark.optimizer], updated)
            except NotExpressible as error:
                self._step_eagerly(mark, str(error))
        self._keep_order_of_updates()
        self._variants: dict[Hashable, Variant] = {}
        may_lend = tape.any_gradients and guard is OFF and swap is None
        self._lending = Lending(self._gradients_are_held, model, allowed=may_lend)
        self._registries = [r for m in model.modules() for r in (m._parameters, m._buffers)]
        if not keep_grads:
            tape.drop_gradients()
        self._runs: dict[int, TwinRun] = {}
        self._numbers: Sequence[int | float] = ()  # of the tape
        self._paused: Begun | None = None
        self.rebound = False  # something that was bound before has been replaced since
        self.current: Variant | None = None
        self.report = RunReport()
        self.begun = False  # the last run has got as far as its program
        self.undone = False  # it failed there, and everything is as it was before

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self, leaves: Sequence[Any], numbers: Sequence[int | float] = ()) -> tuple[Any, Any]:
        """One step on these argument leaves; gives the result, and the arguments if it changes what is in them.

        `numbers` are for those of the tape.

        If a step has paused, this is the rest of it. Raises `CannotGoOn` if that is another one than was begun.
        """
        if self._paused is not None:
            return self._go_on(self._paused, leaves)
        self.begun = self.undone = False
        self._numbers = numbers
        runs, variant = self._rehearse()
        try:
            self._bind(variant, leaves)
            self._drop_entry_gradients()
            before = BeforeRun(self._worth_keeping(variant, leaves), draws=variant.draws)
            self._make_ready(variant)
            there = self._there_before(variant) if self._metered else 0
        except BaseException:
            _roll_back(runs)
            raise
        if self._lends_no_more(variant):
            _roll_back(runs)
            return self.run(leaves, numbers)
        return self._complete(Begun(variant, before, there, len(leaves)), runs, leaves)

    def _complete(self, begun: Begun, runs: dict[int, TwinRun], leaves: Sequence[Any]) -> tuple[Any, Any]:
        """Runs the step to its end, from wherever it is."""
        self._runs = runs
        self.begun = True
        variant = begun.variant
        try:
            with PeakMeter(self._metered, variant.lowered.device) as peak:
                run = functools.partial(variant.program.runtime.run, [*numbers_of(runs), *self._numbers])
                result = self._finish(variant, runs, self._advance(begun, runs, run), leaves)
        finally:
            _forget_passing(variant)
        begun.count(peak, begun.variant.program.runtime.bytes_below)
        self._account(variant, runs, begun.taken)
        self.report.held_bytes = begun.there + begun.peak_bytes
        return result

    def _advance(self, begun: Begun, runs: dict[int, TwinRun], run: Callable[[Callable[[], None] | None], Any]) -> Any:
        """Runs the program as far as `run` does, and gives what that gives."""
        variant = begun.variant
        try:
            watch = Stopwatch(busy=variant.settles)
            given = run(signals_held.lookout)
            begun.taken = begun.taken.plus(watch.read())
        except BaseException as error:
            fault = variant.program.runtime.memory_fault
            if fault is None:
                self._explain_failure(variant, runs, begun.before, error)
                raise
            found = explain_fault(fault, variant.lowered, variant.program.operators, variant.program.buffers)
            self._explain_failure(variant, runs, begun.before, found)
            raise found from None
        return given

    def _finish(
        self, variant: Variant, runs: dict[int, TwinRun], outputs: Sequence[torch.Tensor], leaves: Sequence[Any]
    ) -> tuple[Any, Any]:
        variant.proven = True
        for shared in variant.shared:
            tensor = shared.find() if shared.written else None
            if tensor is not None:  # autograd outside must notice, whichever of its tensors it knows
                torch.autograd.graph.increment_version(tensor)
        return self._deliver(variant, runs, outputs, leaves)

    def check(self, leaves: Sequence[Any]) -> None:
        """Raises `StaleBinding` or `SharedMemory` if what the step is bound to is not what it was."""
        runs, variant = self._rehearse()
        _roll_back(runs)
        self._bind(variant, leaves)
        _forget_passing(variant)

    # -- in parts ------------------------------------------------------------------------------------------------------

    def begin(self, leaves: Sequence[Any]) -> torch.Tensor | None:
        """Runs a step up to the first pause of its tape, and gives the value that Python asked for there.

        `leaves` are those arguments that are known by then. The rest is for `next_value` and `run`, or `abandon`. None
        if what is written before a pause could not be put back; then nothing has been done.
        """
        self.begun = self.undone = False
        runs, variant = self._rehearse()
        _roll_back(runs)  # the optimizers' numbers are those of the time when they step
        self._bind(variant, leaves)
        until = variant.program.operators[: variant.pauses[-1] + 1]
        written = written_until(variant.lowered, [variant.lowered.operators[index] for index in until])
        bound = {b: tensor for b, tensor in self._bound(variant, leaves).items() if written and b in written}
        if written is None or any(tensor.is_inference() for tensor in bound.values()):
            _forget_passing(variant)
            return None
        self._make_ready(variant)
        there = self._there_before(variant) if self._metered else 0
        with PeakMeter(self._metered, variant.lowered.device) as copies:
            before = BeforeRun({**self._worth_keeping(variant, leaves), **bound}, draws=True)
        begun = Begun(variant, before, there, len(leaves))
        begun.count(copies)
        return self._run_to_pause(begun)

    def next_value(self, leaves: Sequence[Any]) -> torch.Tensor:
        """Runs on to the next pause, and gives the value that Python asked for there. Raises `CannotGoOn`."""
        begun = self._paused
        assert begun is not None
        self._bind_rest(begun, leaves)
        self._paused = None
        return self._run_to_pause(begun)

    def _run_to_pause(self, begun: Begun) -> torch.Tensor:
        self.begun = True
        try:
            with PeakMeter(self._metered, begun.variant.lowered.device) as peak:
                value: torch.Tensor = self._advance(begun, {}, begun.variant.program.runtime.run_to_pause)
        except BaseException:
            _forget_passing(begun.variant)
            raise
        begun.count(peak, begun.variant.program.runtime.bytes_below)
        begun.pauses += 1
        self._paused = begun
        return value

    def _go_on(self, begun: Begun, leaves: Sequence[Any]) -> tuple[Any, Any]:
        runs: dict[int, TwinRun] = {}
        try:
            self._keep_states_apart()
            for index, twin in self._twins.items():
                runs[index] = twin.run()
            if self._variants.get(_key_of(runs)) is not begun.variant:
                raise CannotGoOn("the update is another one than when the step was begun")
            self._bind_rest(begun, leaves)
            self._drop_entry_gradients()
        except BaseException as error:
            _roll_back(runs)
            if isinstance(error, NotExpressible):
                raise CannotGoOn(str(error)) from error
            raise
        self._paused = None
        return self._complete(begun, runs, leaves)

    def abandon(self) -> None:
        """If a step has paused, what it has done is put back: what it has written, and the random state."""
        begun, self._paused = self._paused, None
        if begun is None:
            return
        variant = begun.variant
        variant.program.runtime.abandon()
        _forget_passing(variant)
        until = variant.program.operators[: variant.pauses[begun.pauses - 1] + 1]
        begun.before.undo(variant.lowered, [variant.lowered.operators[index] for index in until])

    # -- rehearsing ----------------------------------------------------------------------------------------------------

    def _rehearse(self) -> tuple[dict[int, TwinRun], Variant]:
        """Runs the twins and finds their variant; if a rule turns out inexpressible, updates are eager from now on."""
        while True:
            self._keep_states_apart()
            runs: dict[int, TwinRun] = {}
            try:
                for index, twin in self._twins.items():
                    runs[index] = twin.run()
                return runs, self._variant(runs)
            except BaseException as error:
                _roll_back(runs)
                if not isinstance(error, NotExpressible):
                    raise
                for mark in self.tape.updates:
                    if mark.optimizer in self._twins and mark.optimizer not in runs:
                        self._step_eagerly(mark, str(error))
                        break  # the first that has no run is the one that refused
                else:
                    raise
                self._keep_order_of_updates()

    def _step_eagerly(self, mark: UpdateMark, reason: str) -> None:
        check_last(self.tape, mark)
        self._twins.pop(mark.optimizer, None)
        self.eager_updates[mark.optimizer] = reason

    def _keep_states_apart(self) -> None:
        """State that two optimizers share, after `load_state_dict` of one with the other's, is left to themselves."""
        if len(self._twins) < 2 or not any([twin.refresh_if_changed() for twin in self._twins.values()]):
            return
        keepers: dict[int, int] = {}
        for mark in self.tape.updates:
            for state in self.optimizers[mark.optimizer].state.values():
                for value in state.values():
                    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                        keeper = keepers.setdefault(value.untyped_storage()._cdata, mark.optimizer)
                        if keeper != mark.optimizer:
                            self._step_all_eagerly("it shares state with another optimizer")
                            return

    def _step_all_eagerly(self, reason: str) -> None:
        for mark in self.tape.updates:
            if mark.optimizer in self._twins:
                self._step_eagerly(mark, reason)

    def _keep_order_of_updates(self) -> None:
        """Whoever updates the same parameters after an optimizer that steps eagerly does so as well."""
        for index, mark in enumerate(self.tape.updates):
            if mark.optimizer in self.eager_updates:
                for later in self.tape.updates[index + 1 :]:
                    if later.optimizer in self._twins and shares_gradients(mark, later):
                        other = type(self.optimizers[mark.optimizer]).__name__
                        self._step_eagerly(later, f"it updates parameters of {other}, which runs eagerly before it")

    def _drop_entry_gradients(self) -> None:
        if self.tape.any_gradients:
            for name in self.tape.new_gradients:
                self.tape.parameters[name].grad = None

    def _deliver(
        self, variant: Variant, runs: dict[int, TwinRun], outputs: Sequence[torch.Tensor], given: Sequence[Any]
    ) -> tuple[Any, Any]:
        remaining = iter(outputs)
        leaves: list[Any] = []
        owned: list[tuple[int, Own]] = []
        for index, leaf in enumerate(self.tape.result_leaves):
            if isinstance(leaf, Ref):
                result = next(remaining)
                leaves.append(
                    with_spent_graph(result, self.tape.parameters.values()) if index in self.tape.spent else result
                )
            else:
                leaves.append(given[leaf.leaf] if isinstance(leaf, Given) else leaf)
                if isinstance(leaf, Own):
                    owned.append((index, leaf))
        gradients = {
            name: None if gradient is None else next(remaining) for name, gradient in self.tape.new_gradients.items()
        }
        for name in self.tape.new_buffers:
            owner, key = owner_of(self.model, name)
            owner._buffers[key] = next(remaining)
        for index, name, key, _ in variant.lowered.new_state:
            self.optimizers[index].state[self.tape.parameters[name]][key] = next(remaining)
        for index, name, key in variant.lowered.dropped_state:
            self.optimizers[index].state[self.tape.parameters[name]].pop(key, None)
        late: dict[int, dict[str, torch.Tensor | None]] = {index: {} for index in self.eager_updates}
        for index, name in variant.lowered.late_gradients:
            late[index][name] = next(remaining)
        for run in runs.values():
            run.commit()
        step_late(self.tape, self.optimizers, late, gradients)
        if variant.lent:
            self._lending.lend(self.tape.parameters.values())
        for index, one in owned:
            leaves[index] = self._finder.of(Root(one.kind, one.name))()
        result, changed = self.tape.result_structure.unflatten(leaves)
        return result, changed

    def _worth_keeping(self, variant: Variant, leaves: Sequence[Any]) -> dict[int, torch.Tensor]:
        """What is copied before the run, to be put back if it fails: by buffer."""
        if variant.proven:
            return {}
        return worth_keeping(variant.lowered, self._bound(variant, leaves), self._spare_bytes)

    def _bound(self, variant: Variant, leaves: Sequence[Any]) -> dict[int, torch.Tensor]:
        bound = {b.buffer: b.bound for b in variant.bindings if b.bound is not None}
        bound.update((buffer, leaves[leaf]) for buffer, leaf in variant.inputs if leaf < len(leaves))
        return bound

    def _explain_failure(
        self, variant: Variant, runs: dict[int, TwinRun], before: BeforeRun, error: BaseException
    ) -> None:
        failed = variant.program.runtime.failed_call
        lowered = variant.lowered
        operators = [lowered.operators[index] for index in variant.program.operators]
        self.undone = before.undo(lowered, operators[: failed + 1])
        if failed < 0:
            _roll_back(runs)
            return
        done = variant.program.operators[:failed]
        updated = list(dict.fromkeys(lowered.updates[i] for i in done if i in lowered.updates))
        if updated:
            said = f"updated already: {', '.join(updated)}"
            for run in runs.values():
                run.commit()
        else:
            said = "parameters and optimizer state are those before the step"
            _roll_back(runs)
        written = {
            lowered.buffers[b].name
            for i in done
            for b in lowered.operators[i].writes
            if lowered.buffers[b].kind == "bound" and lowered.buffers[b].role == "buffer" and not self.undone
        }
        if written:
            said += f"; module buffers written already: {', '.join(sorted(written))}"
        where = operators[failed]
        add_note(error, f"lowtide: the step stopped at {where.target} ({where.where.source}); {said}")

    # -- variants ------------------------------------------------------------------------------------------------------

    def _variant(self, runs: dict[int, TwinRun]) -> Variant:
        key = _key_of(runs)
        variant = self._variants.get(key)
        if variant is not None and (self._lends_no_more(variant) or not self._has_put_away(variant)):
            self._close(variant)
            variant = None
        if variant is None:
            try:
                variant = self._variants[key] = self._build_within_budget(runs)
            except InfeasibleError as error:
                self._lending.explain(error)
                raise
            except (LowtideError, StaleBinding):
                raise
            except Exception as error:  # whatever cannot be planned runs eager
                if is_for_the_caller(error):
                    raise
                raise CaptureError(f"planning failed: {type(error).__name__}: {error}") from error
        self.current = variant
        return variant

    def _build_within_budget(self, runs: dict[int, TwinRun]) -> Variant:
        """Of whole operators, if their plan keeps the budget; otherwise some may run in parts, on the CPU."""
        lowered = lower(self.tape, runs)
        try:
            return self._build(self._with_gradients_in_place(lowered), runs)
        except InfeasibleError as error:
            whole = lowered.device.type != "cpu" or self._guard is not OFF or self._swap is not None
            if whole or error.code != "E301":
                raise
        lowered = with_sums_apart(lower(self.tape, runs))
        return self._build(self._with_gradients_in_place(lowered), runs, in_parts=True)

    def _with_gradients_in_place(self, lowered: Lowered) -> Lowered:
        """The step with the gradients that it leaves in the arena, if they may stay there."""
        if not self._lending.allowed or lowered.pauses:
            return lowered
        first = sum(isinstance(leaf, Ref) for leaf in self.tape.result_leaves)
        last = first + sum(gradient is not None for gradient in self.tape.new_gradients.values())
        others = {ref.buffer for ref in [*lowered.outputs[:first], *lowered.outputs[last:]]}
        return with_gradients_in_arena(lowered, [g for g in lowered.outputs[first:last] if g.buffer not in others])

    def _gradients_are_held(self) -> bool:
        """Those in the arena, by whoever."""
        variants = list(self._variants.values())
        return any(not variant.lent.isdisjoint(variant.program.runtime.held_outputs) for variant in variants)

    def _lends_no_more(self, variant: Variant) -> bool:
        """Whether it has gradients in the arena, where they may not be any more."""
        return bool(variant.lent) and not self._lending.allowed

    def _build(self, lowered: Lowered, runs: dict[int, TwinRun], *, in_parts: bool = False) -> Variant:
        numbers = [*numbers_of(runs), *self._numbers]

        def value(number: Number) -> int | float:
            return numbers[number.index]

        bindings, inputs = self._finder.bindings(lowered)
        bound = found_now(bindings)
        made_room: list[torch.Tensor] = []

        def make_room() -> None:
            """Operators run alone beside what the step has in memory: that leaves first."""
            if self._swap is not None:
                leaving = (bound[index] for index in may_leave(lowered, bound, self._swap) if index in bound)
                made_room.extend(tensor for tensor in leaving if not is_away(tensor))
                self._swap.put_away(made_room)

        rules = self._register_rules(lowered)
        self._cache.refresh()
        try:
            try:
                with PeakMeter(self._metered, lowered.device) as alone:
                    signatures, profiles = profile_operators(lowered, self._cache, value, make_room)
            except CaptureError:  # which may come of wrong layouts
                _refuse_wrong_layouts(lowered.misled)
                raise
            _refuse_wrong_layouts(lowered.misled)
            graph = build_graph(lowered, profiles, self._guard.margin)
            eager = [f"{type(self.optimizers[index]).__qualname__}.step" for index in self.eager_updates]
            signature = step_signature([*signatures, *eager])
            outside_ns = self._cache.outside_ns(signature)
            beside = self._beside(lowered, graph, bindings)
            there = _bytes_there(lowered, graph, beside.resident)
            leaving = may_leave(lowered, bound, self._swap) if self._swap else []

            def plan_beside(beside: Beside, graph: _core.Graph = graph) -> _core.Plan:
                try:
                    return self._plan(graph, outside_ns or 0, beside, alignment_on(lowered.device), leaving)
                except InfeasibleError as error:
                    names = cannot_leave(lowered, leaving) if self._swap else []
                    if names:
                        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                        held = f"{', '.join(names[:3])}{more}"
                        add_note(error, f"lowtide: something else may hold the memory of {held}: it cannot leave")
                    raise

            parts: Parts | None = None
            with PeakMeter(self._metered, lowered.device) as alone_in_parts:
                if in_parts:
                    graph, plan, parts = plan_in_parts(
                        lowered, profiles, graph, self._part_cache, value, lambda graph: plan_beside(beside, graph),
                        bits="assumed" if self._exact_parts else "any",
                    )  # fmt: skip
                else:
                    plan = plan_beside(beside)
            learning_bytes = 0 if self._swap else there + max(alone.bytes, alone_in_parts.bytes)
            if not hands_out_last(lowered, plan):
                raise CaptureError("the plan runs operators after gradients are handed out")
            if self._swap is not None:
                plan, beside = self._move_out(self._swap, lowered, plan, beside, bound, plan_beside)
            program = assemble(lowered, profiles, plan, numbers, self._guard, self._swap, parts)
        except BaseException:
            for key in rules:
                forget_rule(key)
            if self._swap is not None:
                self._swap.bring_back(made_room)
            raise
        binding_of = {binding.buffer: binding for binding in bindings}
        written = written_when_bound(lowered)
        for buffer in written:
            program.runtime.mark_written(buffer)
        shared = [
            Shared(binding_of[buffer], self._finder.of(root), behind, buffer in written)
            for buffer, root, behind in lowered.shared
            if root.kind != "input"
        ]
        variant = Variant(
            lowered, signature, signatures, profiles, graph, plan, program, bindings, inputs, shared, rules,
            outside_ns or 0, beside, learning_bytes,
        )  # fmt: skip
        variant.in_parts = count_in_parts(graph, plan)
        lent = (place for place, ref in enumerate(lowered.outputs) if lowered.buffers[ref.buffer].kind == "planned")
        variant.lent = frozenset(lent)
        tiers = plan.block_tiers()
        variant.away = [binding for binding in bindings if tiers[binding.buffer] != 0]
        variant.staying = [binding for binding in bindings if tiers[binding.buffer] == 0]
        unsettled = (can_run_alone(op) and not p.settled for op, p in zip(lowered.operators, profiles, strict=True))
        variant.draws = draws(lowered)
        variant.pauses = [call for call, index in enumerate(program.operators) if index in lowered.pauses]
        variant.settles = self._guard is OFF and (outside_ns is None or any(unsettled))
        if variant.settles:
            program.runtime.time_calls()
        return variant

    def _move_out(
        self,
        tier: SwapTier,
        lowered: Lowered,
        plan: _core.Plan,
        beside: Beside,
        bound: dict[int, torch.Tensor],
        plan_beside: Callable[[Beside], _core.Plan],
    ) -> tuple[_core.Plan, Beside]:
        """What leaves memory does so before there is an arena.

        If that gives less back to the device than the plan takes, it is planned again with what is left behind.
        """
        for _ in range(_MAX_REPLANS):
            tiers = plan.block_tiers()
            tier.put_away(tensor for buffer, tensor in bound.items() if tiers[buffer] != 0)
            staying = [tensor for buffer, tensor in bound.items() if tiers[buffer] == 0]
            coming = [tensor for tensor in staying if is_away(tensor)]
            there = plan.resident_bytes - _made_bytes(lowered, plan) + beside.resident
            there -= sum(tensor.nbytes for tensor in coming)
            if not self._metered or reserved_beside(lowered.device, there, coming) <= beside.reserved:
                break
            tier.compact(tensor for tensor in staying if not is_away(tensor))
            reserved = reserved_beside(lowered.device, there, coming)
            if reserved <= beside.reserved:
                break
            beside = replace(beside, reserved=reserved)
            plan = plan_beside(beside)
        return plan, beside

    def _has_put_away(self, variant: Variant) -> bool:
        """Whether what the plan has in a tier is there; what the caller has replaced is moved, if it can be."""
        if self._swap is None:
            return True
        away = found_now(variant.away).values()
        self._swap.put_away(away)
        return all(map(is_away, away))

    def _make_ready(self, variant: Variant) -> None:
        """Other steps make room for this one; then what it has in memory comes back from the tier."""
        end_what_is_held()
        self._make_room(variant)
        if self._swap is not None:
            self._swap.bring_back(found_now(variant.staying).values())

    def _register_rules(self, lowered: Lowered) -> list[int]:
        """Gives every opaque update its rule to call: the one of the step that is running then."""
        opaque = [op for op in lowered.operators if op.target is OPAQUE_UPDATE]
        for op, (index, name, _) in zip(opaque, lowered.opaque, strict=True):
            rule = functools.partial(self._update_by_rule, index, self.tape.parameters[name])
            op.arguments[-1] = register_rule(rule)
        return [op.arguments[-1] for op in opaque]

    def _update_by_rule(self, optimizer: int, parameter: torch.nn.Parameter, gradient: torch.Tensor) -> None:
        self._runs[optimizer].update(parameter, gradient)

    # -- binding -------------------------------------------------------------------------------------------------------

    def _bind(self, variant: Variant, leaves: Sequence[Any]) -> None:
        residents = self._residents()
        unchanged = len(residents) == len(variant.residents) and all(map(operator.is_, residents, variant.residents))
        for binding in variant.bindings:
            if unchanged and binding.lasting:
                continue
            self._rebind(variant, binding)
        for shared in variant.shared:
            check_shared(shared)
        variant.residents = residents
        stale = variant.program.runtime.stale_binding()
        if stale >= 0:
            raise StaleBinding(f"{variant.lowered.buffers[stale].name} has another shape or dtype")
        self._bind_inputs(variant, leaves, 0)
        overlap = variant.program.runtime.overlap()
        if overlap is not None:
            self._refuse_overlap(variant, leaves, overlap)

    def _bind_inputs(self, variant: Variant, leaves: Sequence[Any], first: int) -> None:
        """Those from leaf `first` on; a step up to a pause has none of those that come later."""
        for buffer, leaf in variant.inputs:
            if first <= leaf < len(leaves):
                variant.program.runtime.bind(buffer, leaves[leaf], transient=True)

    def _bind_rest(self, begun: Begun, leaves: Sequence[Any]) -> None:
        """Binds the arguments that were not known when the step was begun; all else must be what it was."""
        runtime = begun.variant.program.runtime
        same = all(binding.find() is binding.bound for binding in begun.variant.bindings)
        if not same or not runtime.can_go_on() or runtime.stale_binding() >= 0:
            raise CannotGoOn("the step is bound to other memory than when it was begun")
        self._bind_inputs(begun.variant, leaves, begun.inputs)
        if runtime.overlap() is not None:
            raise CannotGoOn("arguments share memory")
        begun.inputs = len(leaves)

    def _refuse_overlap(self, variant: Variant, leaves: Sequence[Any], overlap: tuple[int, int]) -> None:
        """Two tensors that are two on the tape share memory that the step writes: this tape does not hold for them."""
        first, second = [variant.lowered.buffers[buffer].name for buffer in overlap]
        said = f"{first} shares memory with {second}, and the step writes it"
        inputs = dict(variant.inputs)
        if not inputs.keys() & set(overlap):
            raise StaleBinding(said)
        written = written_when_bound(variant.lowered)
        bound = [(buffer, leaf) for buffer, leaf in variant.inputs if leaf < len(leaves)]
        seen = [Seen(f"argument {leaf}", leaves[leaf], buffer in written, leaf) for buffer, leaf in bound]
        seen += [Seen(b.name, b.bound, b.buffer in written) for b in variant.bindings if b.bound is not None]
        sharing = sharing_of(seen)
        if not sharing or sharing == self.record.sharing:
            raise CaptureError(f"{said}: what shares memory in part, or under another storage, cannot be planned")
        raise SharedMemory(said, sharing)

    def _residents(self) -> list[Any]:
        """Everything in the model's and the optimizers' own dictionaries, to see at a glance whether it is the same."""
        own = chain.from_iterable(registry.values() for registry in self._registries)
        states = chain.from_iterable(state.values() for o in self.optimizers for state in o.state.values())
        return [*own, *states]

    def _rebind(self, variant: Variant, binding: Binding) -> None:
        tensor = binding.find()
        if tensor is binding.bound and not binding.passing:
            return
        if tensor is None:
            raise StaleBinding(f"{binding.name} is gone")
        layout = (tensor.dtype, tensor.shape, tensor.stride())
        if binding.layout is None:
            binding.layout = layout
        elif binding.layout != layout:
            raise StaleBinding(f"{binding.name} has another shape or dtype")
        replaced = binding.lasting and binding.bound is not None and binding.name not in self.tape.new_buffers
        self.rebound = self.rebound or replaced
        binding.bound = tensor
        variant.program.runtime.bind(binding.buffer, tensor, transient=binding.passing)

    # -- accounting ----------------------------------------------------------------------------------------------------

    def _account(self, variant: Variant, runs: dict[int, TwinRun], taken: Elapsed) -> None:
        runtime = variant.program.runtime
        stats = runtime.stats
        operators = variant.program.operators
        self.report = RunReport(taken, stats.highest_end, stats.misses, stats.unplanned_peak)
        for call, _ in runtime.escapes:
            culprit = variant.lowered.operators[operators[call]]
            self.report.escapes.append(f"{culprit.target} ({culprit.where.source})")
        missed = [call for call in runtime.missed_calls if can_run_alone(variant.lowered.operators[operators[call]])]
        if missed and not self.report.escapes and variant.replans < _MAX_REPLANS:
            self._replan(variant, runs, missed)

    def _beside(self, lowered: Lowered, graph: _core.Graph, bindings: Sequence[Binding]) -> Beside:
        update = 0
        for mark in self.tape.updates:
            parameters = [self.tape.parameters[name] for name in mark.gradients]
            opaque = [[self.tape.parameters[name]] for index, name, _ in lowered.opaque if index == mark.optimizer]
            turns = [parameters] if mark.optimizer in self.eager_updates else opaque
            if turns:
                update += update_bytes(self.optimizers[mark.optimizer], turns)
        resident = self._resident_beside(bindings)
        there = _bytes_there(lowered, graph, resident)
        reserved = reserved_beside(lowered.device, there) if self._metered else 0
        return Beside(resident, max(update, self._beside_seen), reserved)

    def _resident_beside(self, bindings: Sequence[Binding]) -> int:
        return resident_beside(self.model, self.optimizers, [binding.find() for binding in bindings])

    def _there_before(self, variant: Variant) -> int:
        """Bytes of the model, its optimizers and the batch before the run: rules that run as they are make state."""
        own_rules = self.eager_updates or variant.lowered.opaque
        beside = self._resident_beside(variant.bindings) if own_rules else variant.beside.resident
        return variant.plan.resident_bytes - _made_bytes(variant.lowered, variant.plan) + beside

    def plan_again_with(self, beside: int) -> None:
        """The last step had so many bytes beside its graph: it is planned again before the next."""
        self._beside_seen = max(self._beside_seen, beside)
        if self.current is not None:
            self._close(self.current)

    def close_larger_than(self, arena_bytes: int) -> None:
        """Closes what needs a larger arena; it is planned again when it is needed."""
        for variant in [v for v in self._variants.values() if v.plan.arena_bytes > arena_bytes]:
            self._close(variant)

    def _close(self, variant: Variant) -> None:
        for key in [key for key, other in self._variants.items() if other is variant]:
            del self._variants[key]
            variant.settles = False
            _dispose(variant)

    @property
    def is_settling(self) -> bool:
        """Whether its calls are being timed."""
        return self.current is not None and self.current.settles

    def settle(self, whole: Elapsed) -> None:
        """After a step that took this long as a whole: once its calls have been timed often enough, times settle.

        The mean over the calls of a profile is its time from then on, and the median of what is left of the step is its
        time outside the operators. This plan stays as it is; the next one is made with these times.
        """
        variant = self.current
        if variant is None or not variant.settles:
            return
        variant.outside.append(whole.busy - self.report.program.busy)
        nanos = variant.program.runtime.call_nanos
        if not nanos:
            return
        variant.settles = False
        taken: dict[str, list[int]] = {}
        for call, (index, time_ns) in enumerate(zip(variant.program.operators, nanos, strict=True)):
            if time_ns > 0 and call not in variant.program.parts:
                taken.setdefault(variant.signatures[index], []).append(time_ns)
        self._cache.settle({signature: round(fmean(times)) for signature, times in taken.items()})
        outside = median(variant.outside[1:])  # the first step plans
        self._cache.settle_outside(variant.signature, round(1e9 * max(0.0, outside)))
        self._cache.save()

    def settles_no_more(self) -> None:
        """Times are no longer taken: something was wrong with them."""
        for variant in self._variants.values():
            variant.settles = False

    def _replan(self, variant: Variant, runs: dict[int, TwinRun], missed: Sequence[int]) -> None:
        """A request outgrew its profile: what these calls run is profiled again and the step planned again."""
        for call in missed:
            part = variant.program.parts.get(call)
            if part is not None:
                self._part_cache.forget(part)
            else:
                self._cache.forget(variant.signatures[variant.program.operators[call]])
        variant.replans += 1
        decided("plan", "again", missed_requests=len(missed), replans=variant.replans)
        try:
            renewed = self._build(variant.lowered, runs, in_parts=variant.in_parts.operators > 0)
        except Exception:  # the step has been made; the old plan goes on serving, with its misses
            return
        renewed.replans = variant.replans
        key = next(k for k, v in self._variants.items() if v is variant)
        _dispose(variant)
        self._variants[key] = self.current = renewed

    def close(self) -> None:
        """Gives the arena memory of every variant back."""
        self._lending.move_out()
        for variant in self._variants.values():
            _dispose(variant)
        self._variants.clear()

    @property
    def gradient_bytes(self) -> int:
        """What gradients that stay in `.grad` cost."""
        buffers = self.current.lowered.buffers if self.current else []
        return sum(buffer.nbytes for buffer in buffers if buffer.kind == "made" and buffer.role == "gradient")


def _key_of(runs: dict[int, TwinRun]) -> Hashable:
    return tuple([run.key for run in runs.values()])


def _made_bytes(lowered: Lowered, plan: _core.Plan | None = None) -> int:
    """Of what the graph has as resident, or the plan: what only the step makes, and leaves to the caller."""
    tiers = plan.block_tiers() if plan is not None else [0] * len(lowered.buffers)
    return sum(b.nbytes for b, tier in zip(lowered.buffers, tiers, strict=False) if b.kind == "made" and tier == 0)


def _bytes_there(lowered: Lowered, graph: _core.Graph, beside: int) -> int:
    """Of the model, its optimizers and the batch before a step is planned; `beside` are those outside the graph."""
    return graph.resident_bytes - _made_bytes(lowered) + beside


def _forget_passing(variant: Variant) -> None:
    for binding in variant.bindings:
        binding.bound = None if binding.passing else binding.bound


def _roll_back(runs: dict[int, TwinRun]) -> None:
    for run in runs.values():
        run.rollback()


def _dispose(variant: Variant) -> None:
    variant.program.runtime.close()
    for key in variant.rules:
        forget_rule(key)


def _refuse_wrong_layouts(misled: dict[str, bool]) -> None:
    """Where strides were predicted wrongly, autograd may have chosen other formulas than it does in eager."""
    if misled:
        said = f"{next(iter(misled))} gives other strides than PyTorch predicts"
        raise StaleBinding(said) if any(misled.values()) else CaptureError(f"{said}, and than it gave before")
