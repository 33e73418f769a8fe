"""What belongs to the model, by name and by id."""

from __future__ import annotations

import torch


class Own:
    """The model's parameters, buffers and modules at one time."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.parameters = dict(model.named_parameters())
        self.buffers = dict(model.named_buffers())
        self.modules = frozenset(map(id, model.modules()))
        self.tensors: dict[int, tuple[str, str]] = {}  # kind and name by id
        self.tensors.update((id(parameter), ("parameter", name)) for name, parameter in self.parameters.items())
        self.tensors.update((id(buffer), ("buffer", name)) for name, buffer in self.buffers.items())
