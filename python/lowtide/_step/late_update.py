"""Optimizers that step eagerly, after the program: what they find in `.grad`, and what is there afterwards.

program  ->  .grad as of optimizer.step()  ->  optimizer.step()  ->  .grad as the function leaves it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from .._base.interrupts import signals_held
from .._capture.tape import Tape, UpdateMark

Gradients = Mapping[str, torch.Tensor | None]


def step_late(
    tape: Tape,
    optimizers: Sequence[torch.optim.Optimizer],
    late: Mapping[int, Gradients],
    final: Gradients,
) -> None:
    """Steps the optimizers of `late`, by index, in the order of the tape, each with its gradients by parameter name.

    `final` are the gradients that the function changes, as it leaves them. One that it does not touch after the step is
    left as the optimizer leaves it: hooks may clear gradients. If an optimizer raises, gradients are those of its step.
    """
    before: dict[str, torch.Tensor | None] = {}
    left_alone: set[str] = set()
    for mark in tape.updates:
        gradients = late.get(mark.optimizer)
        if gradients is None:
            continue
        given: dict[str, torch.Tensor | None] = {}
        for name in mark.groups:
            parameter = tape.parameters[name]
            before.setdefault(name, parameter.grad)
            if parameter.grad is None or not _is_at_entry(tape, mark, name):
                parameter.grad = gradients.get(name)
            given[name] = parameter.grad
        with signals_held.users_code():
            optimizers[mark.optimizer].step()
        for name, gradient in given.items():
            if tape.parameters[name].grad is not gradient and _is_untouched(tape, mark, name):
                left_alone.add(name)
    for name, gradient in {**before, **final}.items():
        if name not in left_alone:
            tape.parameters[name].grad = gradient


def _is_untouched(tape: Tape, mark: UpdateMark, name: str) -> bool:
    """Whether the function leaves a gradient as it was when the optimizer stepped."""
    if name not in tape.new_gradients:
        return _is_at_entry(tape, mark, name)
    return tape.new_gradients[name] == mark.gradients.get(name)


def _is_at_entry(tape: Tape, mark: UpdateMark, name: str) -> bool:
    """Whether the optimizer goes by the gradient that the function found, written in place or not."""
    ref = mark.gradients.get(name)
    roots = [] if ref is None else tape.roots.get(ref.buffer, [])
    return any(root.kind == "gradient" and root.key == name for root in roots)


def shares_gradients(one: UpdateMark, other: UpdateMark) -> bool:
    """Whether two optimizers update a parameter in common, or go by a gradient in common."""
    buffers = {ref.buffer for ref in one.gradients.values()}
    return not one.gradients.keys().isdisjoint(other.gradients) or not buffers.isdisjoint(
        ref.buffer for ref in other.gradients.values()
    )
