"""One program of one call: its tensor work is recorded or followed, and then launched, or materialised eagerly."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from .._base.engine_switches import changed_since, read_operator_switches
from .._base.sources import user_line
from .._base.structure import flatten, flatten_call, instances_in
from .._capture.autocast_casts import autocast_enabled, refuse_autocast_by_hand, region_around
from .._capture.leftovers import Leftovers
from .._capture.recorder import refuse_collective
from .._capture.refused_modules import refuse_hooked_additions
from .._capture.said import Sayings
from .._capture.tape import CachesFilled
from .._guards.guards import read_optimizers
from .._guards.report import show_argument
from .._guards.sharing import Sharing, sharing_leaves
from .._step.binding import RunsEager, SharedMemory, StaleBinding
from .._step.captured_step import CannotGoOn, CapturedStep
from .._step.fallback import is_for_the_caller, reason_of
from ..errors import CaptureError
from . import audits
from .atoms import OptimizerCall, is_step, key_of, name_of, sees_python
from .capturing import put_buffers
from .liveness import dead_values
from .log import Asked, DepartedError, Entry, Log, Written
from .modes import autocasts, read_modes_of_call, reads_of_operators_are, under_modes
from .numbers import changed_numbers, kind_of
from .operands import Operands
from .paused import PausedRun
from .random_state import DeferredDraws
from .rates import RatesPutBack, hyper_parameters
from .recording import ProgramRecording
from .stand_in import Form, StandIn, become
from .streams import OwnStream
from .wording import difference, listed

if TYPE_CHECKING:
    from .._capture.tape import Tape
    from .live_step import LiveStep


_BY_SCALERS = ("grad_scale", "found_inf")  # of a fused optimizer, while a scaler steps it
UNKNOWN = object()  # a call that the log does not have next


class Program:
    """From the first call that touches the model to the launch."""

    def __init__(self, step: LiveStep) -> None:
        self._step = step
        own = step.own
        self._parameters, self._buffers = own.parameters, own.buffers
        self._operands = Operands(own)
        refuse_hooked_additions(step.model, self._parameters.values())
        self._needs = [parameter.requires_grad for parameter in self._parameters.values()]
        self.draws = DeferredDraws()
        self._switches = read_operator_switches()
        self._stream = OwnStream()
        self.entries: list[Entry] = []
        self._stand_ins: dict[int, weakref.ref[StandIn]] = {}
        self.gradients: dict[str, tuple[Any, ...] | None] = {}  # where they are others than at the first call
        self._outside: dict[int, Any] = {}  # gradients of tensors from outside
        self._states: list[tuple[Hashable, Any]] = []  # of Python at each atom: its key, and what it was
        self._rates: list[tuple[OptimizerCall, list[dict[str, Any]]]] = []  # hyper-parameters of each step
        self._recording: ProgramRecording | None = None
        self._leftovers: Leftovers | None = None
        self._paused: PausedRun | None = None  # of the log that is followed
        self._new_buffers: dict[str, StandIn] = {}
        self._start = (tuple([grad is not None for grad in self._operands.gradients.values()]), region_around())
        self._sharing: Sharing = ()
        self._log = next(iter(self._logs()), None)
        if self._log is None:
            other_start = "what there is at the start of the step: gradients, or an autocast region around it"
            self._record_from_here(other_start if step.logs else "first call")

    def _logs(self) -> list[Log]:
        start = (*self._start, self._sharing)
        return [log for log in self._step.logs if log.start == start]

    # -- calls ---------------------------------------------------------------------------------------------------------

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], region: int) -> Any:
        """Answers a call without making it. Raises `DepartedError` or `CaptureError` where that cannot be done."""
        if is_step(function) and (args or kwargs):
            raise CaptureError("optimizer.step(closure) cannot be planned")
        if is_step(function) and any(getattr(function.optimizer, name, None) is not None for name in _BY_SCALERS):
            raise CaptureError("a GradScaler steps a fused optimizer, which then decides by itself whether it updates")
        refuse_collective(function)
        asked, leaves = self._ask(function, args, kwargs)
        if not self._is_queued_alike(asked):
            self._refuse_other_engine()
        entry = self._follow(asked) if self._recording is None else None
        if entry is None and self._numbers_become_operands(asked, leaves) and self._recording is None:
            entry = self._follow(asked)
        if (entry is None or entry.draws) and self.draws.was_set():
            raise DepartedError("a random state is set between two draws")
        if entry is None:
            if self._recording is None:
                self._record_from_here(self._difference(asked))
            constants = [leaf if o[0] == "plain" else None for leaf, o in zip(leaves, asked.operands, strict=True)]
            entry = Entry(asked, function, constants, region, source=user_line())
            assert self._recording is not None
            self._recording.record(entry)
            self._step.sight.refuse_writes(entry.writes, self._operands.outside, self._step.surroundings)
        if is_step(function):
            self._rates.append((function, hyper_parameters(function.optimizer)))
            _tell_schedulers(function.optimizer)
        return self._take(entry)

    def follow(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The answer to a call that no Python is part of, if it is the next one of the log; `UNKNOWN` if not."""
        if self._recording is not None:
            return UNKNOWN
        mark = self._operands.mark()
        entry = None
        try:
            asked, _ = self._ask(function, args, kwargs)
            if self._is_queued_alike(asked):
                entry = self._follow(asked)
            if entry is not None and entry.draws:  # what live Python has set of random states is looked at first
                entry = None
        finally:
            if entry is None:
                self._operands.go_back(mark)
        return UNKNOWN if entry is None else self._take(entry)

    def _take(self, entry: Entry) -> Any:
        """Another call is deferred; gives its answer."""
        for say in entry.said:
            say()
        for number in entry.outside.keys() - self._outside.keys():
            if self._operands.outside[number].grad is not None:
                raise DepartedError("a backward pass adds to the gradient of a tensor that is not the model's")
        if entry.draws:
            self.draws.note()
        self.entries.append(entry)
        self.gradients.update(entry.gradients)
        self._outside.update((number, self._given(result)) for number, result in entry.outside.items())
        self._replace_buffers(entry)
        made: dict[int, Any] = {}
        for effect in entry.effects:
            effect.happen(made)
        return self._answer(entry)

    def _ask(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Asked, list[Any]]:
        leaves, structure = flatten_call(args, kwargs)
        operands = [self._operands.of(leaf) for leaf in leaves]
        key = key_of(function)
        for place in self._step.numbers.get((len(self.entries), key), ()):
            if place < len(leaves) and kind_of(leaves[place]) is not None:
                operands[place] = self._operands.number(leaves[place])
        state: Hashable = None
        if sees_python(function):
            state = self._step.surroundings.read()
            if not self._states or self._states[-1][0] != state:
                self._states.append((state, self._step.surroundings.snapshot()))
        elif type(function) is OptimizerCall:
            state = read_optimizers([function.optimizer])
        modes = read_modes_of_call()
        if autocasts(modes):
            refuse_autocast_by_hand()
        return Asked(key, structure, operands, modes, state), leaves

    def _numbers_become_operands(self, asked: Asked, leaves: list[Any]) -> bool:
        """Whether a call is the one of a log but for numbers: those are operands from now on."""
        position = len(self.entries)
        logs = [self._log] if self._recording is not None and self._log is not None else self._logs()
        for log in logs if self._step.lifts_numbers else ():
            if len(log.entries) <= position:
                continue
            changed = changed_numbers(log.entries[position].asked, asked, leaves)
            if changed and (self._recording is not None or log.begins_with(self.entries)):
                self._log = log
                self._step.numbers.setdefault((position, asked.function), set()).update(changed)
                for place in changed:
                    asked.operands[place] = self._operands.number(leaves[place])
                return True
        return False

    def _difference(self, asked: Asked) -> str:
        return difference(self._expected(), asked, self._step.surroundings, self._operands.numbers)

    def _expected(self) -> Asked | None:
        position = len(self.entries)
        if self._log is None or position >= len(self._log.entries):
            return None
        return self._log.entries[position].asked

    def _follow(self, asked: Asked) -> Entry | None:
        position = len(self.entries)
        if self._expected() == asked:
            assert self._log is not None
            return self._log.entries[position]
        for log in self._logs():
            if len(log.entries) > position and log.entries[position].asked == asked and log.begins_with(self.entries):
                self._log = log
                return log.entries[position]
        return None

    def _answer(self, entry: Entry) -> Any:
        assert entry.result_structure is not None
        return entry.result_structure.unflatten([self._given(result) for result in entry.results])

    def _given(self, result: tuple[Any, ...]) -> Any:
        if result[0] == "variable":
            return self._stand_in(result[1], result[2])
        return self._operands.given(result)

    def _stand_in(self, number: int, form: Form) -> StandIn:
        known = self._stand_ins.get(number)
        one = None if known is None else known()
        if one is None:
            one = StandIn(number, form)
            self._stand_ins[number] = weakref.ref(one)
        one.form = form
        return one

    def _replace_buffers(self, entry: Entry) -> None:
        """A module has given the model other buffers: live Python finds them there."""
        for name, result in entry.buffers.items():
            self._new_buffers[name] = self._stand_in(result[1], result[2])
        put_buffers(self._step.model, self._new_buffers)

    def _put_own_buffers(self) -> None:
        """The model has the buffers again that it had at the first call."""
        put_buffers(self._step.model, {name: self._buffers[name] for name in self._new_buffers})

    @contextmanager
    def _own_buffers(self) -> Iterator[None]:
        """While open, the model has the buffers that it had at the first call."""
        self._put_own_buffers()
        try:
            yield
        finally:
            put_buffers(self._step.model, self._new_buffers)

    def gradient_of(self, tensor: torch.Tensor) -> Any:
        """What `.grad` of a tensor is for live Python, if it is a parameter or is given a gradient."""
        number = self._operands.number_of(tensor)
        if number is not None:
            return self._outside[number]
        name = self._operands.own.tensors[id(tensor)][1]
        if name not in self.gradients:
            return self._operands.gradients[name]
        result = self.gradients[name]
        return None if result is None else self._given(result)

    def is_parameter(self, tensor: Any) -> bool:
        """Whether a tensor is a parameter of the model."""
        return bool(self._operands.own.tensors.get(id(tensor), ("",))[0] == "parameter")

    def has_used(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor that is not the model's is an operand of what has been deferred."""
        return self._operands.number_of(tensor) is not None

    def gives_gradient(self, tensor: Any) -> bool:
        """Whether a tensor is not the model's, and a backward pass of the program gives it a gradient."""
        return self._operands.number_of(tensor) in self._outside

    def is_pending(self, tensor: Any) -> bool:
        """Whether what has been deferred may decide what is in the tensor, or in its gradient."""
        if type(tensor) is StandIn or self.gives_gradient(tensor):
            return True
        if tensor.layout is not torch.strided:
            return False
        gradients = self._operands.gradients.values()
        changed = [*self._buffers.values(), *(gradient for gradient in gradients if gradient is not None)]
        if any(entry.updates or entry.writes.lasts for entry in self.entries):
            changed += self._parameters.values()
        for call, _ in self._rates:
            changed += [one for table in call.optimizer.state.values() for one in instances_in(table, torch.Tensor)]
        for entry in self.entries:
            changed += [self._operands.outside[number] for number in entry.writes.outside]
        storage = tensor.untyped_storage()._cdata
        if any(storage in entry.writes.elsewhere for entry in self.entries):
            return True
        return any(one.layout is torch.strided and one.untyped_storage()._cdata == storage for one in changed)

    def _is_queued_alike(self, asked: Asked) -> bool:
        """Whether a call is made under the same switches as the first one, and on the same stream."""
        return reads_of_operators_are(self._switches, asked.modes) and self._stream.is_current()

    def _refuse_other_engine(self) -> None:
        """Operators run all together, under one setting of what they read then, and on one stream."""
        changed = changed_since(self._switches)
        if changed:
            raise DepartedError(f"the step sets how operators compute: {changed}")
        if not self._stream.is_current():
            raise DepartedError("the step changes the CUDA stream that its work is queued on")

    # -- recording -----------------------------------------------------------------------------------------------------

    def _record_from_here(self, reason: str) -> None:
        """From now on calls are recorded; those that were followed are run on fake tensors first."""
        self._step.allow_recording(reason)
        self._put_back()
        changed = self._record_followed(again=False)
        if changed:
            raise DepartedError(f"{reason}; and {changed} is not what it was")

    def _record_followed(self, *, again: bool) -> str:
        """Records the calls that were followed; up to one that gives something else than it did, which is named."""
        step, followed = self._step, self.entries
        with self._own_buffers(), self._python_as_it_was() as put_python_back:
            self._leftovers = self._leftovers or Leftovers(step.surroundings.closed, step.filled)
            entries: list[Entry] = []
            recording = self._recording = ProgramRecording(
                step, self._operands, entries, self._leftovers, sharing_leaves(self._sharing), self._own_buffers,
                again=again,
            )  # fmt: skip
            for entry in _by_region(followed):
                put_python_back(entry)
                anew = replace(entry, results=[], gradients={}, outside={}, buffers={}, effects=[], writes=Written())
                if entry.peek is None:
                    recording.record(anew)
                    anew.said = entry.said  # as it was called by live Python
                else:
                    recording.mark_pause(anew)
                if not anew.gives_as(entry):
                    return f"{name_of(entry.asked.function)} ({entry.source})"
                entries.append(anew)
        self.entries = entries
        return ""

    @property
    def in_checkpoint(self) -> bool:
        """Whether a checkpoint has begun that is recorded."""
        return self._recording is not None and self._recording.in_checkpoint

    @contextmanager
    def _python_as_it_was(self) -> Iterator[Callable[[Entry], None]]:
        """While open, what it gives puts back what an atom saw of Python. Afterwards Python is as it is now."""
        surroundings = self._step.surroundings
        now = surroundings.read()
        states = dict(self._states)

        def put_back(entry: Entry) -> None:
            if sees_python(entry.call):
                model = self._step.model
                buffers = {name: model.get_buffer(name) for name in self._new_buffers}
                surroundings.restore(states[entry.asked.state])
                put_buffers(model, buffers)  # stand-ins of live Python, if at all

        if all(key == now for key in states):
            yield lambda _entry: None
            return
        last = surroundings.snapshot()
        try:
            yield put_back
        finally:
            surroundings.restore(last)

    # -- values in mid-step --------------------------------------------------------------------------------------------

    def value_of(self, tensor: StandIn, region: int) -> torch.Tensor:
        """The value of a tensor before the program can run to its end.

        A program that is followed runs up to there. Else what leads to the value is computed, and will be once more.
        """
        self._refuse_values_behind_lasting_effects()
        self._refuse_other_engine()
        structure = flatten(((tensor,), {}))[1]
        asked = Asked("value", structure, [("variable", tensor.number)], read_modes_of_call(), None)
        entry = self._follow(asked) if self._recording is None else None
        if entry is None:
            if self._recording is None:
                self._record_from_here(self._difference(asked))
            assert self._recording is not None
            peek = self._make(self._recording.peek(tensor.number))
            entry = Entry(asked, None, [None], region, source=user_line(), peek=peek)
            entry.result_structure = structure
            self._recording.mark_pause(entry)
        self.entries.append(entry)
        try:
            value = self._value_at_pause()
            return self._value_by_peek(entry.peek) if value is None else value
        except (StaleBinding, SharedMemory) as error:
            self._step.drop_logs()
            raise DepartedError(str(error)) from error

    def confirm_layout(self, tensor: StandIn) -> None:
        """Raises `DepartedError` if a tensor has other strides than the recording says, as far as that is open."""
        if self._recording is None or tensor.numel() < 2:
            return
        self._refuse_values_behind_lasting_effects()
        peek = self._make(self._recording.peek(tensor.number))
        try:
            self._value_by_peek(peek)
        except (StaleBinding, SharedMemory) as error:
            raise DepartedError(str(error)) from error
        finally:
            peek.close()

    def _refuse_values_behind_lasting_effects(self) -> None:
        for before in self.entries:
            if before.gradients or before.outside or before.writes.lasts or before.buffers or before.updates:
                raise DepartedError("a value is asked for between two backward passes")

    def _value_at_pause(self) -> torch.Tensor | None:
        """The value that the last entry asks for, if the program that is followed can run up to there."""
        if self._paused is not None:
            value = None
            if not self.draws.was_set():
                with self.draws.partly_made():
                    value = self._paused.next_value(self.entries, self._operands.outside)
            if value is None:
                self._put_back()
            return value
        is_first = sum(entry.peek is not None for entry in self.entries) == 1
        if self._log is None or self._recording is not None or not is_first or self.draws.was_set():
            return None
        if self._log.has_numbers:  # which may not be known yet
            return None
        with self.draws.partly_made():
            found = PausedRun.begin(self._log, self._operands.outside)
        if found is None:
            return None
        self._paused, value = found
        return value

    def _put_back(self) -> None:
        """What a program that has paused has done so far is not done any more."""
        paused, self._paused = self._paused, None
        if paused is not None:
            self.draws.put_back(paused.put_back)

    def _value_by_peek(self, peek: CapturedStep | None) -> torch.Tensor:
        assert peek is not None
        buffers = tuple(self._buffers.values())
        before = [buffer.clone() for buffer in buffers]
        versions = tuple([buffer._version for buffer in buffers])
        try:
            with self.draws.tried():
                value = self._step.run(peek, self._operands.outside, self._operands.numbers)[0]
                return value.clone()  # which may be part of a buffer
        except Exception as error:
            if is_for_the_caller(error) or isinstance(error, (StaleBinding, SharedMemory)):
                raise
            raise DepartedError(f"a value cannot be computed by itself: {reason_of(error)}") from None
        finally:
            with torch.no_grad():
                for buffer, content in zip(buffers, before, strict=True):
                    buffer.copy_(content)
            torch._C._autograd._unsafe_set_version_counter(buffers, versions)

    # -- launching -----------------------------------------------------------------------------------------------------

    def launch(self, root: FrameType | None) -> bool:
        """Runs the program, planned, and gives live Python its results; False if a graph is still to be gone through.

        `root` is the frame that live Python was called from, if it is still running.
        """
        self._refuse_other_engine()
        dead = _dead_tensors(root)
        needed = self._needed(dead)
        if self._leaves_graphs(needed, dead):
            return False
        values = self._run(needed)
        self.entries = []  # whatever fails from here on, they are not made again
        given: dict[int, torch.Tensor] = {}
        for number, value in zip(needed, values, strict=True):
            one = self._stand_ins.pop(number)()
            if one is not None:  # as long as a snapshot of the model was what held it
                become(one, value)
                given[number] = one
        for name, result in self.gradients.items():
            if result is not None and result[1] in given and result[0] == "variable":
                self._parameters[name].grad = given[result[1]]  # the same memory, and the tensor that Python holds
        for number, gradient in self._outside.items():
            self._operands.outside[number].grad = gradient
        put_buffers(self._step.model, self._new_buffers)
        return True

    def _run(self, needed: tuple[int, ...]) -> list[torch.Tensor]:
        self._put_own_buffers()
        reason = ""
        for _ in range(3):  # a log that does not hold for this memory is recorded again
            log = self._complete_log() if self._recording is None else None
            if log is None or needed not in log.steps:
                if self._recording is None:
                    other = "the step ends here" if log is None else "live Python holds other tensors"
                    self._record_from_here(reason or other)
                try:
                    log = self._log_of(needed, self._finish_tape(needed))
                except CachesFilled:
                    self._recording, reason = None, "caches of modules are full"
                    continue
            try:
                step = log.steps[needed]
                if self._step.audits.is_due(step) or (self._operands.numbers and step.record.calls == 0):
                    log = self._audited(log, needed)
                self._step.use(log)
                log.last = log.steps[needed]
                return self._run_step(log.last)
            except StaleBinding as error:
                self._step.drop_logs()
                self._log = None
                reason = str(error)
            except SharedMemory as error:
                self._sharing, self._log = error.sharing, None
                reason = str(error)
        raise DepartedError(reason)

    def _audited(self, log: Log, needed: tuple[int, ...]) -> Log:
        """The log; or another one, if its calls are recorded anew and are not what they were."""
        followed, known = self.entries, log.steps[needed].tape
        tape = None
        with self._step.audits.timed():
            try:
                found = self._record_followed(again=True)
                if not found:
                    tape = self._finish_tape(needed)
                    found = audits.difference(known, tape)
            except (CachesFilled, RunsEager):  # what was captured holds for what there was then
                self._recording, self.entries = None, followed
                return log
            except CaptureError:
                self._step.drop_logs()
                raise
        if not found:
            self.entries = followed
            self._step.audits.passed()
            return log
        self.abandon()
        is_new = log.steps[needed].record.calls == 0
        if not is_new:
            log.steps[needed].check(self._operands.outside)  # what it is bound to is watched
        self._step.drop_logs()
        self._log = None
        if is_new:
            raise self._step.number_refused()
        self._step.audits.found(found)
        if tape is None or any(entry.peek is not None for entry in followed):  # Python has gone on with what it was
            raise DepartedError(f"{found} is not what it was")
        self._step.recorded_for = f"an audit: {found}"
        return self._log_of(needed, tape)

    def _run_step(self, step: CapturedStep) -> list[torch.Tensor]:
        """All of the step, or the rest of it if it has paused."""
        paused = self._paused
        if paused is not None and paused.step is step:
            try:
                with self.draws.made(), RatesPutBack(self._rates):
                    values = self._step.run(step, self._operands.outside, self._operands.numbers)
                self._paused = None
                return values
            except CannotGoOn:
                pass
        self._put_back()
        with self.draws.made(), RatesPutBack(self._rates):
            return self._step.run(step, self._operands.outside, self._operands.numbers)

    def has_stepped(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether its step is deferred."""
        return any(call.optimizer is optimizer for call, _ in self._rates)

    def _leaves_graphs(self, needed: tuple[int, ...], dead: dict[int, int]) -> bool:
        """Whether live Python can get at a tensor whose graph is not gone through yet."""
        last = next((entry for entry in reversed(self.entries) if entry.peek is None), None)
        if last is None:
            return False
        if any(_has_graph(result) for result in self.gradients.values()):
            return True  # `backward(create_graph=True)`
        for number in last.unspent_outside:
            one = self._operands.outside[number]
            if sys.getrefcount(one) - 3 > dead.get(id(one), 0):  # `one`, the argument, and the operand
                return True
        return not last.unspent.isdisjoint(needed)

    def _complete_log(self) -> Log | None:
        count = len(self.entries)
        for log in [*([self._log] if self._log else []), *self._logs()]:
            if len(log.entries) == count and log.begins_with(self.entries):
                return log
        return None

    def _finish_tape(self, needed: tuple[int, ...]) -> Tape:
        assert self._recording is not None
        tape = self._recording.finish(needed)
        self._recording = None
        return tape

    def _log_of(self, needed: tuple[int, ...], tape: Tape) -> Log:
        log = self._complete_log() or Log((*self._start, self._sharing), self.entries)
        log.steps[needed] = self._make(tape)
        return log

    def _make(self, tape: Tape) -> CapturedStep:
        tensors = [
            show_argument(o[2])
            for entry in self.entries
            for o in entry.asked.operands
            if len(o) == 3 and o[0] == "outside"
        ]
        calls = [name_of(entry.asked.function) for entry in self.entries]
        return self._step.make(tape, self._sharing, [listed("tensors", tensors), listed("calls", calls)])

    def _needed(self, dead: dict[int, int]) -> tuple[int, ...]:
        """The variables that live Python can get at, but for those in locals that it does not read again."""
        needed = []
        for number, reference in self._stand_ins.items():
            one = reference()
            if one is not None and sys.getrefcount(one) - 2 > dead.get(id(one), 0):
                needed.append(number)
        return tuple(sorted(needed))

    # -- departing -----------------------------------------------------------------------------------------------------

    def drop(self) -> None:
        """Nothing of what has been deferred is done, and nothing will be."""
        self.abandon()
        self._put_own_buffers()
        self.draws.forget()

    def abandon(self) -> None:
        """Nothing of what has been deferred is done."""
        self._put_back()
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.abandon()

    def materialise(self) -> None:
        """Does eagerly what has been deferred; stand-ins become ordinary tensors with their graphs."""
        with self._stream.entered():
            self.abandon()
            self._put_own_buffers()
            with self.draws.made(whatever_happens=True), temporarily_clear_interpreter_stack():
                self._materialise()
            put_buffers(self._step.model, self._new_buffers)

    def _materialise(self) -> None:
        variables: dict[int, Any] = {}
        rates = iter(self._rates)
        # What the calls say has been said when they were deferred.
        with self._requires_grad_as_it_was(), self._python_as_it_was() as put_python_back, Sayings():
            try:
                for entry in _by_region(self.entries):
                    if entry.peek is not None:
                        continue
                    put_python_back(entry)
                    self._call_eagerly(entry, variables, next(rates)[1] if is_step(entry.call) else None)
            finally:
                if not region_around() and not autocast_enabled():
                    torch.clear_autocast_cache()
                for number, reference in self._stand_ins.items():
                    one = reference()
                    if one is not None and number in variables:
                        become(one, variables[number])

    @contextmanager
    def _requires_grad_as_it_was(self) -> Iterator[None]:
        now = [parameter.requires_grad for parameter in self._parameters.values()]
        self._set_requires_grad(self._needs)
        try:
            yield
        finally:
            self._set_requires_grad(now)

    def _set_requires_grad(self, needs: Sequence[bool]) -> None:
        for parameter, need in zip(self._parameters.values(), needs, strict=True):
            if parameter.requires_grad != need:
                parameter.requires_grad_(need)

    def _call_eagerly(self, entry: Entry, variables: dict[int, Any], rates: list[dict[str, Any]] | None) -> None:
        pairs = zip(entry.asked.operands, entry.constants, strict=True)
        leaves = [v if o[0] == "plain" else variables[o[1]] if o[0] == "variable" else self._given(o) for o, v in pairs]
        args, kwargs = entry.asked.structure.unflatten(leaves)
        del leaves
        with under_modes(entry.asked.modes), RatesPutBack([] if rates is None else [(entry.call, rates)]):
            out = entry.call(*args, **kwargs)
        if not entry.is_sealed:
            for result, leaf in zip(entry.results, flatten(out)[0], strict=True):
                if result[0] == "variable":
                    variables[result[1]] = leaf
        for name, gradient in entry.gradients.items():
            if gradient is not None and gradient[0] == "variable":
                variables[gradient[1]] = self._parameters[name].grad
        for number, gradient in entry.outside.items():
            if gradient[0] == "variable":
                variables[gradient[1]] = self._operands.outside[number].grad
        for name, buffer in entry.buffers.items():
            variables[buffer[1]] = self._step.model.get_buffer(name)


def _tell_schedulers(optimizer: Any) -> None:
    """An optimizer, and one that it is a wrapper of, counts as stepped for schedulers that step before the launch."""
    if getattr(optimizer.step, "_wrapped_by_lr_sched", False):
        optimizer._opt_called = True
    inner = getattr(optimizer, "optimizer", None)
    if isinstance(inner, torch.optim.Optimizer):
        _tell_schedulers(inner)


def _dead_tensors(root: FrameType | None) -> dict[int, int]:
    """By tensor, how many locals of frames that `root` has called have it, and do not read it again."""
    dead: dict[int, int] = {}
    frame = sys._getframe(1) if root is not None else None
    while frame is not None and frame is not root:
        for value in dead_values(frame):
            if isinstance(value, torch.Tensor):
                dead[id(value)] = dead.get(id(value), 0) + 1
        frame = frame.f_back
    return dead


def _by_region(entries: Sequence[Entry]) -> Iterator[Entry]:
    """The entries. Where another autocast region begins, casts that the one before has kept are gone."""
    last = entries[0].region if entries else 0
    for entry in entries:
        if entry.region != last:
            last = entry.region
            torch.clear_autocast_cache()
        yield entry


def _has_graph(gradient: tuple[Any, ...] | None) -> bool:
    return gradient is not None and gradient[0] == "variable" and gradient[2].requires_grad
