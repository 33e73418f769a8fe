"""A step function whose own Python runs at every call: its logs, and what becomes of calls that follow none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .._base.decisions import decided
from .._base.fallback import Fallback
from .._capture.leftovers import FilledCaches
from .._capture.tape import Tape
from .._guards.report import CaptureRecord
from .._guards.sharing import Sharing
from .._guards.surroundings import Surroundings
from .._step.binding import RunsEager
from .._step.captured_step import CapturedStep
from .._step.fallback import is_for_the_caller
from ..errors import CaptureError
from .audits import Audits
from .live_call import LiveCall
from .log import DepartedError, Log
from .own import Own
from .own_rules import OwnRules
from .sight import Sight

MOST_LOGS = 32  # those that were used longest ago go


class LiveStep:
    """The function, its model and optimizers, and a log for each way in which its tensor work has gone."""

    def __init__(
        self,
        function: Callable[..., Any],
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        filled: FilledCaches,
        make: Callable[[Tape, CaptureRecord], CapturedStep],
        run: Callable[[CapturedStep, Sequence[Any], Sequence[int | float]], Any],
        has_begun: Callable[[], bool],
        fallback: Fallback,
        audits: Audits,
    ) -> None:
        self.function = function
        self.model = model
        self.optimizers = list(optimizers)
        for optimizer in optimizers:
            _refuse_fixed_state(optimizer)
        self.filled = filled
        self.own_rules = OwnRules(self.optimizers)
        self.surroundings = Surroundings(_nothing_of(function), model, self.optimizers)
        self.sight = Sight(function, model, self.optimizers)
        self._given: tuple[tuple[Any, ...], dict[str, Any]] = (), {}  # the arguments of the call that is made
        self._make = make
        self._run = run
        # Operands of arithmetic that are numbers, other ones at each call; by the call's place in a program.
        self.numbers: dict[tuple[int, Any], set[int]] = {}
        self.lifts_numbers = True  # until one is seen that PyTorch does not hand on as it is
        self.logs: list[Log] = []  # the one that was used last first
        self._has_begun = has_begun  # whether the step that is being run has done what cannot be undone
        self._fallback = fallback
        self.recordings = self.programs = self.calls = self.departures = 0
        self.refused = ""
        self.recorded_for = ""  # why the last recording was made
        self.launches_at_each_step = len(optimizers) < 2  # or when all have stepped, if that can be planned
        self.audits = audits
        self.own = Own(model)
        self._own_at = self.surroundings.looks
        self._call = LiveCall(self)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, str]:
        """One call: what the function gives, and why part of it ran eagerly, if it did."""
        self.calls += 1
        self.refused = ""
        if not self.filled.intact():  # a cache holds something else than the captures have filled in
            self.filled.forget()
            self.drop_logs()
        if self.logs and self.sight.has_changed(args, kwargs):
            self.drop_logs()  # the next recording is refused for it
        self._given = args, kwargs
        try:
            result = self._call.run(self.function, args, kwargs)
        finally:
            self._given = (), {}
        return result, self._call.left

    def find_own(self) -> None:
        """Looks what belongs to the model now."""
        self.surroundings.read()
        if self._own_at != self.surroundings.looks:
            self._own_at = self.surroundings.looks
            self.own = Own(self.model)

    def use(self, log: Log) -> None:
        """A program runs by it: from now on it is the first that others are held against."""
        if self.logs and self.logs[0] is log:
            return
        self.logs[:] = [log, *(other for other in self.logs if other is not log)]
        for old in self.logs[MOST_LOGS:]:
            for step in old.all_steps():
                step.close()
        del self.logs[MOST_LOGS:]

    def number_refused(self) -> DepartedError:
        """PyTorch makes something of a number instead of handing it on: from now on numbers are constants."""
        self.numbers.clear()
        self.lifts_numbers = False
        return DepartedError("a number that has changed does not reach operators as it is")

    def allow_recording(self, reason: str) -> None:
        """Raises `DepartedError` if most programs so far had to be recorded: the next would be no better.

        And `CaptureError` if the function or the modules can see that their tensors are no tensors yet.
        """
        if not self._fallback.not_kept and self.recordings >= 8 and self.recordings * 4 > self.programs:
            raise DepartedError(reason)
        self.own_rules = OwnRules(self.optimizers)  # somebody may have replaced a method
        self.surroundings.refuse_type_questions()
        self.sight.refuse(*self._given)
        self.recordings += 1
        self.recorded_for = reason

    def make(self, tape: Tape, sharing: Sharing, holds_for: list[str]) -> CapturedStep:
        """The captured step of a tape."""
        return self._make(tape, CaptureRecord(self.recorded_for, sharing, holds_for))

    def run(self, step: CapturedStep, outside: Sequence[Any], numbers: Sequence[int | float]) -> list[torch.Tensor]:
        """Runs it on these tensors from outside, with these numbers."""
        result: list[torch.Tensor] = self._run(step, outside, numbers)
        return result

    def refusal_of(self, error: Exception, reason: str) -> Exception | None:
        """What to raise instead of going on eagerly: an answer, a step that is half done, or that no budget is kept."""
        if is_for_the_caller(error) or (not isinstance(error, DepartedError) and self._has_begun()):
            return error
        if not self._fallback.refuses:
            return None
        refusal = self._fallback.refusal(self._said(error, reason))
        refusal.__cause__ = error.__cause__ if isinstance(error, CaptureError) else error
        return refusal

    def note_departure(self, error: Exception, reason: str) -> None:
        """A call goes on eagerly."""
        self.departures += 1
        decided("run", "departed", function=getattr(self.function, "__qualname__", ""), reason=reason)
        only_now = isinstance(error, (DepartedError, RunsEager))
        if isinstance(error, CaptureError) and len(self.optimizers) > 1 and not self.launches_at_each_step:
            self.launches_at_each_step = only_now = True
        if not only_now or (self.departures >= 8 and self.departures * 2 > self.calls):
            self.refused = self._said(error, reason)
        elif self._fallback.not_kept:
            self._fallback.say(f" in one call: {error}")

    def drop_logs(self) -> None:
        """What they were recorded with is no longer there."""
        for step in self.steps():
            step.close()
        self.logs.clear()

    @staticmethod
    def _said(error: Exception, reason: str) -> str:
        return f"most calls are different: {error}" if isinstance(error, (DepartedError, RunsEager)) else reason

    def steps(self) -> Iterator[CapturedStep]:
        """All captured steps."""
        for log in self.logs:
            yield from log.all_steps()

    def close(self) -> None:
        """Gives memory back."""
        self.drop_logs()
        self.surroundings.close()


def _refuse_fixed_state(optimizer: torch.optim.Optimizer) -> None:
    """Raises `CaptureError` if nobody could watch who reads its state while a step is deferred."""
    try:
        optimizer.state = optimizer.state
    except AttributeError as error:
        raise CaptureError(f"the state of {type(optimizer).__qualname__} cannot be set: {error}") from error


def _nothing_of(function: Callable[..., Any]) -> Callable[[], None]:
    """In place of the function, whose own Python is live: it tells whose code is the user's, and names nothing."""

    def nothing() -> None:
        pass

    nothing.__module__ = str(getattr(function, "__module__", None) or "")
    return nothing
