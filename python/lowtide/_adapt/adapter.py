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
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import nn
from torch._dynamo.eval_frame import OptimizedModule
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from .. import _core
from .._base.blocks import Wanted, find_blocks
from .._base.budgets import read_byte_budget
from .._base.decisions import decided, is_wanted
from .._base.progress import ProgressLine
from .._base.sources import warn_user
from .._base.tensors import extents_of, tensors_in
from ..errors import InfeasibleError, add_note
from .batch import Batch, Kind, Kinds, both_passes
from .buffers import Key
from .collector import Collector
from .content import let_go_of_memory_left_behind
from .drop import Drops
from .forward import Caches, Forward, changes_what_it_is_given, is_left_alone
from .memory import CpuMemory, CudaMemory, Memory, Watched, addresses_of, storage_bytes
from .optimizer_state import state_tensors, state_to_come
from .report import BatchRecord, History, draw
from .rollback import Rollback

T = TypeVar("T")

_COLLECT_EVERY = 64  # batches, once the sheltered ones are over
_CAUTION = 1.1  # how much less room sheltered batches have
_SURPRISE = 0.01  # a prediction that is further off asks for another look
_MEMORY = 0.95  # how much of the share of ordinary batches is that of before
_ORDINARY = 0.52  # below this share everything is dropped, and a warning says so


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
        self._enforced = enforce
        self._kinds = Kinds()
        self._batch: Batch | None = None
        self._explicit = False
        self._in_run = False
        self._drop_all = False
        self._plain = False  # the call of the model is left as it is
        self._results = Watched()  # of the last call of the model
        self._ordinary = 1.0  # share of batches of late: one backward pass each, on the path that was expected
        self._drops = Drops(self._leave_out, self._warn_once)
        self._changing: set[Key] = set()  # buffers that are changed in place
        self._warned: set[str] = set()
        self._trainable = [p for p in model.parameters() if p.requires_grad]
        self._check_resident()
        if enforce:
            self._memory.limit(budget)
        self._caches = Caches(model)
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
        before = Rollback(self.model, gradients=True, changing=self._changing)
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
            self._changing |= before.changed()
            self._in_run = self._drop_all = False

    def preflight(self, batch: Any, *, loss: Callable[[Any], torch.Tensor] | None = None) -> int:
        """Tries the largest batch before training: forward and backward pass with everything dropped.

        Nothing is changed but what is known about batches: gradients, running statistics and random state are put
        back. `batch` is what the model is called with: a dictionary or a tuple of arguments or a tensor; or a function
        that does both passes. `loss` makes a scalar of the model's result, which otherwise is its `.loss`, or its sum.

        Gives the smallest peak within which such batches can be trained on, in bytes. If that is more than the budget,
        InfeasibleError says so.
        """
        passes = both_passes(self.model, batch, loss)
        self._finish()
        parameters = list(self.model.parameters())
        gradients = [parameter.grad for parameter in parameters]
        before = Rollback(self.model, gradients=False, changing=None)
        aside = storage_bytes(gradient for gradient in gradients if gradient is not None) + before.copied_bytes()
        self._drop_all = True
        try:
            for _ in range(2):
                for parameter in parameters:
                    parameter.grad = None
                before.restore()
                done = self._tried(passes)
                if not done.watched:
                    break
        finally:
            self._drop_all = False
            before.restore()
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
        needed = done.peak + self._state_to_come()
        if done.kind.planner is not None and done.kind.planner.plan(done.extents, self.budget_bytes).known:
            least = done.base - done.passing + done.kind.planner.least_peak(done.extents) + self._state_to_come()
            needed = min(needed, least)
        needed -= aside
        if needed > self.budget_bytes:
            raise self._infeasible(f"a batch of {list(done.extents)}", needed)
        return needed

    def _tried(self, passes: Callable[[], object]) -> Batch:
        try:
            passes()
        except torch.OutOfMemoryError as error:
            extents = [] if self._batch is None else list(self._batch.extents)
            if self._enforced:
                self._ran_out()
                raise self._infeasible(f"a batch of {extents}", self.budget_bytes + 1) from None
            raise self._nothing_helps(error) from None
        done = self._batch
        self._finish()
        if done is None:
            raise ValueError("preflight saw no call of the model with gradients")
        return done

    def begin(self, *batch: Any) -> None:
        """Says that a batch begins, where the model itself is not called: its extents are those of these tensors."""
        self._explicit = False
        self._begin(batch, {})
        assert self._batch is not None
        self._batch.turned = True  # nobody says what the results are
        self._explicit = True
        self._caches.turn_off()

    def end(self) -> None:
        """Says that the batch is over, the update included. Without it the next one says so."""
        self._finish()
        self._explicit = False
        self._caches.turn_on()

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
            self._caches.turn_on()
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
        if self._explicit:
            return forward.original(*args, **kwargs)
        if is_left_alone():
            return self._run_aside(forward, args, kwargs)
        before: Rollback | None = None
        self._caches.turn_off()
        try:
            try:
                before = None if self._in_run else Rollback(self.model, gradients=False, changing=self._changing)
                self._begin(args, kwargs)
            except (InfeasibleError, torch.OutOfMemoryError):
                raise
            except Exception as error:
                return self._run_plainly(forward, args, kwargs, error)
            result = self._tried_twice(forward, args, kwargs, before)
        finally:
            self._caches.turn_on()
        if before is not None:
            self._changing |= before.changed()
        self._returned(result)
        return result

    def _run_plainly(self, forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> Any:
        """A batch that cannot be planned is trained on as it would be without us."""
        self._batch = None
        self._warn_once(f"lowtide.adapt keeps everything: {type(error).__qualname__}: {error}")
        self._plain = True
        try:
            return forward.original(*args, **kwargs)
        finally:
            self._plain = False

    def _returned(self, result: Any) -> None:
        batch = self._batch
        self._results = Watched()
        for tensor in tensors_in(result):
            self._results.watch(tensor)
            if tensor.requires_grad and batch is not None:
                hooked: Any = tensor
                hooked.register_hook(batch.turn)
        if batch is not None and batch.collector is not None:
            batch.collector.model_returned()

    def _run_aside(self, forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An evaluation between two batches is no part of the first: what memory it takes does not count."""
        batch = self._batch
        if batch is None or torch.is_grad_enabled() or (batch.collector is not None and not batch.collector.ended):
            return forward.original(*args, **kwargs)
        batch.peak = max(batch.peak, self._memory.mark()[1])
        try:
            return forward.original(*args, **kwargs)
        finally:
            self._memory.mark()

    def _tried_twice(
        self, forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any], before: Rollback | None
    ) -> Any:
        """A forward pass that, if memory runs out and something was kept, is done again with everything dropped.

        Not so within `run`, which does that for both passes.
        """
        if before is None or not self._can_drop_more():
            return forward.original(*args, **kwargs)
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
        if self._plain or is_left_alone() or not self._has_gradient(forward.module, args, kwargs):
            return forward.original(*args, **kwargs)
        if changes_what_it_is_given(args, kwargs):
            self._warn_once(
                f"lowtide.adapt keeps {type(forward.module).__qualname__}: it is given a cache of keys and values, to "
                "which a second run would add again; train with use_cache=False"
            )
            return forward.original(*args, **kwargs)
        batch = self._batch
        block = self._index[id(forward.module)]
        if batch is None:
            self._warn_once(
                "lowtide.adapt drops blocks that are called while no batch is under way: where the model itself is not "
                "called, adapter.begin(*tensors) and adapter.end() say so"
            )
        dropped = batch is None or self._is_dropped(batch, block)
        again = self._drops.prepare(forward, args, kwargs) if dropped else None
        if again is not None:
            return self._drops.run(batch, block, forward, again, tensors_in((args, kwargs)))
        if batch is None or batch.collector is None:
            return forward.original(*args, **kwargs)
        return batch.collector.run(block, lambda: forward.original(*args, **kwargs))

    def _leave_out(self, forward: Forward) -> bool:
        """Keeps a block from now on; whether it was not so before."""
        if forward not in self._forwards:
            return False
        forward.remove()
        self._forwards.remove(forward)
        self.blocks = {name: block for name, block in self.blocks.items() if block is not forward.module}
        self._kinds.clear()
        return True

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warn_user(text, UserWarning)

    def _is_dropped(self, batch: Batch, block: int) -> bool:
        position = batch.calls
        batch.calls += 1
        if batch.dropped is None:
            return True
        if position >= len(batch.dropped) or batch.kind.path[position] != block:
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
        let_go_of_memory_left_behind()
        level, _ = self._memory.mark()
        began = time.perf_counter_ns()
        tensors = tensors_in((args, kwargs))
        if self._features is None:
            extents = tuple(extent for tensor in tensors for extent in extents_of(tensor))
        else:
            extents = tuple(int(extent) for extent in self._features(*args, **kwargs))
        kind = self._kind_of(tuple(tensor.dim() for tensor in tensors), len(extents))
        batch = Batch(kind, extents, level, self._results.alive_bytes(), None, None, True, 0.0, None)
        self._plan(batch)
        batch.planning_us = (time.perf_counter_ns() - began) / 1000
        if batch.sheltered or kind.surprised or kind.since_collected >= _COLLECT_EVERY:
            resident = addresses_of((*self.model.parameters(), *self.model.buffers()))
            batch.collector = Collector(self._memory, resident, level)
        self._batch = batch

    def _plan(self, batch: Batch) -> None:
        planner = batch.kind.planner
        if planner is None or self._ordinary < _ORDINARY:
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
        peak = max(peak, batch.peak)
        batch.peak = max(peak, collector.peak if collector is not None else 0)
        kind = batch.kind
        start = batch.base - batch.passing
        kind.since_collected += 1
        ordinary = batch.turned
        if collector is not None:
            # State that the first update made is there for good, and in the base of all batches to come.
            update = peak - start - max(level - batch.base, 0)
            ordinary = self._learn(batch, collector, update)
        elif not batch.turned or batch.unexpected or batch.calls != len(kind.path):
            ordinary = False
            kind.surprised = True
        elif kind.planner is not None and batch.likely is not None:
            kind.planner.learn_peak(batch.likely, batch.peak - start)
            off = abs(batch.peak - start - batch.likely) / max(batch.peak, 1)
            kind.surprised = off > _SURPRISE
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
        if is_wanted("adapt"):
            decided("adapt", "batch", **asdict(record))
        self._count(ordinary)
        if self._line is not None:
            self._line.show(record.line())

    def _learn(self, batch: Batch, collector: Collector, update_peak: int) -> bool:
        """Whether there was something to learn that helps with the next batch."""
        kind = batch.kind
        collector.closed = True
        seen = collector.observation(batch.passing)
        if seen is None:
            return False
        if batch.watched:
            return True
        blocks, backward, tail_peak, turn_peak = seen
        path = tuple(call.block for call in collector.calls)
        planner = kind.planner_of(path, self._order)
        planner.observe(batch.extents, blocks, backward, tail_peak, turn_peak, update_peak)
        kind.path = max(kind.planners, key=lambda known: kind.planners[known].observations)
        kind.since_collected = 0
        kind.surprised = False
        return path == kind.path

    def _count(self, ordinary: bool) -> None:
        was = self._ordinary
        self._ordinary = _MEMORY * was + (1 - _MEMORY) * ordinary
        if self._ordinary < _ORDINARY <= was and self.blocks:
            self._warn_once(
                "lowtide.adapt cannot plan these batches, and drops everything: each call of the model is to be "
                "followed by one backward pass through all of its blocks, and most batches are to take the same path "
                "through them"
            )

    def _kind_of(self, dims: tuple[int, ...], extents: int) -> Kind:
        device = self._trainable[0].device.type if self._trainable else "cpu"
        key = (
            dims,
            extents,
            self.model.training,
            torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device),
            self._trainable[0].grad is None if self._trainable else True,
            self._trainable[-1].grad is None if self._trainable else True,
        )
        return self._kinds.of(key)

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
            code="E304",
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


def _memory_of(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> Memory:
    there = [*model.parameters(), *model.buffers()]
    there += [p.grad for p in model.parameters() if p.grad is not None]
    if optimizer is not None:
        there += state_tensors(optimizer)
    device = there[0].device if there else torch.device("cpu")
    return CudaMemory(device) if device.type == "cuda" else CpuMemory(there)


def _refuse_wrappers(model: nn.Module) -> None:
    for module in model.modules():
        kind = type(module).__qualname__
        if isinstance(module.__dict__.get("forward"), Forward):
            raise ValueError(f"the {kind} is adapted already; close() the first adapter")
        held = (*module._parameters.values(), *module._buffers.values())
        if any(isinstance(tensor, (UninitializedParameter, UninitializedBuffer)) for tensor in held):
            raise ValueError(f"the {kind} has no parameters yet; run a batch through the model before lowtide.adapt")
        if isinstance(module, nn.DataParallel):
            raise ValueError("lowtide.adapt does not work with DataParallel, whose copies of a model share its blocks")
        if isinstance(module, OptimizedModule) or module._compiled_call_impl is not None:
            raise ValueError(
                f"lowtide.adapt is for eager models, and the {kind} is compiled; lowtide.compile plans those"
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
    _refuse_wrappers(model)
    return Adapter(
        model,
        read_byte_budget(memory_budget),
        blocks=blocks,
        optimizer=optimizer,
        shelter=max(shelter, 1),
        features=features,
        enforce=enforce,
        progress=progress,
        order=order,
    )
