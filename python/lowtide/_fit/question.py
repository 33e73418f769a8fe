"""One step and one device: what is asked about them, at any batch and length."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch

from .. import _core
from .._base.progress import plan_in_sight
from .._capture import weightless
from .._lower.capture import Captured, capture_both
from .._lower.gpu_operators import gpu_operators
from .._lower.gpus import DEVICES, Device
from .._plan import plan, swap_to_host
from ..errors import CaptureError, InfeasibleError
from .inputs import Inputs, Size
from .largest import LIMIT, largest_that_fits
from .report import EXPANDABLE, Infeasible, Largest, Plain, Planned

_NOT_IN_THE_GRAPH = "the CUDA context and the workspaces of cuDNN are not in the graph: the reserve is for them"
_NO_LIBRARIES = "the CUDA context and the workspaces of cuBLAS and cuDNN are not in the graph: the reserve is for them"
_INLINE_ECC = (
    "error correction (ECC), which is on by default on this device, takes {} of its memory; the budget is without them"
)
_BESIDE_THE_STEP = "Python, PyTorch's libraries and other programs are not in the graph: the reserve is for them"
_OPERATORS_RUN_HERE = (
    "operators that were not known yet have run here alone, on scratch tensors, for the memory and time that they take "
    "inside; the step has not run"
)
_OPERATORS_OF_GPU = (
    "attention, dropout and optimizers are those that PyTorch takes on a GPU, where by default all parameters are "
    "updated at once; other operators are those of a CPU, with what they are known to request inside on a GPU"
)
_OPERATORS_OF_CPU = (
    "operators are those of a CPU, and parameters are updated one by one; on a GPU some operators differ (fused "
    "attention), and by default optimizers update all parameters at once, with temporary copies of them"
)
_NO_AUTOCAST = (
    'torch.autocast("cuda") has no effect here, so that figures are those of parameters\' own dtype: with it the step '
    "takes less; model.to(torch.bfloat16) shows how much at most"
)
_NO_RUNS_ON_GPU = "planned steps have run on an emulated GPU and on no real one: Lowtide's figures are plans, not runs"
_EVEN = 64  # no kernel pads its multiples
_ROOFLINE = "times are bounds from published peaks (a roofline), good to compare plans and no forecast of steps"


class Question:
    """What is asked about a size is captured once. The device is one with a roofline, this machine, or mere bytes."""

    def __init__(
        self,
        function: Callable[..., Any],
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        inputs: Inputs,
        device: Device | None,
        usable: int,
        *,
        is_here: bool,
        keep_grads: bool,
        allocator: str,
        link: str | None,
    ) -> None:
        self._asked = inputs.asked
        self._device = device
        self._is_here = is_here
        self._usable = usable
        self._allocator = allocator
        self._link = link
        self._captured: set[Size] = set()
        self._as_on_gpu = device is not None
        self._why_not_as_on_gpu = ""
        self._autocasts: set[str] = set()
        # Some times are needed to tell cheap operators from dear ones.
        weighed_on = None if is_here else device or DEVICES["A100"]

        def capture(size: Size) -> Captured:
            taken = gpu_operators(optimizers, device) if device and self._as_on_gpu else nullcontext()
            with taken, weightless.CudaMeansCpu(), weightless.autocasts_noted(self._autocasts):
                arguments = inputs.at(size)
                gpu = device if self._as_on_gpu else None
                return capture_both(function, model, optimizers, arguments, weighed_on, keep_grads=keep_grads, gpu=gpu)

        @cache
        def graphs(size: Size) -> Captured:
            try:
                try:
                    both = capture(size)
                except CaptureError as error:
                    if not self._as_on_gpu or self._captured:
                        raise
                    self._as_on_gpu, self._why_not_as_on_gpu = False, str(error)
                    both = capture(size)
            except CaptureError as error:
                raise CaptureError(f"at {size}: {error}" if str(size) else str(error)) from error
            self._captured.add(size)
            return both

        @cache
        def unhurried(size: Size) -> _core.Plan:
            return plan(graphs(size).planned)

        self._graphs, self._plan = graphs, unhurried

    def notes(self) -> tuple[str, ...]:
        """What the figures mean, and what they leave out."""
        if self._is_here:
            return _BESIDE_THE_STEP, _OPERATORS_RUN_HERE
        libraries = _NOT_IN_THE_GRAPH if self._as_on_gpu else _NO_LIBRARIES
        autocast = [_NO_AUTOCAST] if "cuda" in self._autocasts else []
        return libraries, self._operators(), _NO_RUNS_ON_GPU, *self._of_device(), *autocast

    def _of_device(self) -> Iterator[str]:
        if self._device is None:
            return
        yield _ROOFLINE
        if self._device.ecc_bytes:
            yield _INLINE_ECC.format(_core.format_bytes(self._device.ecc_bytes))

    def _operators(self) -> str:
        """Whose operators were captured; if not a GPU's although one is meant, why not."""
        if self._as_on_gpu:
            return _OPERATORS_OF_GPU
        why = self._why_not_as_on_gpu
        return f"{_OPERATORS_OF_CPU}; with those of a GPU: {why}" if why else _OPERATORS_OF_CPU

    # -- the size that is asked about ------------------------------------------------------------------------------

    def plain(self) -> Plain:
        """The step in plain PyTorch."""
        graph = self._graphs(self._asked).plain
        free = _core.run_eager(graph, self._allocator)
        if self._is_here:
            live = free.peak_live_bytes
            return Plain(live <= self._usable, live, live, live, 0.0, None, fits_expandable=False)
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

    def workspaces(self) -> tuple[int, ...]:
        """Bytes of each workspace that libraries hold."""
        return self._graphs(self._asked).workspaces

    def planned(self) -> Planned:
        """The step as it is planned, every operator once."""
        return self._described(self._plan(self._asked))

    def within_budget(self) -> Planned | Infeasible:
        """The step with operators that run again, so that it fits."""
        return self._within(None)

    def with_swaps(self) -> Planned | Infeasible:
        """The step with tensors that leave memory and come back, and operators that run again where that is faster."""
        assert self._link is not None
        return self._within(swap_to_host(self._graphs(self._asked).planned, self._link, duplex=not self._is_here))

    def _within(self, swap: _core.Swap | None) -> Planned | Infeasible:
        graph = self._graphs(self._asked).planned
        try:
            return self._described(plan_in_sight(graph, memory_budget=self._usable, swap=swap))
        except InfeasibleError as error:
            return Infeasible(error.bound_bytes)

    def _described(self, made: _core.Plan) -> Planned:
        states_times = self._is_here or self._device is not None
        once = max(self._plan(self._asked).time_ns, 1)  # a step of no operators takes none
        return Planned(
            fits=_total(made) <= self._usable,
            total_bytes=_total(made),
            resident_bytes=made.resident_bytes,
            arena_bytes=made.arena_bytes,
            swapped_bytes=sum(made.tier_resident_bytes) + sum(made.tier_arena_bytes),
            seconds=made.time_ns / 1e9 if states_times else None,
            slowdown=max(made.time_ns, 1) / once - 1 if states_times else None,
        )

    # -- the largest ---------------------------------------------------------------------------------------------------

    def largest(self, dimension: str, slowdown: float) -> Largest:
        """The largest batch at the length that is asked about, or the largest length at the batch.

        Kernels pad odd lengths, which may then need more than longer ones. So lengths are as even as the one asked for.
        """
        asked = getattr(self._asked, dimension)
        step = math.gcd(asked, _EVEN) if dimension == "length" else 1
        captured = {asked // step}
        refused: dict[int, str] = {}

        def probed(probe: Callable[[Size], tuple[bool, int]]) -> Callable[[int], tuple[bool, int | None]]:
            def at(number: int) -> tuple[bool, int | None]:
                size = self._asked._replace(**{dimension: number * step})
                try:
                    with _failures_unlogged():
                        self._graphs(size)
                except CaptureError as error:
                    refused[number] = str(error)
                    return False, None
                captured.add(number)
                return probe(size)

            return at

        plain = largest_that_fits(probed(self._probe_plain), self._usable, [asked // step])
        planned = largest_that_fits(probed(self._probe_planned), self._usable, sorted(captured))
        ends = {min(captured), max(captured)}  # such a plan takes as long as a capture
        budget = largest_that_fits(probed(lambda size: self._probe_budget(size, slowdown)), self._usable, sorted(ends))
        why = refused[min(refused)] if refused else ""
        limit = step * max(LIMIT, asked // step)
        return Largest(step * plain, step * planned, step * budget, slowdown, step, limit, len(captured), why)

    def _probe_plain(self, size: Size) -> tuple[bool, int]:
        graph = self._graphs(size).plain
        fits = _core.run_eager(graph, self._allocator, self._usable).fits
        return fits, _core.run_eager(graph, self._allocator).peak_reserved_bytes

    def _probe_planned(self, size: Size) -> tuple[bool, int]:
        needed = _total(self._plan(size))
        return needed <= self._usable, needed

    def _probe_budget(self, size: Size, slowdown: float) -> tuple[bool, int]:
        allowed = self._plan(size).time_ns * (1 + slowdown)
        needed = _total(plan(self._graphs(size).planned, latency_budget=allowed / 1e6))
        return needed <= self._usable, needed


@contextmanager
def _failures_unlogged() -> Iterator[None]:
    """PyTorch logs what fails on fake tensors; here that is an answer, and is told as one."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _total(made: _core.Plan) -> int:
    return made.resident_bytes + made.arena_bytes
