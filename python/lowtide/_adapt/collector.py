"""What one batch shows while it is trained on: levels of memory around each block, in one forward pass.

Marks are set where a block returns, where the gradient of its result is complete, and around its running again. A block
that is dropped is looked into: the tensors that autograd would have saved are counted as they pass, each storage once,
without those of parameters and arguments.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import _core
from .._base.tensors import tensors_in
from .memory import Memory, Watched, addresses_of, storage_bytes


class SavedBytes(Watched):
    """A context for the forward pass of a checkpointed block: looks after what it would have saved."""

    def __init__(self, known: set[int]) -> None:
        super().__init__()
        self._known = known  # storages that do not count
        self._hooks: Any = None

    def __enter__(self) -> None:
        pack, unpack = torch._C._autograd._top_saved_tensors_default_hooks(True)

        def counting(tensor: torch.Tensor) -> Any:
            self.watch(tensor, self._known)
            return pack(tensor)

        self._hooks = torch.autograd.graph.saved_tensors_hooks(counting, unpack)
        self._hooks.__enter__()

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)
        self._hooks = None  # it leads to the arguments, which lead to hooks that lead here: a circle nobody could free


@dataclass
class BlockRecord:
    """One call of a block. Levels are as the memory gives them, not yet above the base."""

    block: int
    dropped: bool
    entered: int = 0
    left: int = 0
    forward_peak: int = 0
    time_ns: int = 0
    result: int = 0
    saved: SavedBytes | None = None
    lingering: int = 0
    stays: int = 0  # of what would be saved, the part that is there in the backward pass even so
    before_again: int = 0
    held_again: int = 0
    again_peak: int = 0
    ran_again: int = 0
    backward_peak: int = 0  # once it has run again, if it does


@dataclass
class Collector:
    """The record of one batch."""

    memory: Memory
    resident: set[int]  # storages of parameters and buffers
    base: int
    calls: list[BlockRecord] = field(default_factory=list)
    backward: list[int] = field(default_factory=list)
    tail_peak: int = 0
    _returned_at: int = 0
    turn_peak: int = 0
    peak: int = 0
    ended: bool = False
    closed: bool = False  # nothing is recorded any more

    def mark(self) -> tuple[int, int]:
        """The level, and the highest since the last mark."""
        level, peak = self.memory.mark()
        self.peak = max(self.peak, peak)
        return level, peak

    # -- forward ------------------------------------------------------------------------------------------------------

    def run(self, block: int, call: Callable[[], Any]) -> Any:
        """A block that is kept."""
        record = BlockRecord(block, dropped=False, entered=self.memory.level())
        began = time.perf_counter_ns()
        result = call()
        self._returned(record, result, began)
        return result

    def run_dropped(self, block: int, call: Callable[[Any, Any], Any], arguments: list[torch.Tensor]) -> Any:
        """A block that is dropped: `call` gets the contexts for its forward pass and for its running again."""
        known = self.resident | addresses_of(arguments)
        record = BlockRecord(block, dropped=True, entered=self.memory.level(), saved=SavedBytes(known))
        began = time.perf_counter_ns()
        result = call(record.saved, _Again(self, record))
        self._returned(record, result, began)
        results = tensors_in(result)
        assert record.saved is not None
        record.held_again = record.saved.total_bytes()
        for tensor in results:
            record.saved.leave_out(tensor)
        record.lingering = record.saved.alive_bytes()
        record.result = storage_bytes(results, known)
        return result

    def _returned(self, record: BlockRecord, result: Any, began: int) -> None:
        record.time_ns = time.perf_counter_ns() - began
        record.left, record.forward_peak = self.mark()
        position = len(self.calls)
        self.calls.append(record)
        for tensor in tensors_in(result):
            if tensor.requires_grad:
                hooked: Any = tensor
                hooked.register_hook(lambda gradient: self._gradient_complete(position))
                break

    def model_returned(self) -> None:
        """The forward pass is over."""
        self._returned_at, self.tail_peak = self.mark()

    # -- backward -----------------------------------------------------------------------------------------------------

    def _gradient_complete(self, position: int) -> None:
        if self.closed:
            return
        _, peak = self.mark()
        if not self.backward:
            self._turn(peak)
        else:
            self._close_stretch(peak)
        self.backward.append(position)

    def _turn(self, peak: int) -> None:
        self.turn_peak = peak
        for record in self.calls:
            if record.saved is not None:
                record.stays = record.saved.alive_bytes()
        engine: Any = torch.autograd.Variable._execution_engine
        engine.queue_callback(self._backward_ended)

    def _close_stretch(self, peak: int) -> None:
        record = self.calls[self.backward[-1]]
        record.backward_peak = max(record.backward_peak, peak)

    def _backward_ended(self) -> None:
        if self.closed:
            return
        _, peak = self.mark()
        self._close_stretch(peak)
        self.ended = True

    # -- the whole ----------------------------------------------------------------------------------------------------

    def observation(self, passing: int) -> tuple[list[_core.BlockObservation], list[int], int, int] | None:
        """What the planner learns from, or None if this was no ordinary step: blocks that had no backward pass, or two.

        Levels are above the base without the `passing` bytes, which were there until the model returned.
        """
        if not self.ended or sorted(self.backward) != list(range(len(self.calls))):
            return None
        if any(record.dropped and record.ran_again != 1 for record in self.calls):
            return None
        # The results of the batch before go away right after the model has returned.
        turn = self.turn_peak if self.turn_peak > self._returned_at else self._returned_at - passing
        observed = [self._observed(record, passing) for record in self.calls]
        return observed, self.backward, self.tail_peak - self.base, turn - (self.base - passing)

    def _observed(self, record: BlockRecord, passing: int) -> _core.BlockObservation:
        base = self.base
        seen = _core.BlockObservation()
        seen.dropped = record.dropped
        seen.entered = record.entered - base
        seen.left = record.left - base
        seen.forward_peak = record.forward_peak - base
        seen.time_ns = record.time_ns
        after = base - passing
        if record.saved is None:
            seen.backward_peak = record.backward_peak - after
            return seen
        seen.saved = record.saved.total_bytes() - record.stays
        seen.lingering = record.lingering - record.stays
        seen.result = record.result + record.stays
        seen.before_again = record.before_again - after
        seen.held_again = record.held_again - record.stays
        seen.again_peak = record.again_peak - after
        seen.settled_peak = record.backward_peak - after
        return seen


class _Again:
    """A context for a block that runs again."""

    def __init__(self, collector: Collector, record: BlockRecord) -> None:
        self._collector = collector
        self._record = record

    def __enter__(self) -> None:
        if not self._collector.closed:
            self._record.before_again, self._record.again_peak = self._collector.mark()

    def __exit__(self, *error: object) -> None:
        record = self._record
        if self._collector.closed:
            return
        _, peak = self._collector.mark()
        record.again_peak = max(record.again_peak, peak)
        record.ran_again += 1
