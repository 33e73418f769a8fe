"""Batches: the one under way, what kinds there are of them, and what a user calls one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from .. import _core
from .._base.tensors import tensors_in
from .collector import Collector

_KINDS = 32  # of batches that are told apart; the oldest is forgotten
_PATHS = 8  # through the blocks, of one kind; that of the fewest batches is forgotten


@dataclass
class Kind:
    """Batches that one planner serves: of the same structure, with and without gradients that are there already."""

    planners: dict[tuple[int, ...], _core.BatchPlanner] = field(default_factory=dict)  # by blocks as they are called
    path: tuple[int, ...] = ()  # the most frequent: what is expected of the next batch
    since_collected: int = 0
    surprised: bool = False

    @property
    def planner(self) -> _core.BatchPlanner | None:
        """That of the path that is expected."""
        return self.planners.get(self.path)

    def planner_of(self, path: tuple[int, ...], order: int) -> _core.BatchPlanner:
        """That of another path; of one never seen, a new one."""
        if path not in self.planners:
            if len(self.planners) == _PATHS:
                del self.planners[min(self.planners, key=lambda known: self.planners[known].observations)]
            self.planners[path] = _core.BatchPlanner(len(path), order=order)
        return self.planners[path]


class Kinds:
    """Kinds by what tells them apart."""

    def __init__(self) -> None:
        self._kinds: dict[Any, Kind] = {}

    def of(self, key: Any) -> Kind:
        """The one that is known by this, which may be new."""
        kind = self._kinds.pop(key, None) or Kind()
        self._kinds[key] = kind
        if len(self._kinds) > _KINDS:
            del self._kinds[next(iter(self._kinds))]
        return kind

    def planners(self) -> list[_core.BatchPlanner]:
        """Those that have learnt something, the latest last."""
        return [kind.planner for kind in self._kinds.values() if kind.planner is not None]

    def clear(self) -> None:
        """Forgets all of them."""
        self._kinds.clear()


@dataclass
class Batch:
    """The batch under way."""

    kind: Kind
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
    watched: bool = False  # some block was: there were copies that no other batch has
    turned: bool = False  # its backward pass has begun

    def turn(self, gradient: torch.Tensor) -> None:
        """A hook for what the model returns."""
        self.turned = True


def both_passes(model: nn.Module, batch: Any, loss: Callable[[Any], torch.Tensor] | None) -> Callable[[], object]:
    """What trains on a batch: that itself if it is a function, or else a call of the model and a backward pass."""
    if callable(batch) and not hasattr(batch, "keys") and not isinstance(batch, torch.Tensor):
        given: Callable[[], object] = batch
        return given
    if not isinstance(batch, (tuple, list, torch.Tensor)) and not hasattr(batch, "keys"):
        raise TypeError(f"a batch is a dictionary, a tuple, a tensor or a function, not a {type(batch).__qualname__}")

    def passes() -> None:
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

    return passes
