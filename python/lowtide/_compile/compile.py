"""`lowtide.compile`: a step function that runs planned, from one arena, with the same numbers bit for bit."""

from __future__ import annotations

import atexit
import copy
import functools
import inspect
import logging
import os
import pickle
import sys
import threading
import time
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import is_lazy

from .. import _core, _torch
from .._base.budgets import read_latency_budget, read_memory_budget
from .._base.decisions import decided, is_told, log_to_stderr
from .._base.fallback import Fallback
from .._base.interrupts import signals_held
from .._base.progress import plan_in_sight
from .._base.sources import warn_user
from .._base.stopwatch import Stopwatch
from .._capture.leftovers import FilledCaches
from .._capture.tape import Tape
from .._guards.guards import must_stay_eager
from .._guards.report import CaptureRecord, count, explain_captures
from .._live.audits import Audits
from .._live.live_step import LiveStep
from .._lower.capture import optimizers_of
from .._lower.profiles import ProfileCache
from .._replay import active as active_replay
from .._step.beside import Beside, eager_bytes
from .._step.captured_step import CapturedStep, Variant
from .._step.fallback import is_for_the_caller, reason_of
from .._step.memory_guard import OFF, chosen_guard
from .._step.reserved import keep_reserved_below, reserved_bytes
from .._store.chosen import chosen_store
from .._trust.verdict import device_of, why_untrusted
from ..errors import CaptureError, InfeasibleError, add_note
from .memory_budget import SCALAR_BYTES, MemoryBudget
from .plan_cache import PlanCache
from .stats import Stats
from .swap import open_tier

_QUIET_CAPTURES = 2  # from the third on it is said why
_SPARE_BYTES = 16 << 20  # that a first run may take beside its plan, where there is no budget

# One step at a time: all programs share one arena, and the optimizer's twin stands in for its parameters meanwhile.
_running = threading.RLock()
_capturing = threading.local()
_alive: weakref.WeakSet[CompiledStep] = weakref.WeakSet()
_PATIENCE_AT_EXIT = 1.0  # seconds, for a thread that runs steps to the very end

_log = logging.getLogger("lowtide")


class CompiledStep:
    """A planned step function. Call it like the function it was made from.

    It is copied and pickled as that function is: `copy.deepcopy` gives a function itself, and the method of a trainer
    together with the trainer's copy; pickle stores a function of a module by its name. Captures are not copied.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        memory_budget: int | float | str | None,
        latency_budget: int | float | str | None,
        keep_grads: bool | None,
        on_unsupported: str | None,
        swap: str | os.PathLike[str] | None = None,
        link: str | None = None,
        allow_inexact: bool = False,
    ) -> None:
        functools.update_wrapper(self, function)
        _torch.install_allocator()
        self._function = function
        self._model = model
        self._optimizers = optimizers
        self._options: dict[str, Any] = {
            "memory_budget": memory_budget, "latency_budget": latency_budget, "keep_grads": keep_grads,
            "on_unsupported": on_unsupported, "swap": swap, "link": link, "allow_inexact": allow_inexact,
        }  # fmt: skip
        self._parts = "any" if allow_inexact else "exact"
        self._swap = None if swap is None else open_tier(swap, link, model)
        self._memory_budget = MemoryBudget(read_memory_budget(memory_budget))
        self._latency_ns = read_latency_budget(latency_budget)
        self._keep_grads = keep_grads is not False
        budgets = {"memory_budget": memory_budget, "latency_budget": latency_budget}
        given = [name for name, budget in budgets.items() if budget is not None]
        self._fallback = Fallback(_name_of(function), on_unsupported, given)
        self._guard = chosen_guard()
        self._audits = Audits(_name_of(function))
        self._filled = FilledCaches()
        self._cache = ProfileCache(shares_times=self._latency_ns is None)  # it is held against this machine's own
        self._plans = PlanCache(chosen_store())
        self._unsupported: str | None = None
        self._current: CapturedStep | None = None
        self._tried: CapturedStep | None = None  # by the call that is being made
        self._closed = False
        self._records: list[CaptureRecord] = []  # of all captures ever made
        self._seconds: deque[float] = deque(maxlen=1000)
        self._calls = self._eager_calls = self._misses = self._unplanned = 0
        self._planning_seconds = 0.0
        self._learnt_above = False
        self._excess = 0  # the most bytes that a step had more than its budget
        self._escapes: list[str] = []
        self._around: list[str] = []  # what calls have run eager under
        self._live: LiveStep | None = None  # from the first call on
        self._ran: list[CapturedStep] = []  # by the last call
        self._lazy = True  # until the model is seen to know the shape of each parameter
        _alive.add(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One step; gives what the function gives."""
        idle = self._closed or self._unsupported is not None or _is_capturing() or self._waits_for_shapes()
        around = "" if idle else must_stay_eager()
        if idle or around:
            return self._run_eager(around, args, kwargs)
        reason = "" if self._live else why_untrusted(device_of(self._model), compile)
        cause: Exception | None = None
        if not reason:
            with _running, signals_held, active_replay.paused():
                try:
                    live = self._live = self._live or self._make_live()
                    live.find_own()
                except Exception as error:
                    if is_for_the_caller(error):
                        raise
                    reason, cause = reason_of(error), error
                else:
                    return self._run_live(live, args, kwargs)
        if self._fallback.refuses:
            raise self._fallback.refusal(reason) from cause
        result = self._function(*args, **kwargs)  # if this fails as well, the fault is the call's
        self._give_up(reason)
        return result

    def _make_live(self) -> LiveStep:
        if _is_generator(self._function):
            raise CaptureError("a call of the function only begins it: a generator or coroutine cannot be planned")
        named = {"default_generator", "default_generators"}.intersection(_names_in(self._function))
        if named:
            raise CaptureError(
                f"the function names torch's {named.pop()}, whose state cannot be watched: use torch.get_rng_state() "
                "and torch.manual_seed()"
            )
        return LiveStep(
            self._function, self._model, self._optimizers, self._filled, self._make_step, self._run, self._has_begun,
            self._fallback, self._audits,
        )  # fmt: skip

    def _run_live(self, live: LiveStep, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The function's own Python runs, and what tensor work it asks for is planned."""
        self._ran.clear()
        self._memory_budget.begin_call()
        _capturing.active = True  # compiled steps that it calls are part of it
        try:
            result, left = live(args, kwargs)
        except BaseException:
            if self._ran:  # its update may be made
                self._count_call()
            raise
        finally:
            _capturing.active = False
            self._tried = None
        if self._ran:
            self._current = max(self._ran, key=_bytes_planned)
        if live.refused:
            self._give_up(live.refused)
        elif left:
            self._eager_calls += 1
        elif self._ran:
            self._count_call()
        return result

    def _waits_for_shapes(self) -> bool:
        """Whether lazy modules learn their shapes only now, from this call; or the call is being compiled by others."""
        if self._lazy:
            self._lazy = any(map(is_lazy, (*self._model.parameters(), *self._model.buffers())))
        return self._lazy or torch.compiler.is_dynamo_compiling()

    def _run_eager(self, around: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that is not planned, though nothing has failed: with a budget that is refused, or told of."""
        if _is_capturing():
            reason = " in another step that is being captured"
        elif around:
            reason = f" under {around}, which must see the function itself at work"
            if around not in self._around:
                self._around.append(around)
        else:
            reason = f": {self._why_idle()}"
        if self._fallback.not_kept and self._fallback.refuses:
            raise self._fallback.refusal(f"{_name_of(self._function)} is called{reason}")
        if around or self._fallback.not_kept:
            self._fallback.say(reason)
        self._eager_calls += 1
        return self._function(*args, **kwargs)

    def _has_begun(self) -> bool:
        """Whether the step that failed has done something that is not undone, or must not be done eagerly instead."""
        step = self._tried
        return step is not None and step.begun and (self._fallback.refuses or not step.undone)

    def _why_idle(self) -> str:
        if self._closed:
            return "it was closed"
        return self._unsupported or "its model learns shapes from this call, or torch.compile is at work"

    def _run(self, step: CapturedStep, leaves: Sequence[Any], numbers: Sequence[int | float]) -> Any:
        self._tried = step
        watch = Stopwatch(busy=step.is_settling)
        result, _ = step.run(leaves, numbers)
        self._tried = None
        self._ran.append(step)
        step.record.calls += 1
        report = step.report
        self._seconds.append(report.program.wall)
        self._misses += report.misses
        self._unplanned = max(self._unplanned, report.unplanned_peak)
        if report.escapes:
            self._warn_escape(report.escapes)
        self._check_budget(step)
        if step.rebound:  # after `load_state_dict`: others still hold what was replaced
            step.rebound = False
            for other in self._steps():
                if other is not step:
                    other.close()
        self._settle(step, watch)
        return result

    def _settle(self, step: CapturedStep, watch: Stopwatch) -> None:
        try:
            step.settle(watch.read())
        except Exception as error:  # the step itself has been made
            step.settles_no_more()
            said = f"lowtide: the times of {_name_of(self._function)} are not kept: {reason_of(error)}"
            warn_user(said)

    def _steps(self) -> Iterable[CapturedStep]:
        return () if self._live is None else self._live.steps()

    def _count_call(self) -> None:
        self._calls += 1
        if self._calls == 1:
            _announce(self.summary())

    # -- captures ------------------------------------------------------------------------------------------------------

    def _make_step(self, tape: Tape, record: CaptureRecord) -> CapturedStep:
        step = CapturedStep(
            tape, self._model, self._optimizers, self._cache, self._plan, record, keep_grads=self._keep_grads,
            guard=self._guard, spare_bytes=SCALAR_BYTES // 4 if self._memory_budget else _SPARE_BYTES,
            metered=bool(self._memory_budget), make_room=self._make_room, swap=self._swap,
            exact_parts=self._parts == "exact",
        )  # fmt: skip
        self._records.append(record)
        decided(
            "capture", "captured", function=_name_of(self._function), number=len(self._records), reason=record.reason,
            operators=len(tape.recording.calls),
        )  # fmt: skip
        if len(self._records) > _QUIET_CAPTURES:
            _announce(f"lowtide: capture {len(self._records)} of {_name_of(self._function)}: {record.reason}")
        return step

    def _plan(
        self, graph: _core.Graph, outside_ns: int, beside: Beside, alignment: int, may_leave: Sequence[int]
    ) -> _core.Plan:
        begin = time.perf_counter()
        try:
            if not self._memory_budget and self._latency_ns is None:
                return plan_in_sight(graph, look=signals_held.look, alignment=alignment)
            operators_ns = None if self._latency_ns is None else max(0, self._latency_ns - outside_ns)
            budget = self._memory_budget.left_for_plan(graph, beside)
            if self._swap is None:
                return self._plans.get_or_plan(graph, budget, operators_ns, alignment, self._parts)
            alignment = max(alignment, self._swap.alignment)
            return plan_in_sight(
                graph, look=signals_held.look, memory_budget=budget, latency_budget_ns=operators_ns,
                alignment=alignment, swap=self._swap.offer(may_leave),
            )  # fmt: skip
        except InfeasibleError as error:
            if error.code == "E301":
                for note in self._memory_budget.explain(graph, beside):
                    add_note(error, f"lowtide: {note}")
                if graph.has_axes:
                    add_note(error, f"lowtide: {self._what_parts_would_do(graph, beside, alignment)}")
            if error.code == "E302" and outside_ns:
                said = f"{outside_ns} ns of the latency budget's {self._latency_ns} ns"
                add_note(error, f"lowtide: outside its operators the step takes {said}")
            raise
        finally:
            self._planning_seconds += time.perf_counter() - begin

    def _what_parts_would_do(self, graph: _core.Graph, beside: Beside, alignment: int) -> str:
        """Whether parts that have other bits would keep a budget that others do not keep."""
        if self._parts == "any":
            return "operators were tried in parts, with other rounding too"
        budget = self._memory_budget.left_for_plan(graph, beside)
        try:
            _core.plan(graph, memory_budget=budget, alignment=alignment, parts="any")
        except InfeasibleError:
            return "operators in parts do not keep it either, with the same bits or without"
        return "allow_inexact=True would keep it: operators run in parts, with other rounding"

    def _make_room(self, variant: Variant) -> None:
        """All captures have one arena: those that need a larger one than this step may have are closed meanwhile."""
        left = self._memory_budget.left_for_plan(variant.graph, variant.beside)
        if left is not None:
            for step in self._steps():
                step.close_larger_than(max(variant.plan.arena_bytes, left - variant.plan.resident_bytes))
        if self._memory_budget.is_of_bytes:
            keep_reserved_below(variant.lowered.device, self._memory_budget.bytes_for(variant.graph, variant.beside))

    def _check_budget(self, step: CapturedStep) -> None:
        """Where a step had more than its budget it is said, and the next one is planned with what this one needed."""
        variant = step.current
        if not self._memory_budget or variant is None:
            return
        self._check_learning(variant)
        plan, beside, held = variant.plan, variant.beside, step.report.held_bytes
        if self._memory_budget.is_of_bytes:
            held = max(held, reserved_bytes(variant.lowered.device))
        excess = self._memory_budget.exceeded_by(held, variant.graph, beside)
        if excess <= self._excess:
            return
        self._excess = excess
        decided("run", "over budget", function=_name_of(self._function), held_bytes=held, excess_bytes=excess)
        planned = plan.resident_bytes + beside.resident + plan.arena_bytes + self._memory_budget.reserved_for(beside)
        outside = max(0, held - planned)
        step.plan_again_with(outside)
        amount = _core.format_bytes
        warn_user(
            f"lowtide: memory_budget is not kept: this step of {_name_of(self._function)} had {amount(held)}, "
            f"{amount(excess)} more than the budget, with {amount(outside)} outside its plan; the next one is "
            "planned with room for that, or raises InfeasibleError"
        )

    def _check_learning(self, variant: Variant) -> None:
        """Where the first call had more than the budget, before there was a plan, it is said."""
        excess = self._memory_budget.exceeded_by(variant.learning_bytes, variant.graph, variant.beside)
        if excess and not self._learnt_above:
            self._learnt_above = True
            amount = _core.format_bytes
            warn_user(
                f"lowtide: memory_budget was not kept while {_name_of(self._function)} was planned: its operators ran "
                f"alone, to see what they need, with {amount(variant.learning_bytes)}, {amount(excess)} more than the "
                "budget; its steps are within it"
            )

    def _give_up(self, reason: str) -> None:
        with _running:
            self._unsupported = reason
            self._eager_calls += 1
            self._let_go()
        self._fallback.say(f": {reason}")

    def _let_go(self) -> None:
        if self._live is not None:
            self._live.close()
        self._live = self._current = None
        self._ran.clear()
        self._filled.forget()

    def _warn_escape(self, escapes: Sequence[str]) -> None:
        new = [escape for escape in escapes if escape not in self._escapes]
        self._escapes += new
        for escape in new:
            warn_user(
                f"lowtide: something keeps memory of the step after {escape}; it is not reused until it is let go"
            )

    # -- for the user --------------------------------------------------------------------------------------------------

    def _repr_html_(self) -> str | None:
        """What a notebook shows: the step's memory, once it is planned."""
        from .._report.notebook import of_step

        return of_step(self)

    @property
    def plan(self) -> _core.Plan | None:
        """The plan of the last step, or None before the first one or when running eager."""
        if self._current is None or self._current.current is None:
            return None
        return self._current.current.plan

    @property
    def graph(self) -> _core.Graph | None:
        """The graph that `plan` is a plan of."""
        if self._current is None or self._current.current is None:
            return None
        return self._current.current.graph

    def stats(self) -> Stats:
        """Figures of the steps so far."""
        plan, graph = self.plan, self.graph
        variant = self._current.current if self._current else None
        beside = variant.beside if variant else Beside()
        seconds = median(self._seconds) if self._seconds else 0.0
        outside_ns = variant.outside_ns if variant else 0
        resident = plan.resident_bytes + beside.resident if plan else 0
        return {
            "calls": self._calls,
            "captures": len(self._records),
            "eager_calls": self._eager_calls,
            "eager_bytes": eager_bytes(graph, beside) if graph else 0,
            "budget_bytes": self._memory_budget.bytes_for(graph, beside) if graph else 0,
            "planned_bytes": resident + plan.arena_bytes + beside.update if plan else 0,
            "resident_bytes": resident,
            "arena_bytes": plan.arena_bytes if plan else 0,
            "update_bytes": beside.update,
            "gradient_bytes": self._current.gradient_bytes if self._current else 0,
            "served_bytes": self._current.report.highest_end if self._current else 0,
            "misses": self._misses,
            "unplanned_bytes": self._unplanned,
            "escapes": list(self._escapes),
            "step_seconds": seconds,
            "step_time_ratio": seconds / (plan.time_ns / 1e9) if plan and plan.time_ns else 0.0,
            "outside_seconds": outside_ns / 1e9,
            "predicted_seconds": (plan.time_ns + outside_ns) / 1e9 if plan else 0.0,
            "profiled_ops": self._cache.taken,
            "operators_in_parts": variant.in_parts.operators if variant else 0,
            "exact_in_parts": variant.in_parts.exact if variant else 0,
            "planning_seconds": self._planning_seconds,
        }

    def summary(self) -> str:
        """One line: eager's estimate, the plan, the budget, time, captures and misses; or why it runs eager."""
        s = self.stats()
        if self._unsupported is not None:
            return f"lowtide: {self._fallback.describe(f': {self._unsupported}')}; {_calls(s)}"
        if self.plan is None:
            state = "was closed" if self._closed else "has no plan yet"
            return f"lowtide: {_name_of(self._function)} {state}; {_calls(s)}"
        kept = f", {_mib(s['gradient_bytes'])} of it kept in .grad" if s["gradient_bytes"] else ""
        outside = f" and {s['outside_seconds'] * 1e3:.1f} ms outside of them" if s["outside_seconds"] else ""
        update = f" + {_mib(s['update_bytes'])} for the optimizer's own step" if s["update_bytes"] else ""
        budget = self._memory_budget.summary(_mib(s["eager_bytes"]), _mib(s["budget_bytes"]))
        return (
            f"lowtide: eager{self._as_written()} about {_mib(s['eager_bytes'])} -> planned {_mib(s['planned_bytes'])} "
            f"({_mib(s['resident_bytes'])} resident{kept} + {_mib(s['arena_bytes'])} arena{update}){budget}, "
            f"step {s['step_seconds'] * 1e3:.1f} ms = {s['step_time_ratio']:.2f} x its ops alone{outside}, "
            f"{s['captures']} captures, {s['misses']} misses{'' if self._guard is OFF else ', guarded'}"
        )

    def _as_written(self) -> str:
        variant = self._current.current if self._current else None
        regions = variant is not None and any(operator.region for operator in variant.lowered.operators)
        return " with its checkpoints" if regions else ""

    @contextmanager
    def gather(self) -> Iterator[None]:
        """What the step has put away on disk is in ordinary memory while the block runs, verified, and goes back.

        Tensors that are away can be read and written without it, from the disk. Warns if the budget is exceeded.
        """
        if self._swap is None:
            yield
            return
        states = [state for o in self._optimizers for state in o.state.values()]
        parameters = list(self._model.parameters())
        own = [*parameters, *(p.grad for p in parameters), *self._model.buffers()]
        own += [value for state in states for value in state.values()]
        tensors = [t for t in own if isinstance(t, torch.Tensor) and t.layout is torch.strided]
        there = sum({t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors}.values())
        budget = self.stats()["budget_bytes"]
        if budget and there > budget:
            amount = _core.format_bytes
            warn_user(
                f"lowtide: gather() has {amount(there)} in memory, {amount(there - budget)} more than memory_budget"
            )
        with _running, self._swap.gathered(tensors) as left:
            if left:
                warn_user(
                    f"lowtide: gather() leaves {left} tensors on the disk: arrays of NumPy or of another library show "
                    "their memory; delete these first"
                )
            yield

    def explain_guards(self) -> str:
        """What each capture holds for, and why it was made: which call of the step was another one than before.

        The function's own Python runs at every call. A call that asks for the same tensor work as one before it runs
        that capture; any other is captured anew. Of all captures but the first, only what is different is said.

        >>> model = torch.nn.Linear(8, 4)
        >>> @lowtide.compile(model=model)
        ... def infer(x, scale=1.0):
        ...     return model(x) * scale
        >>> with torch.no_grad():
        ...     for rows in (6, 7, 6):
        ...         result = infer(torch.ones(rows, 8))
        >>> print(infer.explain_guards())
        2 captures, 3 planned calls; last miss: Linear is called with float32[6, 8] -> float32[7, 8]
        capture 1: first call
            tensors: float32[6, 8]
            calls: Linear, mul
            served 2 calls
        capture 2: Linear is called with float32[6, 8] -> float32[7, 8]
            tensors: float32[7, 8]
            served 1 call
        """
        records = self._records
        missed = f"; last miss: {records[-1].reason}" if len(records) > 1 else ""
        made = f"{count(len(records), 'capture')}, {count(self._calls, 'planned call')}"
        lines = [f"{made}{missed}", *explain_captures(records)]
        for step in self._steps():
            lines += [f"optimizer.step() runs eagerly: {reason}" for reason in step.eager_updates.values()]
            opaque = step.current.lowered.opaque if step.current else []
            lines += [f"{name} is updated by the rule itself: {reason}" for _, name, reason in opaque]
        lines += [f"runs eager under {around}" for around in self._around]
        if self._unsupported is not None:
            lines.append(f"runs eager: {self._unsupported}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<lowtide.CompiledStep of {_name_of(self._function)}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledStep:
        function = copy.deepcopy(self._function, memo)
        if id(self) in memo:  # what the function belongs to holds this very step
            return cast(CompiledStep, memo[id(self)])
        if function is self._function:
            return self
        model, optimizers = copy.deepcopy((self._model, self._optimizers), memo)
        return CompiledStep(function, model=model, optimizers=optimizers, **self._options)

    def __copy__(self) -> CompiledStep:
        return CompiledStep(self._function, model=self._model, optimizers=self._optimizers, **self._options)

    def __reduce__(self) -> str | tuple[Any, ...]:
        name = _name_of(self._function)
        if isinstance(self._function, types.FunctionType):
            if getattr(sys.modules.get(self._function.__module__), name, None) is self:
                return name  # by reference, like any function of a module
            raise pickle.PicklingError(
                f"{self!r} cannot be pickled, because the function refers to its model and optimizer by itself: save "
                "model.state_dict() and optimizer.state_dict(), and call lowtide.compile again where they are loaded"
            )
        return _compile_again, (self._function, self._model, self._optimizers, self._options)

    def close(self) -> None:
        """Gives the arena memory back; later calls run eager."""
        with _running:
            self._closed = True
            self._let_go()


def _close_all() -> None:
    """At exit: programs hold tensors where no garbage collector sees them, and so steps that tensors refer to."""
    if not _running.acquire(timeout=_PATIENCE_AT_EXIT):
        return
    try:
        for step in list(_alive):
            step.close()
    finally:
        _running.release()


atexit.register(_close_all)


def _compile_again(
    function: Callable[..., Any],
    model: torch.nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    options: dict[str, Any],
) -> CompiledStep:
    return CompiledStep(function, model=model, optimizers=optimizers, **options)


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", None) or repr(function))


def _is_generator(function: Callable[..., Any]) -> bool:
    """Whether a call only begins what is done later."""
    return any(
        ask(function) for ask in (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    )


def _names_in(function: Callable[..., Any]) -> set[str]:
    """Names that the code of a function uses, inner functions included."""
    pending = [getattr(inspect.unwrap(function), "__code__", None)]
    names: set[str] = set()
    while pending:
        code = pending.pop()
        if isinstance(code, types.CodeType):
            names.update(code.co_names)
            pending += code.co_consts
    return names


def _bytes_planned(step: CapturedStep) -> int:
    plan = step.current.plan if step.current else None
    return plan.resident_bytes + plan.arena_bytes if plan else 0


def _is_capturing() -> bool:
    """Under a capture of ours the function itself must run."""
    return getattr(_capturing, "active", False)


def _calls(stats: Stats) -> str:
    return f"{count(stats['calls'], 'planned call')}, {count(stats['eager_calls'], 'eager call')}"


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def _announce(line: str) -> None:
    if os.environ.get("LOWTIDE_QUIET") or not is_told():
        return
    log_to_stderr()
    _log.info(line)


def compile(
    function: Callable[..., Any] | None = None,
    *,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    memory_budget: int | float | str | None = None,
    latency_budget: int | float | str | None = None,
    keep_grads: bool | None = None,
    on_unsupported: str | None = None,
    swap: str | os.PathLike[str] | None = None,
    link: str | None = None,
    allow_inexact: bool = False,
) -> Any:
    """Gives a callable like `function` whose steps run planned, from one arena, with the same numbers bit for bit.

    `function` is the step as you wrote it, over the stock `model` and `optimizer` (or several). `memory_budget` is
    bytes, text ("6GiB") or a share (0.6 or "60%") of what eager needs, which `summary()` names: the tensors of the
    model and its optimizers, the batch, what the caller keeps, and what is alive at once in program order, checkpoints
    included. `latency_budget` is milliseconds or text ("20ms"), for the whole step once it is known what that takes
    outside its operators.
    `keep_grads=False` frees gradients as soon as they are used even if the function leaves `.grad` set. Without
    `function` it is a decorator.

    `swap` is a folder on a fast disk, or "host" on a CUDA device. Where the memory budget asks for it, activations,
    gradients, parameters and optimizer state leave memory for a file there, or for pinned memory of the host, and come
    back while other operators run; `link` declares the rate of the way there ("2GB/s"), which is measured otherwise.
    Tensors that are away can be read and written as always.

    Where no plan of whole operators keeps the memory budget, operators run in parts, along an axis of their tensors:
    those whose parts were seen to have the bits of the whole on this machine. `allow_inexact=True` allows all of them:
    then sums over parts have other rounding, as those of micro-batches do, and last bits of other results may differ.

    What cannot be planned runs eager, with one warning that says why. Given a budget it raises `CaptureError` instead,
    because eager code keeps no budget. `on_unsupported="eager"` lets it run eager then too, and the warning says that
    the budget is not kept; `on_unsupported="raise"` always raises.

        step = lowtide.compile(train_step, model=model, optimizer=optimizer)
        loss = step(batch)
    """
    if on_unsupported not in (None, "eager", "raise"):
        raise ValueError(f'on_unsupported: expected "eager", "raise" or None, got {on_unsupported!r}')
    if function is None:
        return functools.partial(
            compile, model=model, optimizer=optimizer, memory_budget=memory_budget, latency_budget=latency_budget,
            keep_grads=keep_grads, on_unsupported=on_unsupported, swap=swap, link=link, allow_inexact=allow_inexact,
        )  # fmt: skip
    if swap is not None and memory_budget is None:
        raise ValueError("swap: expected a memory_budget beside it, which says how much may stay in memory")
    if any(isinstance(parameter, FakeTensor) for parameter in model.parameters()):
        raise CaptureError("the model has no weights to run with, only fake ones: lowtide.capture gives its graph")
    return CompiledStep(
        function, model=model, optimizers=optimizers_of(optimizer), memory_budget=memory_budget,
        latency_budget=latency_budget, keep_grads=keep_grads, on_unsupported=on_unsupported, swap=swap, link=link,
        allow_inexact=allow_inexact,
    )  # fmt: skip
