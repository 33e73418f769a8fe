"""`lowtide.capture`: the graph of a step, without running it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from .. import _core, _torch
from .._base.interrupts import signals_held
from .._base.structure import as_arguments
from .._capture.tape import Tape, capture_step
from .._guards.surroundings import Surroundings
from .._optimizer.twin import OptimizerTwin, TwinRun
from .graph import assume_profiles, build_graph, profile_operators
from .lowering import Lowered, lower, numbers_of
from .profile_rows import OpProfile
from .profiles import ProfileCache
from .rooflines import Device, device_named, time_ns


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
    with signals_held, _recorded(function, model, optimizers_of(optimizer), as_arguments(example)) as (tape, runs):
        lowered = lower(tape, runs)
        return build_graph(lowered, _profiles(lowered, timed_on))


def capture_both(
    function: Callable[..., Any],
    model: torch.nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    example: tuple[Any, ...],
    device: Device | None,
    *,
    keep_grads: bool,
) -> tuple[_core.Graph, _core.Graph]:
    """The graph as plain PyTorch runs it, and as `compile` plans it: one capture for both.

    Plain PyTorch holds every gradient until all parameters are updated, also in a function that zeroes them in the end,
    what rules of list operators make for all parameters at once, and what variables of other rules hold. Without a
    device it is this machine's CPU: as in `compile`, each operator is run alone on scratch tensors for its workspace
    and time, unless the cache knows it. With one, operators have no workspaces, and those of the second graph the times
    of its roofline.
    """
    cache = ProfileCache() if device is None else None
    with signals_held, _recorded(function, model, optimizers, example) as (tape, runs):
        left = tape.new_gradients
        tape.new_gradients = {**left, **{name: ref for mark in tape.updates for name, ref in mark.gradients.items()}}
        together = lower(tape, runs, as_eager=True)
        plain = build_graph(together, _profiles_here(together, runs, cache) if cache else assume_profiles(together))
        tape.new_gradients = left
        if not keep_grads:
            tape.drop_gradients()
        lowered = lower(tape, runs)
        return plain, build_graph(
            lowered, _profiles_here(lowered, runs, cache) if cache else _profiles(lowered, device)
        )


@contextmanager
def _recorded(
    function: Callable[..., Any],
    model: torch.nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    example: tuple[Any, ...],
) -> Iterator[tuple[Tape, dict[int, TwinRun]]]:
    """The tape of the step, and a run of each of its optimizers, which is rolled back in the end."""
    surroundings = Surroundings(function, model, optimizers)
    tape = capture_step(function, surroundings, model, optimizers, example, {})
    runs: dict[int, TwinRun] = {}
    try:
        for mark in tape.updates:
            twin = OptimizerTwin(optimizers[mark.optimizer], [tape.parameters[name] for name in mark.gradients])
            runs[mark.optimizer] = twin.run()
        yield tape, runs
    finally:
        for run in runs.values():
            run.rollback()


def _profiles(lowered: Lowered, device: Device | None) -> list[OpProfile]:
    profiles = assume_profiles(lowered)
    if device is None:
        return profiles
    timed = zip(lowered.operators, profiles, strict=True)
    return [replace(profile, time_ns=time_ns(operator, device)) for operator, profile in timed]


def _profiles_here(lowered: Lowered, runs: dict[int, TwinRun], cache: ProfileCache) -> list[OpProfile]:
    _torch.install_allocator()
    numbers = numbers_of(runs)
    return profile_operators(lowered, cache, lambda number: numbers[number.index])[1]
