"""`lowtide.fit`: whether a step fits on a device that is not here, and the largest batch that does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensorMode

from . import _core, weightless
from .capturing import capture_both, optimizers_of
from .errors import CaptureError, InfeasibleError
from .fit_report import EXPANDABLE, FitReport, Infeasible, LargestBatch, Plain, Planned
from .largest import largest_that_fits
from .planning import plan
from .rooflines import DEVICES, Device, device_named
from .tape import fake_mode_of

RESERVE = "1GiB"  # the CUDA context and its modules (about half of it), and workspaces of cuBLAS and cuDNN
SLOWDOWN = 0.1
_MADE = ("function", "model", "optimizer", "example", "batch")

_NOT_IN_THE_GRAPH = (
    "the CUDA context and the workspaces of cuBLAS and cuDNN are not in the graph: the reserve is for them"
)
_OPERATORS_OF_CPU = (
    "operators are those of a CPU, and parameters are updated one by one; on a GPU some operators differ (fused "
    "attention), and by default optimizers update all parameters at once, with temporary copies of them"
)
_NO_RUNS_ON_GPU = "Lowtide runs planned steps on CPU today: for a GPU its figures are plans, not runs"
_ROOFLINE = "times are bounds from published peaks (a roofline), good to compare plans and no forecast of steps"


def fit(
    function: Callable[..., Any],
    *,
    device: str | int,
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    example: tuple[Any, ...] | Callable[[int], tuple[Any, ...]] | None = None,
    batch: int | None = None,
    batch_dim: int = 0,
    reserve: int | str = RESERVE,
    keep_grads: bool = False,
    slowdown: float = SLOWDOWN,
    allocator: str = "",
    largest_batch: bool = True,
) -> FitReport:
    """Whether `function(*example)` fits on `device`: in plain PyTorch, as Lowtide plans it, and within a budget.

        report = lowtide.fit(train_step, model=model, optimizer=optimizer, example=(x, y), device="L4")
        print(report)
        report.fits, report.plain.reserved_bytes, report.planned.total_bytes, report.largest_batch

    Nothing is computed. `device` is one of "A100" (80 GiB), "A100-40", "H100" and "L4", or bytes (24 * 2**30, "24GiB"),
    for which no times are stated. `example` is the tuple of the function's arguments, real or fake, or a function that
    gives one for a batch; then `batch` says which one is asked for. In a tuple, the batch is what all tensors have in
    `batch_dim`. The model may be on the meta device or on fake tensors: it needs no memory then. Without a `model`,
    `function` is taken for one that makes it all: without arguments, it returns a dict of "function", "model",
    "optimizer", "example" and, if wanted, "batch", and is called where nothing takes memory.

    `reserve` is set aside for what no graph has: the CUDA context, and workspaces of cuBLAS and cuDNN. `allocator` has
    PyTorch's settings, as in PYTORCH_CUDA_ALLOC_CONF. Plans are made with `keep_grads`, as `compile` takes it. The
    largest batch is sought in plain PyTorch, as planned, and with operators that run again for as long as the step
    takes at most the share `slowdown` longer.
    """
    if model is None:
        with weightless.building():
            made = function()
        function, model, optimizer, example = _read_made(made)
        batch = made.get("batch") if batch is None else batch
    if example is None:
        raise TypeError("fit needs an example: the tuple of the function's arguments, or a function of the batch")
    optimizers = optimizers_of(optimizer)
    capacity, timed_on = _read_device(device)
    usable = capacity - (_core.parse_bytes(reserve) if isinstance(reserve, str) else reserve)
    if usable <= 0:
        raise ValueError(f"a reserve of {reserve} leaves nothing of {_core.format_bytes(capacity)}")
    with weightless.as_if_on_cpu(model, optimizers):
        inputs = _Inputs(example, batch, batch_dim, fake_mode_of(model))
        question = _Question(function, model, optimizers, inputs, timed_on, usable, keep_grads, allocator)
        planned = question.planned(inputs.batch)
        found = question.largest(slowdown) if largest_batch and inputs.batch is not None else None
        unasked = inputs.why_no_batch or ("" if largest_batch else "not asked for")
        notes = [_NOT_IN_THE_GRAPH, _OPERATORS_OF_CPU, _NO_RUNS_ON_GPU, *([_ROOFLINE] if timed_on else [])]
        return FitReport(
            device=timed_on.name if timed_on else "a device",
            capacity_bytes=capacity,
            reserve_bytes=capacity - usable,
            batch=inputs.batch,
            keep_grads=keep_grads,
            plain=question.plain(inputs.batch),
            planned=planned,
            budget=None if planned.fits else question.within_budget(inputs.batch),
            largest_batch=found,
            unasked="" if found else unasked,
            notes=tuple(notes),
        )


def _read_made(made: Any) -> tuple[Callable[..., Any], torch.nn.Module, Any, Any]:
    if not isinstance(made, dict) or not {"function", "model", "example"} <= made.keys() <= set(_MADE):
        got = f"a dict of {', '.join(map(str, made))}" if isinstance(made, dict) else f"a {type(made).__name__}"
        raise TypeError(
            f"a function given to fit without a model is to return a dict of {', '.join(_MADE)} (optimizer and batch "
            f"may be missing), not {got}"
        )
    return made["function"], made["model"], made.get("optimizer"), made["example"]


def _read_device(device: str | int) -> tuple[int, Device | None]:
    """Its memory; and whose times operators have, if it is one that is known."""
    if isinstance(device, int):
        return device, None
    with suppress(ValueError):
        return _core.parse_bytes(device), None
    try:
        known = device_named(device)
    except ValueError as error:
        raise ValueError(f"{error}; or give its memory as bytes: 24GiB") from None
    return known.memory_bytes, known


class _Inputs:
    """The function's arguments at any batch."""

    batch: int | None  # what is asked for; none if the example has no batch
    why_no_batch = ""

    def __init__(
        self,
        example: tuple[Any, ...] | Callable[[int], tuple[Any, ...]],
        batch: int | None,
        dimension: int,
        mode: FakeTensorMode | None,
    ) -> None:
        self._example = example
        self._dimension = dimension
        self._mode = mode or FakeTensorMode(allow_non_fake_inputs=True)
        self.batch = batch
        if callable(example):
            if batch is None:
                raise TypeError("an example that is a function of the batch needs a batch to ask for: batch=8")
            return
        tensors = [leaf for leaf in pytree.tree_leaves(example) if isinstance(leaf, torch.Tensor) and leaf.dim()]
        sizes = {tensor.shape[dimension] if tensor.dim() > dimension else None for tensor in tensors}
        own = sizes.pop() if len(sizes) == 1 else None
        if own is None:
            self.why_no_batch = (
                f"the example's tensors have no common size in dimension {dimension}; "
                "give a function instead: example=lambda batch: ..."
            )
            if batch is not None:
                raise ValueError(self.why_no_batch)
        self.batch = own if batch is None else batch

    def at(self, batch: int | None) -> tuple[Any, ...]:
        """Fake tensors: of those in the example, only the form counts."""
        if callable(self._example):
            assert batch is not None
            with self._mode:
                arguments = self._example(batch)
            return arguments if isinstance(arguments, tuple) else (arguments,)
        arguments = pytree.tree_map_only(torch.Tensor, lambda tensor: self._resized(tensor, batch), self._example)
        assert isinstance(arguments, tuple)
        return arguments

    def _resized(self, tensor: torch.Tensor, batch: int | None) -> torch.Tensor:
        with self._mode:
            if batch is None or not tensor.dim() or tensor.shape[self._dimension] == batch:
                return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
            shape = list(tensor.shape)
            shape[self._dimension] = batch
            return torch.empty(shape, dtype=tensor.dtype)


class _Question:
    """One step, one device; whatever is asked about a batch is captured once."""

    def __init__(
        self,
        function: Callable[..., Any],
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        inputs: _Inputs,
        device: Device | None,
        usable: int,
        keep_grads: bool,
        allocator: str,
    ) -> None:
        self._inputs = inputs
        self._usable = usable
        self._allocator = allocator
        self._states_times = device is not None
        weighed_on = device or DEVICES["A100"]  # some times are needed to tell cheap operators from dear ones

        self._captured: set[int] = set()

        @cache
        def graphs(batch: int | None) -> tuple[_core.Graph, _core.Graph]:
            try:
                arguments = inputs.at(batch)
                both = capture_both(function, model, optimizers, arguments, weighed_on, keep_grads=keep_grads)
            except CaptureError as error:
                raise CaptureError(str(error) if batch is None else f"at batch {batch}: {error}") from error
            self._captured |= set() if batch is None else {batch}
            return both

        @cache
        def unhurried(batch: int | None) -> _core.Plan:
            return plan(graphs(batch)[1])

        self._graphs, self._plan = graphs, unhurried

    def plain(self, batch: int | None) -> Plain:
        graph = self._graphs(batch)[0]
        free = _core.run_eager(graph, self._allocator)
        here = _core.run_eager(graph, self._allocator, self._usable)
        stop = here.stopped_at
        where = None
        if not here.fits:
            where = (
                "the parameters and the batch" if stop is None else f"{graph.op_name(stop)}, {graph.op_source(stop)}"
            )
        return Plain(
            fits=here.fits,
            live_bytes=free.peak_live_bytes,
            allocated_bytes=free.peak_allocated_bytes,
            reserved_bytes=(here if here.fits else free).peak_reserved_bytes,
            fragmentation=(here if here.fits else free).fragmentation,
            stopped_at=None if here.fits else where,
            fits_expandable=_core.run_eager(graph, EXPANDABLE, self._usable).fits,
        )

    def planned(self, batch: int | None) -> Planned:
        return self._described(self._plan(batch), batch)

    def within_budget(self, batch: int | None) -> Planned | Infeasible:
        try:
            return self._described(plan(self._graphs(batch)[1], memory_budget=self._usable), batch)
        except InfeasibleError as error:
            return Infeasible(error.bound_bytes)

    def largest(self, slowdown: float) -> LargestBatch:
        assert self._inputs.batch is not None
        plain = largest_that_fits(self._probe_plain, self._usable, [self._inputs.batch])
        planned = largest_that_fits(self._probe_planned, self._usable, sorted(self._captured))
        ends = {min(self._captured), max(self._captured)}  # such a plan takes as long as a capture
        budget = largest_that_fits(lambda batch: self._probe_budget(batch, slowdown), self._usable, sorted(ends))
        return LargestBatch(plain, planned, budget, slowdown, len(self._captured))

    def _probe_plain(self, batch: int) -> tuple[bool, int]:
        graph = self._graphs(batch)[0]
        fits = _core.run_eager(graph, self._allocator, self._usable).fits
        return fits, _core.run_eager(graph, self._allocator).peak_reserved_bytes

    def _probe_planned(self, batch: int) -> tuple[bool, int]:
        needed = _total(self._plan(batch))
        return needed <= self._usable, needed

    def _probe_budget(self, batch: int, slowdown: float) -> tuple[bool, int]:
        allowed = self._plan(batch).time_ns * (1 + slowdown)
        needed = _total(plan(self._graphs(batch)[1], latency_budget=allowed / 1e6))
        return needed <= self._usable, needed

    def _described(self, made: _core.Plan, batch: int | None) -> Planned:
        seconds = made.time_ns / 1e9
        slowdown = made.time_ns / self._plan(batch).time_ns - 1 if self._states_times else None
        return Planned(
            fits=_total(made) <= self._usable,
            total_bytes=_total(made),
            resident_bytes=made.resident_bytes,
            arena_bytes=made.arena_bytes,
            seconds=seconds if self._states_times else None,
            slowdown=slowdown,
        )


def _total(made: _core.Plan) -> int:
    return made.resident_bytes + made.arena_bytes
