"""`lowtide.capture`: the graph of a step, without running it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from .. import _core, _torch
from .._base.interrupts import signals_held
from .._base.structure import as_arguments
from .._capture.tape import Tape, capture_step
from .._guards.surroundings import Surroundings
from .._optimizer.twin import OptimizerTwin, TwinRun
from .gpu_memory import add_gpu_memory
from .gpus import Device, device_named
from .graph import assume_profiles, build_graph, profile_operators
from .lowering import Lowered, lower, numbers_of
from .part_rooflines import assume_parts
from .profile_rows import OpProfile
from .profiles import ProfileCache
from .rooflines import time_ns


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
    least_part_bytes: int | None = None,
) -> _core.Graph:
    """The graph of `function(*example)`: operators, buffers and versions of forward, backward and update.

    Nothing is computed and nothing is changed. Sizes are those of the tensors; what operators need inside (workspaces)
    and how long they take is known only to `compile`, which runs each of them once. With the name of a `device`
    ("A100", "L4", all those of `fit`) they take what its published peaks allow (`rooflines.py`), otherwise no time. A
    model built under `FakeTensorMode` has no weights and takes no memory: its graph is the same.

    With `least_part_bytes`, operators with an operand in the arena of that size get axes along which they may run in
    parts, with costs on the `device` from its peaks and an assumed utilisation (`part_rooflines.py`).

        graph = lowtide.capture(train_step, model=model, optimizer=optimizer, example=(batch,), device="A100")
        print(graph.summary(), lowtide.plan(graph).time_ns)
    """
    timed_on = None if device is None else device_named(device)
    with signals_held, _recorded(function, model, optimizers_of(optimizer), as_arguments(example)) as (tape, runs):
        lowered = lower(tape, runs)
        profiles = _assumed(lowered, _times(lowered, timed_on))
        if timed_on is None or least_part_bytes is None:
            return build_graph(lowered, profiles)
        return build_graph(lowered, profiles, axes=assume_parts(lowered, profiles, timed_on, least_part_bytes))


class Captured(NamedTuple):
    """A step's graph as plain PyTorch runs it and as `compile` plans it, and what libraries hold beside its tensors."""

    plain: _core.Graph
    planned: _core.Graph
    workspaces: tuple[int, ...] = ()  # bytes of each; in both graphs


def capture_both(
    function: Callable[..., Any],
    model: torch.nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    example: tuple[Any, ...],
    device: Device | None,
    *,
    keep_grads: bool,
    gpu: Device | None = None,
) -> Captured:
    """The graph as plain PyTorch runs it, and as `compile` plans it: one capture for both.

    Plain PyTorch holds every gradient until all parameters are updated, also in a function that zeroes them in the end,
    what rules of list operators make for all parameters at once, and what variables of other rules hold. Without a
    device it is this machine's CPU: as in `compile`, each operator is run alone on scratch tensors for its workspace
    and time, unless the cache knows it. With one, operators of the second graph have the times of its roofline; and
    with a `gpu`, those of both what they request there inside, where that is known.
    """
    cache = ProfileCache() if device is None else None
    workspaces: tuple[int, ...] = ()

    def graph_of(lowered: Lowered, timed_on: Device | None, *, at_first_use: bool) -> _core.Graph:
        nonlocal workspaces
        if cache is not None:
            return build_graph(lowered, _profiles_here(lowered, runs, cache))
        times = _times(lowered, timed_on)
        if gpu is not None:
            workspaces = add_gpu_memory(lowered, gpu, at_first_use=at_first_use)
        return build_graph(lowered, _assumed(lowered, times))

    with signals_held, _recorded(function, model, optimizers, example) as (tape, runs):
        left, tensors = tape.new_gradients, list(_as_moved(model))
        tape.new_gradients = {**left, **{name: ref for mark in tape.updates for name, ref in mark.gradients.items()}}
        together = lower(tape, runs, as_eager=True, model_tensors=tensors)
        plain = graph_of(together, None, at_first_use=True)
        tape.new_gradients = left
        if not keep_grads:
            tape.drop_gradients()
        planned = graph_of(lower(tape, runs, model_tensors=tensors), device, at_first_use=False)
        return Captured(plain, planned, workspaces)


def _as_moved(module: torch.nn.Module, prefix: str = "") -> Iterator[str]:
    """Names of a model's tensors in the order in which `model.to(device)` makes them there."""
    for name, child in module.named_children():
        yield from _as_moved(child, f"{prefix}{name}.")
    for table in (module._parameters, module._buffers):
        yield from (f"{prefix}{name}" for name, tensor in table.items() if tensor is not None)


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


def _times(lowered: Lowered, device: Device | None) -> list[int]:
    return [0 if device is None else time_ns(operator, device) for operator in lowered.operators]


def _assumed(lowered: Lowered, times: Sequence[int]) -> list[OpProfile]:
    timed = zip(assume_profiles(lowered), times, strict=True)
    return [replace(profile, time_ns=nanos) for profile, nanos in timed]


def _profiles_here(lowered: Lowered, runs: dict[int, TwinRun], cache: ProfileCache) -> list[OpProfile]:
    _torch.install_allocator()
    numbers = numbers_of(runs)
    return profile_operators(lowered, cache, lambda number: numbers[number.index])[1]
