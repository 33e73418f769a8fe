"""Runs a scenario twice, eager and compiled, and compares all that it notes down, bit for bit."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

import lowtide


def frozen(value: Any) -> Any:
    """What `value` is now: tensors by their bits, containers by what is in them."""
    if isinstance(value, torch.Tensor):
        plain = value.detach().contiguous()
        return (str(plain.dtype), tuple(plain.shape), plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    if isinstance(value, dict):
        return {key: frozen(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [frozen(item) for item in value]
    return value


def state_of(model: nn.Module, *optimizers: torch.optim.Optimizer) -> Any:
    """Everything that a step can leave behind in a model and its optimizers, and the random state."""
    return [
        dict(model.named_parameters()),
        dict(model.named_buffers()),
        [parameter.grad for parameter in model.parameters()],
        [optimizer.state_dict()["state"] for optimizer in optimizers],
        torch.get_rng_state(),
    ]


@dataclass
class Run:
    """One of the two runs of a scenario."""

    compiled: bool
    options: dict[str, Any] = field(default_factory=dict)
    notes: list[Any] = field(default_factory=list)
    steps: list[Any] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    error: str = ""

    def wrap(self, function: Callable[..., Any], model: nn.Module, optimizer: Any = None) -> Callable[..., Any]:
        if not self.compiled:
            return function
        step = lowtide.compile(function, model=model, optimizer=optimizer, **self.options)
        self.steps.append(step)
        return step

    def note(self, *values: Any) -> None:
        self.notes.append(frozen(values))

    @property
    def planned(self) -> int:
        return sum(step.stats()["calls"] for step in self.steps)

    @property
    def eager(self) -> int:
        return sum(step.stats()["eager_calls"] for step in self.steps)

    @property
    def why(self) -> str:
        return "\n".join(step.explain_guards() for step in self.steps)


def run_once(scenario: Callable[[Run], None], run: Run) -> Run:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            scenario(run)
        except Exception as error:
            run.error = type(error).__name__
    run.said = [str(warning.message) for warning in caught if "lowtide" in str(warning.message)]
    return run


def equal_both_ways(scenario: Callable[[Run], None], **options: Any) -> Run:
    """Asserts that both runs note the same and end in the same way; gives the compiled one."""
    eager, compiled = run_once(scenario, Run(False)), run_once(scenario, Run(True, options))
    assert compiled.error == eager.error
    assert len(compiled.notes) == len(eager.notes)
    for index, (expected, got) in enumerate(zip(eager.notes, compiled.notes, strict=True)):
        assert got == expected, f"note {index} differs\n{compiled.why}"
    return compiled


def perceptron(width: int = 8, hidden: int = 16, out: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, out))


def plain(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[torch.Tensor], torch.Tensor]:
    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
