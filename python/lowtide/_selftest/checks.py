"""What is checked: bits against eager's, bytes against the plan's, budgets, times, and how fast copies are."""

from __future__ import annotations

import contextlib
import gc
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch

from .._compile.compile import compile
from ..errors import InfeasibleError
from .models import KINDS, Training

SHARES = (0.6, 0.7, 0.8, 0.9)  # the smallest that has a plan is tried
SPARE = 64 * 1024  # bytes of scalars beside a plan
_TIMED = 20
_COPIED = 64 << 20  # bytes


@dataclass
class Finding:
    """One check: whether it holds, what it is about, and its figures."""

    check: str
    about: str
    holds: bool
    said: str
    figures: Mapping[str, float] = field(default_factory=dict)


def all_checks(device: torch.device, size: int) -> Iterator[Finding]:
    """One after the other, as they are found."""
    for kind in KINDS:
        for deterministic in (False, True):
            with _deterministic(deterministic):
                yield _bits(kind, size, device, deterministic)
        yield _bytes(kind, size, device)
        yield _budget(kind, size, device)
        yield _times(kind, size, device)
    if device.type == "cuda":
        yield from _copies(device)


@contextlib.contextmanager
def _deterministic(wanted: bool) -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(wanted, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*deterministic.*")
            yield
    finally:
        torch.use_deterministic_algorithms(before)


def _planned(training: Training, **options: Any) -> Any:
    return compile(training.step, model=training.model, optimizer=training.optimizer, **options)


def _train(kind: str, size: int, device: torch.device, compiled: bool, **options: Any) -> tuple[list[Any], Any]:
    training = Training(kind, size, device)
    step: Any = _planned(training, **options) if compiled else training.step
    training.run(step)
    left = training.left()
    stats = step.stats() if compiled else {}
    if compiled:
        step.close()
    return left, stats


def _same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


def _bits(kind: str, size: int, device: torch.device, deterministic: bool) -> Finding:
    """Against eager; where eager differs from itself nothing can be said."""
    about = f"{kind}, {'deterministic' if deterministic else 'usual'} algorithms"
    first, _ = _train(kind, size, device, compiled=False)
    second, _ = _train(kind, size, device, compiled=False)
    if not _same(first, second):
        return Finding("bits", about, not deterministic, "eager PyTorch differs from itself")
    found, stats = _train(kind, size, device, compiled=True)
    if stats["eager_calls"]:
        return Finding("bits", about, False, "the step was not planned")
    said = "equal to eager's" if _same(first, found) else "OTHER THAN EAGER'S"
    return Finding("bits", about, _same(first, found), said, {"misses": stats["misses"]})


def _bytes(kind: str, size: int, device: torch.device) -> Finding:
    """What the allocator has at most in a step, beyond what was there, against the plan."""
    training = Training(kind, size, device)
    step = _planned(training)
    training.run(step)
    stats, beside = step.stats(), _most_in_a_step(training, step, device)
    step.close()
    allowed = stats["gradient_bytes"] + SPARE
    said = f"{beside} bytes beside an arena of {stats['arena_bytes']}; gradients have {stats['gradient_bytes']}"
    figures = {"beside": beside, "arena": stats["arena_bytes"], "gradients": stats["gradient_bytes"]}
    return Finding("bytes", kind, beside <= allowed and stats["misses"] == 0, said, figures)


def _most_in_a_step(training: Training, step: Callable[..., Any], device: torch.device) -> int:
    if device.type != "cuda":
        from .._measure import measure

        with measure() as used:
            training.run(step, 1)
        return used.peak_bytes - used.arena_bytes
    gc.collect()
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    there = torch.cuda.memory_allocated(device)
    training.run(step, 1)
    return torch.cuda.max_memory_allocated(device) - there


def _budget(kind: str, size: int, device: torch.device) -> Finding:
    expected, _ = _train(kind, size, device, compiled=False)
    for share in SHARES:
        try:
            found, stats = _train(kind, size, device, compiled=True, memory_budget=share)
        except InfeasibleError:
            continue
        kept = stats["planned_bytes"] <= stats["budget_bytes"] and stats["misses"] == 0
        said = f"{stats['planned_bytes']} bytes of {stats['eager_bytes']}, {100 * share:.0f} % asked for"
        equal = _same(expected, found)
        return Finding("budget", kind, kept and equal, said if equal else "OTHER BITS", {"share": share})
    return Finding("budget", kind, True, f"not tried: no plan is within {100 * SHARES[-1]:.0f} % of what eager needs")


def _times(kind: str, size: int, device: torch.device) -> Finding:
    """Of both in turns, when times of operators are known."""
    eager, planned = Training(kind, size, device), Training(kind, size, device)
    step = _planned(planned)
    planned.run(step)
    eager.run(eager.step)
    taken: dict[str, list[float]] = {"eager": [], "planned": []}
    for _ in range(_TIMED):
        for name, training, function in (("eager", eager, eager.step), ("planned", planned, step)):
            _wait(device)
            begin = time.perf_counter()
            training.run(function, 1)
            _wait(device)
            taken[name].append(1e3 * (time.perf_counter() - begin))
    step.close()
    figures = {name: median(times) for name, times in taken.items()}
    ratio = figures["planned"] / figures["eager"]
    said = f"{figures['planned']:.2f} ms, eager {figures['eager']:.2f} ms: {ratio:.2f} times"
    return Finding("time", kind, True, said, {**figures, "ratio": ratio})


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _copies(device: torch.device) -> Iterator[Finding]:
    """Between pinned memory and the device, as swapping will need it."""
    host = torch.empty(_COPIED, dtype=torch.uint8).pin_memory()
    there = torch.empty(_COPIED, dtype=torch.uint8, device=device)
    for name, to, source in (("to the device", there, host), ("from the device", host, there)):
        rates = []
        for _ in range(5):
            begin, end = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
            begin.record()
            to.copy_(source, non_blocking=True)
            end.record()
            end.synchronize()
            rates.append(_COPIED / 1e6 / begin.elapsed_time(end))
        rate = median(rates)
        yield Finding("copies", name, True, f"{rate:.1f} GB/s", {"gb_per_second": rate})
