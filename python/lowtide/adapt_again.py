"""A block that runs again finds what its first run found: parameters, buffers, arguments and random numbers.

PyTorch's checkpoint looks after its own random state and autocast. The rest is here: what the block's modules held by
name, and Python's and NumPy's random state if the block draws from them. Of running statistics, which a run changes and
no result depends on, each second run has copies. Whatever else a block changes is seen in its first run, which is
watched, with copies of buffers and arguments until it is clear that they are not needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from .inputs import tensors_in
from .python_random import PythonRandom

Place = tuple[dict[str, Any], str]


def running_statistics(module: nn.Module) -> list[Place]:
    """Buffers that a forward pass of the module in training changes and does not depend on."""
    return [
        (part._buffers, name)
        for part in module.modules()
        if isinstance(part, nn.modules.batchnorm._NormBase) and part.training and part.track_running_stats
        for name, buffer in part._buffers.items()
        if buffer is not None
    ]


class SecondRuns:
    """A context for whatever runs a block again: it is entered once for each backward pass that comes through it."""

    def __init__(self, module: nn.Module, *, draws: bool) -> None:
        self._parameters: list[tuple[dict[str, Any], str, torch.Tensor]] = [
            (part._parameters, name, parameter)
            for part in module.modules()
            for name, parameter in part._parameters.items()
            if parameter is not None
        ]
        self._buffers: list[tuple[dict[str, Any], str, torch.Tensor, int]] = [
            (part._buffers, name, b, version_of(b))
            for part in module.modules()
            for name, b in part._buffers.items()
            if b is not None
        ]
        self._statistics = {(id(table), name) for table, name in running_statistics(module)}
        self._copies: dict[tuple[int, str], torch.Tensor] = {}
        self._random = PythonRandom() if draws else None
        self._inner: Any = None
        self._after: list[Callable[[], None]] = []

    def around(self, inner: Any) -> SecondRuns:
        """Enters another context too."""
        self._inner = inner
        return self

    def changed(self) -> list[str]:
        """Buffers whose content is another now, running statistics aside."""
        return [
            name
            for table, name, buffer, version in self._buffers
            if (id(table), name) not in self._statistics and version_of(buffer) != version
        ]

    def __enter__(self) -> None:
        for table, name, parameter in self._parameters:
            self._put(table, name, parameter)
        for table, name, buffer, _ in self._buffers:
            key = id(table), name
            copied = buffer if key in self._statistics else self._copies.get(key)
            self._put(table, name, buffer if copied is None else copied.clone())
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
        self._copies = {(id(table), name): buffer.clone() for table, name, buffer, _ in self._buffers}
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
