"""Checkpoints of `torch.utils.checkpoint` in a captured step: regions that are to run again.

A capture lets PyTorch's own checkpoint work, whatever its options are, and notes which calls belong to the function's
first run and which to a later one. A later run that does the same as the first is then taken off the tape: whoever uses
its results uses those of the first, and the calls of the first are a region, which the plan runs again. So random
numbers come out as the checkpoint would have them, and a budget may decide about what is around the region.

Where a later run is not the same (a policy of the user's, running statistics that are updated again, other random
numbers), it stays on the tape as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils.checkpoint as torch_checkpoint

from .._base.own_thread import this_thread
from .._base.schemas import positional
from ..errors import CaptureError
from .recorder import Call, Recorder, Recording, Ref, may_draw, refs_in, written_buffers


@dataclass(slots=True)
class Checkpoint:
    """One call of a checkpoint, by the positions of its runs on the tape."""

    preserves_random_state: bool
    region: int = 0
    first: range = range(0)
    again: list[range] = field(default_factory=list)


@contextmanager
def checkpoints_followed(recorder: Recorder) -> Iterator[list[Checkpoint]]:
    """Lists the checkpoints that are called while it is open.

    None of them sets the random state, which a tape could not repeat: `merge_runs` sees to the random numbers.
    """
    found: list[Checkpoint] = []
    saved: list[dict[Any, Any]] = []  # by policies; hooks of a graph that was not gone through would keep them
    own_function = torch_checkpoint.CheckpointFunction
    own_generator = torch_checkpoint._checkpoint_without_reentrant_generator
    calls = recorder.recording.calls
    is_this_thread = this_thread()

    @contextmanager
    def first_run(checkpoint: Checkpoint) -> Iterator[None]:
        checkpoint.region = recorder.open_region()
        begin = len(calls)
        try:
            yield
        finally:
            checkpoint.first = range(begin, len(calls))
            recorder.close_region()

    def later_run(checkpoint: Checkpoint, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        begin = len(calls)
        try:
            return function(*args, **kwargs)
        finally:
            checkpoint.again.append(range(begin, len(calls)))

    class Reentrant:
        """In place of PyTorch's autograd function."""

        @staticmethod
        def apply(function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
            if not is_this_thread():
                return own_function.apply(function, preserve_rng_state, *args)  # type: ignore[no-untyped-call]
            checkpoint = Checkpoint(preserve_rng_state)
            found.append(checkpoint)
            has_run = False

            def run(*inputs: Any, **kwargs: Any) -> Any:
                nonlocal has_run
                if has_run:
                    return later_run(checkpoint, function, *inputs, **kwargs)
                has_run = True
                with first_run(checkpoint):
                    return function(*inputs, **kwargs)

            return own_function.apply(run, False, *args)  # type: ignore[no-untyped-call]

    def generator(
        function: Callable[..., Any],
        preserve_rng_state: bool = True,
        context_fn: Callable[[], tuple[Any, Any]] = torch_checkpoint.noop_context_fn,
        *args: Any,
        **kwargs: Any,
    ) -> Iterator[None]:
        if not is_this_thread():
            yield from own_generator(function, preserve_rng_state, context_fn, *args, **kwargs)
            return
        checkpoint = Checkpoint(preserve_rng_state)
        found.append(checkpoint)

        def contexts() -> tuple[Any, Any]:
            made = context_fn()
            saved.extend(storage for one in made if isinstance(storage := getattr(one, "storage", None), dict))
            return made

        def run(*inputs: Any, **named: Any) -> Any:
            return later_run(checkpoint, function, *inputs, **named)

        around = own_generator(run, False, contexts, *args, **kwargs)
        next(around)
        try:
            with first_run(checkpoint):
                yield
        except BaseException as error:
            around.throw(error)
            raise
        yield from around

    torch_checkpoint.CheckpointFunction = Reentrant  # type: ignore[assignment, misc]
    torch_checkpoint._checkpoint_without_reentrant_generator = generator  # type: ignore[assignment]
    try:
        yield found
    finally:
        for storage in saved:
            storage.clear()
        torch_checkpoint.CheckpointFunction = own_function  # type: ignore[misc]
        torch_checkpoint._checkpoint_without_reentrant_generator = own_generator


def merge_runs(
    recording: Recording, checkpoints: Iterable[Checkpoint], updates: Iterable[int], left_behind: set[int]
) -> None:
    """Takes later runs off the tape where they are the same as the first.

    `updates` are the positions at which parameters change without a call, `left_behind` the buffers that outlive the
    step. Raises `CaptureError` for a later run that must draw the first one's random numbers and is not the same.
    """
    runs = [(again, one) for one in checkpoints for again in one.again]
    if not runs:
        return
    merging = _Merging(recording, list(updates), left_behind)
    for again, one in sorted(runs, key=lambda run: run[0].start):
        draws = any(map(_is_random, recording.calls[again.start : again.stop]))
        if (one.preserves_random_state or not draws) and merging.merge(one.first, again):
            continue
        if one.preserves_random_state and draws:
            where = recording.calls[again.start].where.source
            raise CaptureError(
                f"a checkpoint draws random numbers, and its second run is not the same as the first ({where})"
            )
        for call in recording.calls[one.first.start : one.first.stop]:
            if call.region == one.region:
                call.region = 0


def _is_random(call: Call) -> bool:
    return may_draw(call.target)


class _Merging:
    def __init__(self, recording: Recording, updates: list[int], left_behind: set[int]) -> None:
        self.recording = recording
        self.calls = recording.calls
        self.updates = updates
        self.left_behind = left_behind
        self.maker: dict[int, int] = {}  # by buffer that is not there before: the call that makes it
        self.written: list[list[int]] = []  # by call
        self.writers: dict[int, list[int]] = {}
        self.users: dict[int, list[int]] = {}
        self.changed: set[int] = set()  # buffers of first runs that were changed after them
        for index, call in enumerate(self.calls):
            self.written.append(written_buffers(call.target, positional(call.target, call.args, call.kwargs)))
            for buffer in self.written[-1]:
                self.writers.setdefault(buffer, []).append(index)
            for ref in refs_in((call.args, call.kwargs)):
                self.users.setdefault(ref.buffer, []).append(index)
            for result in call.results:
                if result is not None and recording.buffers[result.buffer].role == "activation":
                    self.maker.setdefault(result.buffer, index)

    def merge(self, first: range, again: range) -> bool:
        """Whether the calls of `again` are those of `first`, as far as it goes; if so, they are taken off the tape."""
        same: dict[int, int] = {}
        repeats: list[Call] = []
        left_out: list[int] = []  # of the first run: the second finds the results
        left = iter(index for index in first if self._computes(index))
        for index in again:
            if not self._computes(index):
                continue
            for candidate in left:
                if self._is_same(candidate, index, same):
                    repeats.append(self.calls[index])
                    break
                if self.written[candidate] or _is_random(self.calls[candidate]):
                    return False
                left_out.append(candidate)
            else:
                return False
        if not self._may_merge(first, again, same):
            return False
        self.changed |= {
            self.recording.known(buffer) for buffer in same.values() if self._changes_behind(first, buffer)
        }
        for call in repeats:
            call.repeats = True
        self.recording.same.update({buffer: self.recording.known(one) for buffer, one in same.items()})
        self.recording.kept |= {buffer for index in left_out for buffer in self._made(index)}
        return True

    def _made(self, index: int) -> list[int]:
        return [ref.buffer for ref in self.calls[index].results if ref and self.maker.get(ref.buffer) == index]

    def _computes(self, index: int) -> bool:
        """Whether it is more than a view."""
        return bool(self.written[index] or self._made(index) or not self.calls[index].results)

    def _is_same(self, first: int, again: int, same: dict[int, int]) -> bool:
        """Whether both do the same with the same; then `same` learns what the second one makes."""
        one, other = self.calls[first], self.calls[again]
        if one.target is not other.target or one.grad_mode != other.grad_mode or len(one.results) != len(other.results):
            return False

        def known(buffer: int) -> int:
            return self.recording.known(same.get(buffer, buffer))

        if not _equal((one.args, one.kwargs), (other.args, other.kwargs), known):
            return False
        made = set(self._made(again))
        learnt = {}
        for a, b in zip(one.results, other.results, strict=True):
            if a is None or b is None:
                if a is not b:
                    return False
            elif b.buffer in made:
                if self.maker.get(a.buffer) != first or a._replace(buffer=-1) != b._replace(buffer=-1):
                    return False
                learnt[b.buffer] = a.buffer
            elif not _equal(a, b, known):
                return False
        same.update(learnt)
        return True

    def _may_merge(self, first: range, again: range, same: dict[int, int]) -> bool:
        """Whether what the runs read is the same, and nobody sees that one of them is missing."""
        if any(first.start < position <= again.stop for position in self.updates):
            return False
        for run in (first, again):
            for index in run:
                if any(self.maker.get(buffer, -1) not in run for buffer in self.written[index]):
                    return False
        for index in again:
            for ref in refs_in((self.calls[index].args, self.calls[index].kwargs)):
                writers = () if ref.buffer in same else self.writers.get(ref.buffer, ())
                own = first if self.maker.get(ref.buffer, -1) in first else range(0)
                if any(first.start <= writer < again.stop and writer not in own for writer in writers):
                    return False
        for repeated, buffer in same.items():
            if any(writer not in again for writer in self.writers.get(repeated, ())):
                return False
            used = repeated in self.left_behind or any(user not in again for user in self.users.get(repeated, ()))
            if used and self._changes_behind(first, buffer):
                return False
        return True

    def _changes_behind(self, run: range, buffer: int) -> bool:
        """Whether what the run makes there is changed when the run is over."""
        return self.recording.known(buffer) in self.changed or any(
            writer not in run for writer in self.writers.get(buffer, ())
        )


def _equal(a: Any, b: Any, known: Callable[[int], int]) -> bool:
    """Whether two arguments are the same, where `known` says which buffers are."""
    if isinstance(a, Ref):
        return isinstance(b, Ref) and a._replace(buffer=known(a.buffer)) == b._replace(buffer=known(b.buffer))
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(_equal(x, y, known) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key], known) for key in a)
    return bool(a == b)
