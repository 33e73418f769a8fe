"""Models without weights: built on fake tensors, or on the meta device and treated as if they had been."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode


class _SharedMode(FakeTensorMode):  # type: ignore[no-untyped-call]
    def __deepcopy__(self, memo: object) -> FakeTensorMode:
        return self  # nn.Transformer copies its layers, and tensors of two modes do not mix


class CudaMeansCpu(TorchFunctionMode):
    """Code that names "cuda" runs where there is none: its tensors are fake ones on the CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        return func(*map(_on_cpu, args), **{name: _on_cpu(value) for name, value in (kwargs or {}).items()})


def _on_cpu(argument: Any) -> Any:
    if isinstance(argument, (str, torch.device)) and str(argument).partition(":")[0] == "cuda":
        return torch.device("cpu")
    return argument


@contextmanager
def autocasts_noted(devices: set[str]) -> Iterator[None]:
    """Adds the kinds of devices for which code asks for autocast."""
    own: Any = torch.autocast.__init__

    def noting(
        self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        if enabled:
            devices.add(device_type)
        own(self, device_type, dtype, enabled, cache_enabled)

    autocast: Any = torch.autocast
    autocast.__init__ = noting
    try:
        yield
    finally:
        autocast.__init__ = own


@contextmanager
def building() -> Iterator[None]:
    """What is built here has shapes and no content: a model takes no memory, whatever its size."""

    def keep(tensor: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
        return tensor

    def swap(tensor: torch.Tensor, other: torch.Tensor) -> None:
        if isinstance(tensor, FakeTensor):
            tensor.data = other.data
        else:
            own_swap(tensor, other)  # type: ignore[no-untyped-call]

    own_draw, own_swap = nn.init._no_grad_trunc_normal_, torch.utils.swap_tensors
    nn.init._no_grad_trunc_normal_ = keep  # draws again until values are in range
    torch.utils.swap_tensors = swap  # refuses what is weakly referenced, as fake tensors are: `model.to(...)`
    try:
        with _SharedMode(allow_non_fake_inputs=True), CudaMeansCpu():
            yield
    finally:
        nn.init._no_grad_trunc_normal_, torch.utils.swap_tensors = own_draw, own_swap


def fake_mode_of(model: nn.Module) -> FakeTensorMode | None:
    """The mode under which a model without weights was built."""
    tensors = (*model.parameters(), *model.buffers())
    return next((tensor.fake_mode for tensor in tensors if isinstance(tensor, FakeTensor)), None)


@contextmanager
def as_if_on_cpu(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> Iterator[None]:
    """Fake tensors stand in for those of `model` that are on another device, in the optimizers too."""
    stand_ins: dict[int, torch.Tensor] = {}
    mode = fake_mode_of(model) or _SharedMode(allow_non_fake_inputs=True)

    def stand_in(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in stand_ins:
            with mode:
                fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
                is_parameter = isinstance(tensor, nn.Parameter)
                stand_ins[id(tensor)] = nn.Parameter(fake, tensor.requires_grad) if is_parameter else fake
        return stand_ins[id(tensor)]

    registries: list[dict[str, Any]] = [
        table for module in model.modules() for table in (module._parameters, module._buffers)
    ]
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    tables = [(table, dict(table)) for table in registries]
    lists = [(group, group["params"]) for group in groups]
    try:
        for table, before in tables:
            for name, tensor in before.items():
                if tensor is not None and tensor.device.type != "cpu":
                    table[name] = stand_in(tensor)
        for group, parameters in lists:
            group["params"] = [tensor if tensor.device.type == "cpu" else stand_in(tensor) for tensor in parameters]
        yield
    finally:
        for table, before in tables:
            table.update(before)
        for group, parameters in lists:
            group["params"] = parameters
