"""The harness that trains two equal copies of a model side by side: one eager, one compiled.

LOWTIDE_FULL=1   the transformers with all optimizers instead of one in each test, and 4 layers where there are LAYERS
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

import lowtide
from bench.lib.models import MODELS, OPTIMIZERS, bert, gpt2, loss_of, plain_step, tokens
from bench.zoo.tasks import StepMaker

__all__ = [
    "FULL",
    "LAYERS",
    "MODELS",
    "OPTIMIZERS",
    "SMALL",
    "Side",
    "batches",
    "loss_of",
    "pair",
    "pair_of",
    "pairings",
    "plain_step",
    "run_both",
    "same",
    "small_batches",
]

FULL = bool(os.environ.get("LOWTIDE_FULL"))
LAYERS = 4 if FULL else 2
SMALL = {"bert": partial(bert, width=64), "gpt2": partial(gpt2, width=64)}


def same(a: Any, b: Any) -> bool:
    """Equal bit for bit, dtypes and structure included."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


@dataclass
class Side:
    """One of the two copies: a model, its optimizer and its step."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: Any

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "gradients": [parameter.grad for parameter in self.model.parameters()],
        }


def pairings(turn: int) -> list[tuple[str, str]]:
    """Models and the optimizers that train them: the quick models with every optimizer, the transformers with one each.

    `turn` says which one: four tests with turns that follow each other have every pairing between them.
    """
    names = list(OPTIMIZERS)
    slow = {model: names[(turn + place) % len(names)] for place, model in enumerate(SMALL)}
    return [(model, name) for model in MODELS for name in names if FULL or slow.get(model, name) == name]


def pair(
    model: str,
    optimizer: str | Callable[[Any], torch.optim.Optimizer] = "adam",
    make: StepMaker = plain_step,
    *,
    small: bool = False,
    layers: int = 4,
    **options: Any,
) -> tuple[Side, Side]:
    """Two equal copies: one whose step is eager, one whose step is compiled.

    `small` narrows the transformers, and gives them so many `layers`.
    """
    torch.manual_seed(0)
    first = SMALL[model](layers=layers) if small and model in SMALL else MODELS[model][0]()
    return pair_of(first, optimizer, make, **options)


def pair_of(
    first: nn.Module,
    optimizer: str | Callable[[Any], torch.optim.Optimizer],
    make: StepMaker,
    **options: Any,
) -> tuple[Side, Side]:
    """The same, of a model that is there already."""
    second = copy.deepcopy(first)
    make_optimizer = OPTIMIZERS[optimizer] if isinstance(optimizer, str) else optimizer
    sides = [Side(m, o, make(m, o)) for m, o in ((m, make_optimizer(m.parameters())) for m in (first, second))]
    options = {"on_unsupported": "raise", **options}
    sides[1].step = lowtide.compile(sides[1].step, model=second, optimizer=sides[1].optimizer, **options)
    return sides[0], sides[1]


def batches(model: str, count: int, *, batch: int = 8, length: int = 128) -> Iterator[dict[str, torch.Tensor]]:
    torch.manual_seed(1)
    size = {"batch": batch, "length": length} if MODELS[model][1] is tokens else {"batch": batch}
    return iter([MODELS[model][1](**size) for _ in range(count)])


def small_batches(model: str, count: int, batch: int = 2) -> Iterator[dict[str, torch.Tensor]]:
    return batches(model, count, batch=batch, length=16)


def run_both(eager: Side, planned: Side, index: int, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """One step on either side, from the same random state."""
    torch.manual_seed(100 + index)
    expected = eager.step(*args, **kwargs)
    after = torch.get_rng_state()
    torch.manual_seed(100 + index)
    got = planned.step(*args, **kwargs)
    assert torch.equal(torch.get_rng_state(), after), "the random state has moved differently"
    return expected, got
