"""`lowtide.adapt`: eager training whose batches each get their own plan of what to drop and run again.

A batch goes through four moments:

    begin      the model is called: extents of its arguments -> plan; its blocks are kept or dropped by that
    turn       the backward pass reaches the last block
    end        the backward pass is over
    finish     the model is called again: how high memory rose is known, and learnt from

The first batches of a kind are sheltered: everything is dropped, which no plan is smaller than by much, and measured.
Once they have told more than it takes to fit them, those within what was seen may keep what leaves a tenth of the room
free.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import nn

from . import _core
from .adapt_blocks import Wanted, find_blocks, tensors_in
from .adapt_collect import Collector
from .adapt_forward import (
    Buffers,
    Forward,
    WatchedBuffers,
    changes_what_it_is_given,
    is_left_alone,
    run_dropped,
    running_statistics,
    turn_caches_off,
)
from .adapt_memory import CpuMemory, CudaMemory, Memory, Watched
from .adapt_report import BatchRecord, History, draw
from .adapt_rollback import Rollback
from .adapt_state import state_tensors, state_to_come
from .errors import InfeasibleError, add_note
from .progress import ProgressLine

T = TypeVar("T")

_COLLECT_EVERY = 64  # batches, once the sheltered ones are over
_CAUTION = 1.1  # how much less room sheltered batches have
_SURPRISE = 0.01  # a prediction that is further off asks for another look
_PATIENCE = 40  # batches that cannot be learnt from before a warning says so
_KINDS = 32  # of batches that are told apart; the oldest is forgotten


@dataclass
class _Kind:
    """Batches that one planner serves: of the same structure, with and without gradients that are there already."""

    planner: _core.BatchPlanner | None = None
    sequence: list[int] = field(default_factory=list)  # blocks in the order of their calls
    since_collected: int = 0
    surprised: bool = False


@dataclass
class _Batch:
    """The batch under way."""

    kind: _Kind
    extents: tuple[int, ...]
    base: int  # level when it began
    passing: int  # of that: results of the batch before, which go away as this one's come
    dropped: list[bool] | None  # None: everything
    likely: int | None  # predicted peak above base - passing
    sheltered: bool
    planning_us: float
    collector: Collector | None
    peak: int = 0
    calls: int = 0
    drops: int = 0
    unexpected: bool = False


class Adapter:
    """A model whose batches are planned; see `lowtide.adapt`. Also a context manager, which closes it."""

    def __init__(
        self,
        model: nn.Module,
        budget: int,
        *,
        blocks: Wanted | None,
        optimizer: torch.optim.Optimizer | None,
        shelter: int,
        features: Callable[..., Any] | None,
        enforce: bool,
        progress: bool,
        order: int,
    ) -> None:
        self.model = model
        self.budget_bytes = budget
        self.blocks = find_blocks(model, blocks)
        self.history = History()
        self._optimizer = optimizer
        self._shelter = shelter
        self._features = features
        self._order = order
        self._line = ProgressLine("training") if progress else None
        self._memory = _memory_of(model, optimizer)
        self._kinds: dict[Any, _Kind] = {}
        self._batch: _Batch | None = None
        self._explicit = False
        self._in_run = False
        self._drop_all = False
        self._results = Watched()  # of the last call of the model
        self._fruitless = 0
        self._seen_running: set[int] = set()  # blocks that change no buffers but running statistics
        self._trainable = [p for p in model.parameters() if p.requires_grad]
        self._check_resident()
        if enforce:
            self._memory.limit(budget)
        self._with_caches = turn_caches_off(model)
        self._index = {id(block): i for i, block in enumerate(self.blocks.values())}
        self._forwards = [Forward(block, self._run_block) for block in self.blocks.values()]
        self._forwards.append(Forward(model, self._run_model))

    # -- for users ----------------------------------------------------------------------------------------------------

    def run(self, step: Callable[[], T]) -> T:
        """Calls `step`, which does both passes; if memory runs out, once more with everything dropped.

        What the failed attempt changed is put back first: random state, running statistics and gradients, for which
        those that are there already are copied. The optimizer steps outside.

            loss = adapter.run(lambda: compute_loss(model, batch).backward())
        """
        before = Rollback(self.model, gradients=True)
        self._in_run = True
        try:
            try:
                return step()
            except torch.OutOfMemoryError as error:
                if not self._can_drop_more():
                    raise self._nothing_helps(error) from None
            # Outside of the except block: nobody holds the frames of the failed attempt and their tensors any more.
            self._ran_out()
            before.restore()
            self._drop_all = True
            return step()
        finally:
            self._in_run = self._drop_all = False

    def preflight(self, batch: Any, *, loss: Callable[[Any], torch.Tensor] | None = None) -> int:
        """Tries the largest batch before training: forward and backward pass with everything dropped.

        Nothing is changed but what is known about batches: gradients, running statistics and random state are put
        back. `batch` is what the model is called with: a dictionary or a tuple of arguments or a tensor; or a function
        that does both passes. `loss` makes a scalar of the model's result, which otherwise is its `.loss`, or its sum.

        Gives the smallest peak within which such batches can be trained on, in bytes. If that is more than the budget,
        InfeasibleError says so.
        """
        before = Rollback(self.model, gradients=True)
        if self._cannot_be_told_apart(batch):
            raise TypeError(
                f"a batch is a dictionary, a tuple, a tensor or a function, not a {type(batch).__qualname__}"
            )
        for parameter in self.model.parameters():
            parameter.grad = None
        self._finish()
        self._drop_all = True
        try:
            _both_passes(self.model, batch, loss)
            done = self._batch
        except torch.OutOfMemoryError as error:
            raise self._nothing_helps(error) from None
        finally:
            self._drop_all = False
        self._finish()
        if done is None:
            raise ValueError("preflight saw no call of the model with gradients")
        before.restore()
        needed = done.peak + self._state_to_come()
        if done.kind.planner is not None and done.kind.planner.observations:
            least = done.base - done.passing + done.kind.planner.least_peak(done.extents) + self._state_to_come()
            needed = min(needed, least)
        if needed > self.budget_bytes:
            raise self._infeasible(f"a batch of {list(done.extents)}", needed)
        return needed

    def begin(self, *batch: Any) -> None:
        """Says that a batch begins, where the model itself is not called: its extents are those of these tensors."""
        self._explicit = False
        self._begin(batch, {})
        self._explicit = True

    def end(self) -> None:
        """Says that the batch is over, the update included. Without it the next one says so."""
        self._finish()
        self._explicit = False

    def stats(self) -> dict[str, float | int]:
        """Figures so far: batches, how many were sheltered, mean error of predictions, planning time."""
        return self.history.stats()

    def plot(self, path: str | Path) -> None:
        """Writes a picture of memory by batch against the budget, as SVG."""
        draw(self.history.records, path)

    def close(self) -> None:
        """Gives the model back as it was."""
        try:
            self._finish()
        finally:
            for forward in self._forwards:
                forward.remove()
            for config in self._with_caches:
                config.use_cache = True
            self._with_caches = []
            self._memory.close()
            if self._line is not None:
                self._line.clear()

    def __enter__(self) -> Adapter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- calls --------------------------------------------------------------------------------------------------------

    def _run_model(self, forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._explicit or is_left_alone():
            return forward.original(*args, **kwargs)
        self._begin(args, kwargs)
        if self._in_run or not self._can_drop_more():
            result = forward.original(*args, **kwargs)
        else:
            result = self._tried_twice(forward, args, kwargs)
        self._results = Watched()
        for tensor in tensors_in(result):
            self._results.watch(tensor)
        if self._batch is not None and self._batch.collector is not None:
            self._batch.collector.model_returned()
        return result

    def _tried_twice(self, forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A forward pass that, if memory runs out, is done again with everything dropped."""
        before = Rollback(self.model, gradients=False)
        try:
            return forward.original(*args, **kwargs)
        except torch.OutOfMemoryError:
            pass
        self._ran_out()
        before.restore()
        self._drop_all = True
        try:
            self._begin(args, kwargs)
        finally:
            self._drop_all = False
        return forward.original(*args, **kwargs)

    def _run_block(self, forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        batch = self._batch
        if batch is None or is_left_alone() or not self._has_gradient(forward.module, args, kwargs):
            return forward.original(*args, **kwargs)
        if changes_what_it_is_given(args, kwargs):
            _warn_about_cache(forward.module)
            return forward.original(*args, **kwargs)
        block = self._index[id(forward.module)]
        drop = self._is_dropped(batch, block)
        if not drop:
            if batch.collector is None:
                return forward.original(*args, **kwargs)
            return batch.collector.run(block, lambda: forward.original(*args, **kwargs))
        batch.drops += 1
        if block in self._seen_running:
            return self._drop(batch, block, forward, args, kwargs, running_statistics(forward.module))
        watched = WatchedBuffers(forward.module)
        result = self._drop(batch, block, forward, args, kwargs, watched)
        self._seen_running.add(block)
        changed = watched.changed()
        if changed:
            self._leave_out(forward, changed)
        return result

    def _drop(
        self,
        batch: _Batch,
        block: int,
        forward: Forward,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        buffers: Buffers,
    ) -> Any:
        if batch.collector is None:
            return run_dropped(forward.original, args, kwargs, buffers)
        return batch.collector.run_dropped(
            block,
            lambda first, again: run_dropped(forward.original, args, kwargs, buffers, first, again),
            tensors_in((args, kwargs)),
        )

    def _leave_out(self, forward: Forward, changed: list[str]) -> None:
        """Keeps a block from now on whose result depends on what its run before has changed."""
        forward.remove()
        self._forwards.remove(forward)
        self.blocks = {name: block for name, block in self.blocks.items() if block is not forward.module}
        self._kinds.clear()
        warnings.warn(
            f"lowtide.adapt keeps {type(forward.module).__qualname__}: it changes its buffers as it runs "
            f"({', '.join(changed)}), and a second run would find others",
            stacklevel=6,
        )

    def _is_dropped(self, batch: _Batch, block: int) -> bool:
        position = batch.calls
        batch.calls += 1
        if batch.dropped is None:
            return True
        if position >= len(batch.dropped) or batch.kind.sequence[position] != block:
            batch.unexpected = True  # another path through the model: dropping is always right
            return True
        return batch.dropped[position]

    def _has_gradient(self, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return any(p.requires_grad for p in block.parameters()) or any(
            t.requires_grad for t in tensors_in((args, kwargs))
        )

    # -- a batch ------------------------------------------------------------------------------------------------------

    def _begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._finish()
        level, _ = self._memory.mark()
        began = time.perf_counter_ns()
        tensors = tensors_in((args, kwargs))
        if self._features is None:
            extents = tuple(extent for tensor in tensors for extent in tensor.shape)
        else:
            extents = tuple(int(extent) for extent in self._features(*args, **kwargs))
        kind = self._kind_of(tuple(tensor.dim() for tensor in tensors), len(extents))
        batch = _Batch(kind, extents, level, self._results.alive_bytes(), None, None, True, 0.0, None)
        self._plan(batch)
        batch.planning_us = (time.perf_counter_ns() - began) / 1000
        if batch.sheltered or kind.surprised or kind.since_collected >= _COLLECT_EVERY:
            resident = {t.untyped_storage()._cdata for t in (*self.model.parameters(), *self.model.buffers())}
            batch.collector = Collector(self._memory, resident, level)
        self._batch = batch

    def _plan(self, batch: _Batch) -> None:
        planner = batch.kind.planner
        if planner is None:
            return
        room = self.budget_bytes - (batch.base - batch.passing) - self._state_to_come()
        learnt = planner.observations >= self._shelter
        plan = planner.plan(batch.extents, room if learnt else int(room / _CAUTION), batch.passing)
        sure = plan.known and (learnt or not plan.extrapolates)
        if sure and plan.safe_peak > room and not self._drop_all:
            least = planner.least_peak(batch.extents)
            if least > room:
                self._batch = None
                raise self._infeasible(f"a batch of {list(batch.extents)}", self.budget_bytes - room + least)
        batch.sheltered = not plan.known or not learnt or self._drop_all
        if plan.known and not self._drop_all and (learnt or (plan.tested and not plan.extrapolates)):
            batch.dropped = plan.dropped
            batch.likely = plan.likely_peak
            batch.kind.surprised = batch.kind.surprised or plan.extrapolates
        elif plan.known:
            batch.likely = planner.likely_peak(batch.extents, [True] * len(plan.dropped), batch.passing)

    def _finish(self) -> None:
        batch, self._batch = self._batch, None
        if batch is None:
            return
        level, peak = self._memory.mark()
        collector = batch.collector
        batch.peak = max(peak, collector.peak if collector is not None else 0)
        kind = batch.kind
        start = batch.base - batch.passing
        kind.since_collected += 1
        if collector is not None:
            # State that the first update made is there for good, and in the base of all batches to come.
            update = peak - start - max(level - batch.base, 0)
            self._learn(batch, collector, update)
        elif kind.planner is not None and batch.likely is not None:
            kind.planner.learn_peak(batch.likely, batch.peak - start)
            off = abs(batch.peak - start - batch.likely) / max(batch.peak, 1)
            kind.surprised = off > _SURPRISE or batch.unexpected
        record = BatchRecord(
            number=self.history.batches,
            extents=batch.extents,
            dropped=batch.drops,
            blocks=batch.calls,
            predicted_bytes=None if batch.likely is None else start + batch.likely,
            peak_bytes=batch.peak,
            budget_bytes=self.budget_bytes,
            sheltered=batch.sheltered,
            collected=collector is not None,
            planning_us=batch.planning_us,
        )
        self.history.add(record)
        if self._line is not None:
            self._line.show(record.line())

    def _learn(self, batch: _Batch, collector: Collector, update_peak: int) -> None:
        kind = batch.kind
        collector.closed = True
        seen = collector.observation(batch.passing)
        if seen is None:
            self._fruitless += 1
            if self._fruitless == _PATIENCE:
                warnings.warn(
                    "lowtide.adapt cannot learn from these batches, and drops everything: each call of the model is "
                    "to be followed by one backward pass through all of its blocks",
                    stacklevel=4,
                )
            return
        blocks, backward, tail_peak, turn_peak = seen
        sequence = [call.block for call in collector.calls]
        if kind.planner is None or kind.sequence != sequence:
            kind.planner = _core.BatchPlanner(len(sequence), order=self._order)
            kind.sequence = sequence
        kind.planner.observe(batch.extents, blocks, backward, tail_peak, turn_peak, update_peak)
        kind.since_collected = 0
        kind.surprised = False

    def _kind_of(self, dims: tuple[int, ...], extents: int) -> _Kind:
        device = self._trainable[0].device.type if self._trainable else "cpu"
        key = (
            dims,
            extents,
            self.model.training,
            torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device),
            self._trainable[0].grad is None if self._trainable else True,
            self._trainable[-1].grad is None if self._trainable else True,
        )
        kind = self._kinds.pop(key, None) or _Kind()
        self._kinds[key] = kind
        if len(self._kinds) > _KINDS:
            del self._kinds[next(iter(self._kinds))]
        return kind

    # -- budgets ------------------------------------------------------------------------------------------------------

    def _state_to_come(self) -> int:
        if self._optimizer is None or self._optimizer.state:
            return 0
        return state_to_come(self._optimizer)

    def _check_resident(self) -> None:
        gradients = sum(p.numel() * p.element_size() for p in self._trainable if p.grad is None)
        needed = self._memory.level() + gradients + self._state_to_come()
        if needed > self.budget_bytes:
            self._memory.close()
            state = "" if self._optimizer is None else " and the state of its optimizer"
            raise self._infeasible(f"the model with its gradients{state}", needed)

    def _infeasible(self, what: str, needed: int) -> InfeasibleError:
        def amount(count: int) -> str:
            return f"{_core.format_bytes(count)} ({count} bytes)"

        return InfeasibleError(
            f"E304: the memory budget is {amount(self.budget_bytes)}, but {what} needs at least {amount(needed)}, "
            "whatever is dropped",
            bound_bytes=needed,
            step=0,
            culprits=[(what, needed)],
        )

    def _can_drop_more(self) -> bool:
        return self._batch is not None and self._batch.dropped is not None and not all(self._batch.dropped)

    def _ran_out(self) -> None:
        """What was predicted for the batch under way was too little."""
        batch, self._batch = self._batch, None
        self._results = Watched()
        if batch is None:
            return
        if batch.collector is not None:
            batch.collector.closed = True
        if batch.kind.planner is not None and batch.likely is not None:
            # How much too little is not known: at least what there was.
            actual = self.budget_bytes - (batch.base - batch.passing)
            batch.kind.planner.learn_peak(batch.likely, max(actual, batch.likely + batch.likely // 20))
        batch.kind.surprised = True

    def _nothing_helps(self, error: torch.OutOfMemoryError) -> torch.OutOfMemoryError:
        self._ran_out()
        add_note(error, "lowtide.adapt: everything was dropped already; a smaller batch or a larger budget is needed")
        return error

    @staticmethod
    def _cannot_be_told_apart(batch: Any) -> bool:
        return not (callable(batch) or isinstance(batch, (dict, tuple, list, torch.Tensor)) or hasattr(batch, "keys"))


def _both_passes(model: nn.Module, batch: Any, loss: Callable[[Any], torch.Tensor] | None) -> None:
    if callable(batch) and not hasattr(batch, "keys") and not isinstance(batch, torch.Tensor):
        batch()
        return
    if hasattr(batch, "keys"):
        result = model(**batch)
    elif isinstance(batch, torch.Tensor):
        result = model(batch)
    else:
        result = model(*batch)
    scalar: Any = getattr(result, "loss", None) if loss is None else loss(result)
    if scalar is None:
        scalar = sum((t.sum() for t in tensors_in(result) if t.requires_grad), torch.zeros(()))
    del result
    scalar.backward()


def _memory_of(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> Memory:
    there = [*model.parameters(), *model.buffers()]
    there += [p.grad for p in model.parameters() if p.grad is not None]
    if optimizer is not None:
        there += state_tensors(optimizer)
    device = there[0].device if there else torch.device("cpu")
    return CudaMemory(device) if device.type == "cuda" else CpuMemory(there)


_warned_about: set[type[nn.Module]] = set()


def _warn_about_cache(block: nn.Module) -> None:
    if type(block) not in _warned_about:
        _warned_about.add(type(block))
        warnings.warn(
            f"lowtide.adapt keeps {type(block).__qualname__}: it is given a cache of keys and values, to which a "
            "second run would add again; train with use_cache=False",
            stacklevel=5,
        )


def adapt(
    model: nn.Module,
    *,
    memory_budget: int | str,
    blocks: Wanted | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    shelter: int = 10,
    features: Callable[..., Any] | None = None,
    enforce: bool = False,
    progress: bool = False,
    order: int = 2,
) -> Adapter:
    """Trains `model` within a memory budget whatever the length of a batch: each gets its own plan of what to drop.

        adapter = lowtide.adapt(model, memory_budget="6GiB", optimizer=optimizer)
        adapter.preflight(longest_batch)          # optional: refused now rather than hours into the run
        for batch in loader:
            model(**batch).loss.backward()        # the loop stays as it is
            optimizer.step()
            optimizer.zero_grad()
        adapter.close()

    The budget counts everything on the model's device: parameters, gradients, optimizer state, the batch, and all that
    the step makes. On the CPU that is what the model and the optimizer have now, and all that PyTorch allocates from
    now on. Losses and gradients are those of plain training, bit for bit: a block that is dropped is run again with the
    same random state.

    `blocks` says what may be dropped, if not the repeated modules: classes, names or modules. `optimizer` lets its
    state count before its first step. The first `shelter` batches of a kind are measured, and drop
    everything until enough is known.
    `features` gives the numbers that memory depends on, from the arguments of the model, if not all extents of all
    tensors. With `enforce` requests above the budget raise torch.OutOfMemoryError on the CPU too, and are tried again
    with everything dropped: in the forward pass by itself, in both passes with `adapter.run`. `order` is that of the
    polynomials in the extents that are learnt.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"lowtide.adapt takes a torch.nn.Module, not a {type(model).__qualname__}")
    if isinstance(memory_budget, bool) or not isinstance(memory_budget, (int, str)):
        raise TypeError(f'memory_budget is bytes or text such as "6GiB", not {memory_budget!r}')
    budget = _core.parse_bytes(memory_budget) if isinstance(memory_budget, str) else memory_budget
    if isinstance(model.__dict__.get("forward"), Forward):
        raise ValueError("this model is adapted already; close() the first adapter")
    return Adapter(
        model,
        budget,
        blocks=blocks,
        optimizer=optimizer,
        shelter=max(shelter, 1),
        features=features,
        enforce=enforce,
        progress=progress,
        order=order,
    )
