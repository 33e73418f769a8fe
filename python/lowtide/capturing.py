"""`lowtide.capture`: the graph of a step, without running it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from . import _core
from .assembly import assume_profiles, build_graph
from .interrupts import signals_held
from .lowering import lower
from .optimizer_twin import OptimizerTwin, TwinRun
from .rooflines import Device, device_named, time_ns
from .surroundings import Surroundings
from .tape import capture_step


def optimizers_of(
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None,
) -> list[torch.optim.Optimizer]:
    """None, one or several optimizers, as a list."""
    if optimizer is None:
        return []
    return [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)


def capture(
    function: Callable[..., Any],
    *,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    example: tuple[Any, ...],
    device: str | None = None,
) -> _core.Graph:
    """The graph of `function(*example)`: operators, buffers and versions of forward, backward and update.

    Nothing is computed and nothing is changed. Sizes are those of the tensors; what operators need inside (workspaces)
    and how long they take is known only to `compile`, which runs each of them once. With the name of a `device`
    ("A100", "H100", "L4") they take what its published peaks allow (`rooflines.py`), otherwise no time. A model built
    under `FakeTensorMode` has no weights and takes no memory: its graph is the same.

        graph = lowtide.capture(train_step, model=model, optimizer=optimizer, example=(batch,), device="A100")
        print(graph.summary(), lowtide.plan(graph).time_ns)
    """
    timed_on = None if device is None else device_named(device)
    with signals_held:
        return _capture(function, model, optimizers_of(optimizer), example, timed_on)


def _capture(
    function: Callable[..., Any],
    model: torch.nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    example: tuple[Any, ...],
    device: Device | None,
) -> _core.Graph:
    surroundings = Surroundings(function, model, optimizers)
    tape = capture_step(function, surroundings, model, optimizers, example, {})
    runs: dict[int, TwinRun] = {}
    try:
        for mark in tape.updates:
            twin = OptimizerTwin(optimizers[mark.optimizer], [tape.parameters[name] for name in mark.gradients])
            runs[mark.optimizer] = twin.run()
        lowered = lower(tape, runs)
    finally:
        for run in runs.values():
            run.rollback()
    profiles = assume_profiles(lowered)
    if device is not None:
        timed = zip(lowered.operators, profiles, strict=True)
        profiles = [replace(profile, time_ns=time_ns(operator, device)) for operator, profile in timed]
    return build_graph(lowered, profiles)
