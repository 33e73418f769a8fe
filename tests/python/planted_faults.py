"""Faults that a planned step does not have, planted so that guard mode can be seen to find them.

A fault of the plan is planted between the planner and the program: the program is built from a plan that `verify` never
saw. A fault of an operator is a real one: a registered operator that writes through a raw pointer, once it is armed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from lowtide._step import captured_step as lowtide_step

armed = False
_addresses: dict[str, int] = {}


@torch.library.custom_op("planted::writes_outside", mutates_args=())
def writes_outside(x: torch.Tensor, behind: int) -> torch.Tensor:
    """A copy; once armed, it also writes 4 bytes `behind` bytes behind its result's end (or in front, if negative)."""
    result = x.clone()
    if armed:
        start = result.data_ptr() + (result.nbytes + behind if behind >= 0 else behind)
        ctypes.memset(start, 0, 4)
    return result


@torch.library.custom_op("planted::remembers", mutates_args=())
def remembers(x: torch.Tensor) -> torch.Tensor:
    """A copy; remembers where its result ends."""
    result = x.clone()
    _addresses["remembered"] = result.data_ptr() + result.nbytes - 4
    return result


@torch.library.custom_op("planted::writes_remembered", mutates_args=())
def writes_remembered(x: torch.Tensor) -> torch.Tensor:
    """A copy; once armed, it also writes 4 bytes where `remembers` had the end of its result."""
    if armed:
        ctypes.memset(_addresses["remembered"], 0, 4)
    return x.clone()


@torch.library.custom_op("planted::reads_outside", mutates_args=())
def reads_outside(x: torch.Tensor) -> torch.Tensor:
    """A copy; once armed, its first elements are what lies behind its argument's end."""
    result = x.clone()
    if armed:
        ctypes.memmove(result.data_ptr(), x.data_ptr() + x.nbytes, 16)
    return result


@torch.library.custom_op("planted::writes_argument", mutates_args=())
def writes_argument(x: torch.Tensor) -> torch.Tensor:
    """A copy; once armed, it also writes its argument, of which its schema says nothing."""
    result = x.clone()
    if armed:
        ctypes.memset(x.data_ptr(), 0, 4)
    return result


for _operator in (writes_outside, remembers, writes_remembered, reads_outside, writes_argument):
    _operator.register_fake(lambda x, *rest: torch.empty_like(x))


@contextmanager
def arm() -> Iterator[None]:
    """Within it the operators above misbehave."""
    global armed
    armed = True
    try:
        yield
    finally:
        armed = False


class SpoiledPlan:
    """A plan as `assemble` sees it, with some of its answers replaced."""

    def __init__(self, plan: Any, **answers: Any) -> None:
        self._plan = plan
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        if name in self._answers:
            return lambda: self._answers[name]
        return getattr(self._plan, name)


@contextmanager
def spoil(monkeypatch: Any, how: Callable[[Any, Any], dict[str, Any]]) -> Iterator[None]:
    """Programs built within it are built from spoiled plans; `how(lowered, plan)` gives the wrong answers."""
    assemble = lowtide_step.assemble

    def wrongly(lowered: Any, profiles: Any, plan: Any, *rest: Any) -> Any:
        return assemble(lowered, profiles, SpoiledPlan(plan, **how(lowered, plan)), *rest)

    with monkeypatch.context() as patched:
        patched.setattr(lowtide_step, "assemble", wrongly)
        yield
