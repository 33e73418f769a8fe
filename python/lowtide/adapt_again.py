"""A block that runs again finds what its first run found: parameters, buffers, arguments and random numbers.

PyTorch's checkpoint looks after its own random state and autocast. The rest is here: what the block's modules held by
name, and Python's and NumPy's random state if the block draws from them. Of running statistics, which a run changes and
no result depends on, each second run has copies. Whatever else a block changes is seen in its first run, which is
watched, with copies of buffers and arguments until it is clear that they are not needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_map

from .inputs import tensors_in
from .python_random import PythonRandom

Key = tuple[int, str]  # the table of a module in which something is, and its name


class HeldBuffer(NamedTuple):
    """A buffer where it is, and how often it was changed in place."""

    table: dict[str, Any]
    name: str
    tensor: torch.Tensor
    version: int

    @property
    def key(self) -> Key:
        """Where it is."""
        return id(self.table), self.name

    def was_changed(self) -> bool:
        """Whether its content is another now, of what counts changes."""
        return version_of(self.tensor) != self.version


def buffers_of(module: nn.Module) -> list[HeldBuffer]:
    """Those of the module and its parts, as they are now."""
    return [
        HeldBuffer(part._buffers, name, buffer, version_of(buffer))
        for part in module.modules()
        for name, buffer in part._buffers.items()
        if buffer is not None
    ]


def running_statistics(module: nn.Module) -> set[Key]:
    """Where buffers are that a forward pass of the module in training changes and does not depend on."""
    return {
        (id(part._buffers), name)
        for part in module.modules()
        if isinstance(part, nn.modules.batchnorm._NormBase) and part.training and part.track_running_stats
        for name in part._buffers
    }


class SecondRuns:
    """A context for whatever runs a block again: it is entered once for each backward pass that comes through it."""

    def __init__(self, module: nn.Module, *, draws: bool) -> None:
        self._parameters: list[tuple[dict[str, Any], str, torch.Tensor]] = [
            (part._parameters, name, parameter)
            for part in module.modules()
            for name, parameter in part._parameters.items()
            if parameter is not None
        ]
        self._buffers = buffers_of(module)
        self._statistics = running_statistics(module)
        self._copies: dict[Key, torch.Tensor] = {}
        self._random = PythonRandom() if draws else None
        self._inner: Any = None
        self._after: list[Callable[[], None]] = []

    def around(self, inner: Any) -> SecondRuns:
        """Enters another context too."""
        self._inner = inner
        return self

    def changed(self) -> list[str]:
        """Buffers whose content is another now, running statistics aside."""
        return [held.name for held in self._buffers if held.key not in self._statistics and held.was_changed()]

    def __enter__(self) -> None:
        for table, name, parameter in self._parameters:
            self._put(table, name, parameter)
        for held in self._buffers:
            copied = held.tensor if held.key in self._statistics else self._copies.get(held.key)
            self._put(held.table, held.name, held.tensor if copied is None else copied.clone())
        if self._random is not None:
            self._after.append(PythonRandom().restore)
            self._random.restore()
        if self._inner is not None:
            self._inner.__enter__()

    def __exit__(self, *error: object) -> None:
        if self._inner is not None:
            self._inner.__exit__(*error)
        while self._after:
            self._after.pop()()

    def _put(self, table: dict[str, Any], name: str, tensor: torch.Tensor) -> None:
        now = table.get(name)
        if now is not tensor:
            self._after.append(lambda: table.__setitem__(name, now))
            table[name] = tensor


class WatchedRuns(SecondRuns):
    """For a block that nobody has seen running yet. It calls the block, too: with the arguments of the first run."""

    def __init__(self, module: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]):
        super().__init__(module, draws=True)
        self._copies = {held.key: held.tensor.clone() for held in self._buffers}
        self._forward = forward
        self._given: Any = (args, kwargs)
        self._given_copies: Any = tree_map(_cloned, self._given)
        self._versions = [(tensor, version_of(tensor)) for tensor in tensors_in(self._given)]
        self._has_run = False
        self.changes: list[str] = []  # what the first run has changed that its result may depend on
        self.draws = False  # whether it drew numbers from Python or NumPy

    def call(self) -> Any:
        """The block."""
        args, kwargs = tree_map(_cloned, self._given) if self.changes else self._given
        result = self._forward(*args, **kwargs)
        if not self._has_run:
            self._has_run = True
            self._look()
        return result

    def _look(self) -> None:
        assert self._random is not None
        self.draws = self._random.drawn_from() is not None
        if not self.draws:
            self._random = None
        self.changes = self.changed()
        if any(version_of(tensor) != version for tensor, version in self._versions):
            self.changes.append("its arguments")
        if self.changes:
            # What was changed in place leads to the graph that leads here: a circle nobody could free.
            self._given = self._given_copies
        else:
            self._copies = {}
        self._given_copies = None
        self._versions = []


def _cloned(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def version_of(tensor: torch.Tensor) -> int:
    """Counts changes in place; always the same for tensors that do not count them."""
    return 0 if tensor.is_inference() else tensor._version
