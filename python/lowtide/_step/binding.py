"""What a captured step is bound to: tensors of the model and its optimizers that are found by name at each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .._capture.autocast_casts import Cast, cast_now
from .._capture.tape import Root, Tape
from .._guards.sharing import Sharing
from .._lower.lowering import Lowered, StateRoot

Find = Callable[[], torch.Tensor | None]


class StaleBinding(Exception):
    """A tensor that the step is bound to is gone or has another shape: the step must be captured again."""


class RunsEager(Exception):
    """This call must be eager, whatever later ones are."""


class SharedMemory(Exception):
    """Arguments show memory that the step writes under another name: it must be captured with that in mind."""

    def __init__(self, said: str, sharing: Sharing) -> None:
        super().__init__(said)
        self.sharing = sharing


@dataclass(slots=True)
class Binding:
    """A bound buffer: how to find its tensor now, and what it must look like."""

    buffer: int
    find: Find
    name: str
    lasting: bool  # found in the model's or the optimizers' own dictionaries
    passing: bool  # let go of after each step: the caller drops gradients as it likes
    layout: tuple[Any, ...] | None = None
    bound: torch.Tensor | None = None


@dataclass(slots=True)
class Shared:
    """What else lies in a bound buffer, and how many bytes behind the tensor that is bound."""

    bound: Binding
    find: Find
    behind: int
    written: bool


class Finder:
    """Finds the tensors of a step by their names on the tape."""

    def __init__(self, tape: Tape, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._tape = tape
        self._model = model
        self._optimizers = optimizers

    def bindings(self, lowered: Lowered) -> tuple[list[Binding], list[tuple[int, int]]]:
        """What the step is bound to, and which of its buffers are which of its arguments."""
        bindings: list[Binding] = []
        inputs: list[tuple[int, int]] = []
        for index, buffer in enumerate(lowered.buffers):
            if buffer.kind != "bound":
                continue
            root = buffer.root
            if isinstance(root, Root) and root.kind == "input":
                inputs.append((index, root.key))
            else:
                assert root is not None
                lasting = root.kind in ("parameter", "buffer", "state", "constant")
                bindings.append(Binding(index, self.of(root), buffer.name, lasting, root.kind == "gradient"))
        return bindings, inputs

    def of(self, root: Root | StateRoot) -> Find:
        """How to find one of them."""
        if isinstance(root, StateRoot):
            optimizer, owner, key = self._optimizers[root.optimizer], root.owner, root.key
            if root.kind == "state":
                parameter = self._tape.parameters[str(owner)]
                return lambda: optimizer.state[parameter].get(key)
            if root.kind == "hyper":
                return lambda: optimizer.param_groups[int(owner)].get(key)
            return lambda: getattr(optimizer, key, None)
        if root.kind == "constant":
            return lambda: root.key
        if root.kind == "cast":
            return lambda: _kept_cast(root.key)
        if root.kind == "gradient":
            parameter = self._tape.parameters[root.key]
            return lambda: parameter.grad
        module, name = owner_of(self._model, root.key)
        registry = module._parameters if root.kind == "parameter" else module._buffers
        return lambda: registry.get(name)


def written_when_bound(lowered: Lowered) -> set[int]:
    """The bound buffers that the step writes, optimizers that step after the program included."""
    late = {name for _, name in lowered.late_gradients}
    lies = [(index, buffer.root) for index, buffer in enumerate(lowered.buffers) if buffer.kind == "bound"]
    lies += [(index, root) for index, root, _ in lowered.shared]
    updated = {i for i, r in lies if isinstance(r, Root) and r.kind == "parameter" and r.key in late}
    written = {buffer for op in lowered.operators for buffer in op.writes}
    return updated | {index for index, _ in lies if index in written}


def check_shared(shared: Shared) -> None:
    """Tensors that shared memory at capture must still do so."""
    bound, tensor = shared.bound.bound, shared.find()
    if tensor is None or bound is None or tensor.data_ptr() - bound.data_ptr() != shared.behind:
        raise StaleBinding(f"{shared.bound.name} no longer shares its memory")


def _kept_cast(cast: Cast) -> torch.Tensor:
    found = cast_now(cast)
    if found.requires_grad != cast.requires_grad:
        raise RunsEager("an autocast region that keeps casts of weights made in another grad mode")
    return found


def owner_of(model: torch.nn.Module, name: str) -> tuple[torch.nn.Module, str]:
    """The module that holds a parameter or buffer of that name, and its name there."""
    path, _, key = name.rpartition(".")
    return model.get_submodule(path), key


def found_now(bindings: Sequence[Binding]) -> dict[int, torch.Tensor]:
    """The tensors that are there now, by buffer."""
    tensors = {binding.buffer: binding.find() for binding in bindings}
    return {buffer: tensor for buffer, tensor in tensors.items() if tensor is not None}
