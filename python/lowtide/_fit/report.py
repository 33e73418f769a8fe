"""What `lowtide.fit` answers: figures, and the text that says what to do with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from .. import _core

CPU = "cpu"  # this machine's
SOME_DEVICE = "a device"  # of which only its memory is known
EXPANDABLE = "expandable_segments:True"


@dataclass(frozen=True)
class Plain:
    """The step in plain PyTorch, with its caching allocator for CUDA, simulated.

    On a CPU, where nothing is cached, all three figures are what is alive.
    """

    fits: bool
    live_bytes: int  # the most that is alive at once, as asked for
    allocated_bytes: int  # torch.cuda.max_memory_allocated(), on a device where it fits
    reserved_bytes: int  # torch.cuda.max_memory_reserved(), there
    fragmentation: float  # the share of what is reserved that is never asked for
    stopped_at: str | None  # where the device is full: operator and source line; none if it fits
    fits_expandable: bool  # with expandable segments


@dataclass(frozen=True)
class Planned:
    """The step as Lowtide plans it."""

    fits: bool
    total_bytes: int
    resident_bytes: int  # parameters, the optimizer's state, the batch, what the caller keeps
    arena_bytes: int
    swapped_bytes: int  # in the memory behind the link
    seconds: float | None  # by the roofline of the device; none without one
    slowdown: float | None  # by which share it takes longer than a plan in which every operator runs once


@dataclass(frozen=True)
class Infeasible:
    """No plan fits."""

    bound_bytes: int  # no plan that was looked for goes below this
    fits: bool = False


@dataclass(frozen=True)
class Largest:
    """The largest batch or length of each kind: it was captured and fits, and the next one was tried and does not.

    All are multiples of `step`. From `limit` on nothing larger was tried.
    """

    plain: int
    planned: int
    budget: int  # with operators that run again, for at most `slowdown` more time
    slowdown: float
    step: int
    limit: int
    captures: int  # how many were looked at
    refused: str  # where it cannot be captured, the smallest that was tried, and why; empty if it can

    def shown(self, number: int) -> str:
        """One of the three, as text."""
        return f"{number} or more" if number >= self.limit else str(number)


@dataclass(frozen=True)
class FitReport:
    """Whether a step fits on a device. `print(report)` says it in a few lines."""

    device: str
    capacity_bytes: int
    reserve_bytes: int
    batch: int | None
    length: int | None
    keep_grads: bool
    workspace_bytes: tuple[int, ...]  # of cuBLAS, in the figures of PyTorch and of plans
    plain: Plain
    planned: Planned
    budget: Planned | Infeasible | None  # none: the plan fits as it is
    swapped: Planned | Infeasible | None  # with swaps over the `link`; none: without a link, or it fits as it is
    link: str | None
    largest_batch: Largest | None
    largest_length: Largest | None  # none without a length
    unasked: str  # why there is no largest batch; empty if there is one
    has_blocks: bool  # whether the model has blocks that lowtide.adapt can drop
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether it fits in any of these ways."""
        return self.plain.fits or self.planned.fits or any(way is not None and way.fits for way in self._ways())

    @property
    def usable_bytes(self) -> int:
        """What the step may take."""
        return self.capacity_bytes - self.reserve_bytes

    @property
    def next_steps(self) -> tuple[str, ...]:
        """What to do, the simplest first."""
        return tuple(self._next_steps())

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {**asdict(self), "fits": self.fits, "usable_bytes": self.usable_bytes, "next_steps": self.next_steps}

    def __str__(self) -> str:
        steps = (f"next       {step}" for step in self.next_steps)
        notes = (f"note       {note}" for note in self.notes)
        return "\n".join([self._heading(), *self._answers(), *self._largest(), *steps, *notes])

    def _heading(self) -> str:
        named = (("batch", self.batch), ("length", self.length))
        sizes = "".join(f", {name} {number}" for name, number in named if number is not None)
        memory = f"{_size(self.capacity_bytes)}, of which {_size(self.reserve_bytes)} set aside"
        return f"device     {self.device}: {memory}{sizes}"

    def _answers(self) -> Iterator[str]:
        plain, planned, budget = self.plain, self.planned, self.budget
        if self.device == CPU:
            yield f"PyTorch    {_verdict(plain.fits)}: {_size(plain.live_bytes)} alive at once"
        else:
            yield (
                f"PyTorch    {_verdict(plain.fits)}: reserves {_size(plain.reserved_bytes)}, allocates "
                f"{_size(plain.allocated_bytes)} ({100 * plain.fragmentation:.1f} % fragmentation)"
            )
        if plain.stopped_at is not None:
            yield f"           full at {plain.stopped_at}"
        if self.workspace_bytes:
            each = " and ".join(map(_size, dict.fromkeys(self.workspace_bytes)))
            total = f"{_size(sum(self.workspace_bytes))} in {len(self.workspace_bytes)} workspaces of {each}"
            yield f"BLAS       {total}, which the other figures include"
        yield f"planned    {_verdict(planned.fits)}: {_parts(planned)}{self._option()}"
        if isinstance(budget, Infeasible):
            yield f"budget     does not fit: no plan was found below {_size(budget.bound_bytes)}"
        elif budget is not None:
            yield f"budget     {_verdict(budget.fits)}: {_parts(budget)}{self._option()}{self._slower(budget.slowdown)}"
        if isinstance(self.swapped, Infeasible):
            yield f"swap       does not fit: no plan was found below {_size(self.swapped.bound_bytes)}"
        elif self.swapped is not None:
            where = f"{_size(self.swapped.swapped_bytes)} {self._elsewhere()} at {self.link}"
            yield (
                f"swap       {_verdict(self.swapped.fits)}: {_parts(self.swapped)}, {where}{self._option()}"
                f"{self._slower(self.swapped.slowdown)}"
            )

    def _elsewhere(self) -> str:
        return "on disk" if self.device == CPU else "in the host's memory"

    def _ways(self) -> tuple[Planned | Infeasible | None, ...]:
        """How it may fit that does not as it is planned."""
        return self.budget, self.swapped

    def _option(self) -> str:
        return "" if self.keep_grads else ", with keep_grads=False"

    def _slower(self, slowdown: float | None) -> str:
        by = "operators' times here" if self.device == CPU else "the device's roofline"
        return "" if slowdown is None else f", {100 * slowdown:.1f} % slower by {by}"

    def _largest(self) -> Iterator[str]:
        if self.largest_batch is None:
            yield f"batch      largest not looked for: {self.unasked}"
        for name, largest in (("batch", self.largest_batch), ("length", self.largest_length)):
            if largest is None:
                continue
            steps = f", in steps of {largest.step}" if largest.step > 1 else ""
            yield (
                f"{name:11}largest: PyTorch {largest.shown(largest.plain)}, planned {largest.shown(largest.planned)}, "
                f"with recompute for at most {100 * largest.slowdown:g} % more time {largest.shown(largest.budget)} "
                f"({largest.captures} captured{steps})"
            )
            if largest.refused:
                yield f"           cannot be captured {largest.refused}"

    def _next_steps(self) -> Iterator[str]:
        plain = self.plain
        if plain.fits:
            yield f"run it as it is: {_size(self.usable_bytes - plain.reserved_bytes)} are left"
            for name, asked, largest in self._sought():
                if largest.plain > asked:
                    yield f"or raise the {name}, to at most {largest.shown(largest.plain)}"
            return
        if plain.fits_expandable:
            yield f"set PYTORCH_CUDA_ALLOC_CONF={EXPANDABLE}: with that it fits in plain PyTorch"
        if self.planned.fits or (self.budget is not None and self.budget.fits):
            yield from self._with_less_memory()
        if self.swapped is not None and self.swapped.fits:
            folder = "/a/folder/on/disk" if self.device == CPU else "host"
            arguments = "" if self.keep_grads else ", keep_grads=False"
            yield (
                f"let tensors leave memory and come back: lowtide.compile(step, model=model, optimizer=optimizer"
                f'{arguments}, memory_budget={_exact(self.usable_bytes)}, swap="{folder}")'
            )
        for name, _, largest in self._sought():
            if largest.plain:
                yield f"or lower the {name} to {largest.plain} for plain PyTorch"
        if self.device == CPU:
            if not self.fits:
                needed = _size(self.bound_bytes + self.reserve_bytes)
                yield f"or take a machine of {needed} or more: no plan was found for less"
        elif not plain.fits_expandable:
            needed = _size(plain.reserved_bytes + self.reserve_bytes)
            yield f"or take a device of {needed} or more, for plain PyTorch"

    def _with_less_memory(self) -> Iterator[str]:
        """What makes it fit, on the device that is asked about: planned steps run on a CPU only."""
        if self.device in (CPU, SOME_DEVICE):
            where = "" if self.device == CPU else "on a CPU, "
            arguments = "" if self.keep_grads else ", keep_grads=False"
            what = "plan it"
            if not self.planned.fits:
                what, arguments = "give it a budget", f"{arguments}, memory_budget={_exact(self.usable_bytes)}"
            yield f"{where}{what}: lowtide.compile(step, model=model, optimizer=optimizer{arguments})"
        if self.device == CPU:
            return
        where = "" if self.device != SOME_DEVICE else "on a GPU, "
        if self.has_blocks:
            adapt = f"lowtide.adapt(model, memory_budget={_exact(self.usable_bytes)})"
            yield f"{where}recompute blocks of the model: {adapt}; its preflight(batch) says whether a batch fits"
        else:
            yield f"{where}recompute parts of the model: torch.utils.checkpoint around those that hold the most"

    def _sought(self) -> Iterator[tuple[str, int, Largest]]:
        """What may be made larger or smaller, what it is, and how large it may be."""
        for name, asked, largest in (
            ("batch", self.batch, self.largest_batch),
            ("length", self.length, self.largest_length),
        ):
            if asked is not None and largest is not None:
                yield name, asked, largest

    @property
    def bound_bytes(self) -> int:
        """What the smallest plan that was looked for needs."""
        bounds = [way.bound_bytes for way in self._ways() if isinstance(way, Infeasible)]
        return min(bounds, default=self.planned.total_bytes)


def _size(count: int) -> str:
    return _core.format_bytes(count)


def _exact(count: int) -> str:
    """As Python source, without rounding."""
    units = ((2**30, "GiB"), (2**20, "MiB"))
    return next((f'"{count // unit}{name}"' for unit, name in units if count % unit == 0), str(count))


def _verdict(fits: bool) -> str:
    return "fits" if fits else "does not fit"


def _parts(planned: Planned) -> str:
    resident, arena = _size(planned.resident_bytes), _size(planned.arena_bytes)
    return f"{_size(planned.total_bytes)}: {resident} resident, {arena} in the arena"
