"""Buffers of a model as they are now, and which of them are running statistics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import nn

from .content import version_of

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


def running_statistics(modules: Iterable[nn.Module]) -> list[HeldBuffer]:
    """Buffers that a forward pass of the modules in training changes and does not depend on."""
    return [
        HeldBuffer(part._buffers, name, buffer, version_of(buffer))
        for part in modules
        if isinstance(part, nn.modules.batchnorm._NormBase) and part.training and part.track_running_stats
        for name, buffer in part._buffers.items()
        if buffer is not None
    ]
