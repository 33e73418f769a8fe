"""Guards: everything outside the tape that the tape depends on, read at each call.

Two calls with equal guards run the same captured step. A changed guard is not an error: the step is captured again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch

Guards = dict[str, Hashable]


def read_arguments(leaves: Sequence[Any], spec: Any) -> tuple[Hashable, Hashable]:
    """Shapes and dtypes of tensor arguments, values of all others."""
    described: list[Hashable] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            described.append((leaf.dtype, tuple(leaf.shape), leaf.stride(), leaf.requires_grad, leaf.device.type))
        else:
            hash(leaf)  # an unhashable argument cannot be guarded: TypeError
            described.append((type(leaf), leaf))
    return tuple(described), spec


def read_modes() -> Hashable:
    """PyTorch's global switches that change what is dispatched or how it computes."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_dtype(),
        torch.backends.mkldnn.enabled,
    )


MODE_NAMES = (
    "grad mode",
    "inference mode",
    "autocast",
    "autocast dtype",
    "autocast cache",
    "threads",
    "deterministic algorithms",
    "default dtype",
    "mkldnn",
)


class ModelGuard:
    """The parts of a model that can change between calls without a new argument."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self.refresh()

    def refresh(self) -> None:
        """Reads the model's structure anew."""
        self._modules = list(self._model.modules())
        self._registries = [module._modules for module in self._modules]
        self._children = self._read_children()
        self._hooks = [
            hooks for m in self._modules for hooks in (m._forward_hooks, m._forward_pre_hooks, m._backward_hooks)
        ]
        self._ids = tuple(map(id, self._modules))
        self.parameters = dict(self._model.named_parameters())

    def _read_children(self) -> list[tuple[Any, ...]]:
        return list(map(tuple, map(dict.values, self._registries)))

    def read(self) -> tuple[Hashable, ...]:
        """Training flags and hooks of every module, which parameters require a gradient."""
        if self._children != self._read_children():
            self.refresh()
        return (
            tuple([module.training for module in self._modules]),
            tuple(map(len, self._hooks)),
            tuple([parameter.requires_grad for parameter in self.parameters.values()]),
            self._ids,
        )

    def gradients(self) -> tuple[bool, ...]:
        """Which parameters have a gradient now."""
        return tuple([parameter.grad is not None for parameter in self.parameters.values()])


def read_optimizers(optimizers: Sequence[torch.optim.Optimizer]) -> Hashable:
    """Which parameters are in which group."""
    return tuple([tuple([tuple(map(id, group["params"])) for group in o.param_groups]) for o in optimizers])
