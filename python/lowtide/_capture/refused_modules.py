"""Modules that a capture must not touch, by name and with what works instead."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parameter import is_lazy

from .. import _torch
from .._base.own_thread import on_this_thread
from ..errors import CaptureError

# By module of PyTorch: classes whose forward pass prepares hooks that communicate, behind autograd's back.
_WRAPPERS = {
    "torch.nn.parallel": "DistributedDataParallel",
    "torch.distributed.fsdp": "FullyShardedDataParallel",
    "torch.distributed.fsdp._fully_shard": "FSDPModule",
    "torch.distributed.pipelining": "PipelineStage",
}


def refuse_model(model: nn.Module) -> None:
    """Raises `CaptureError` if the model has a module that must not be captured, or weights that are not there yet."""
    for name, module in model.named_modules():
        refuse_wrapper(module, f"`{name}` of the model" if name else "the model")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise CaptureError(f"{name} has no shape yet: call the model once before its steps are planned")
        if tensor.device.type == "meta":
            raise CaptureError(f"{name} is on the meta device and has no content: load the weights first")


def refuse_hooked_additions(model: nn.Module, parameters: Iterable[torch.Tensor]) -> None:
    """Raises `CaptureError` if a node that adds to a parameter's gradient has hooks; says whose, if that is known."""
    if _torch.any_has_hooked_node([*parameters]):
        refuse_model(model)
        raise CaptureError("a parameter has hooks on the node that adds to its gradient, which must see it")


@contextmanager
def wrappers_refused() -> Iterator[None]:
    """While open, calling such a module raises `CaptureError` before its own code runs, wherever it comes from."""

    def look(module: nn.Module, _args: Any) -> None:
        refuse_wrapper(module, "a module that the step calls")

    handle = register_module_forward_pre_hook(on_this_thread(look))
    try:
        yield
    finally:
        handle.remove()


def refuse_wrapper(module: nn.Module, name: str) -> None:
    """Raises `CaptureError` if the module is one of them."""
    kind = next((kind for kind in _kinds() if isinstance(module, kind)), None)
    if kind is not None:
        raise CaptureError(
            f"{name} is {kind.__name__}, which communicates in hooks of its own that no plan holds: compile the module "
            "inside it and average the gradients behind the step, or train without lowtide"
        )
    if isinstance(module, nn.DataParallel) and len(module.device_ids) > 1:
        raise CaptureError(f"{name} is DataParallel on {len(module.device_ids)} devices: only one is planned")


def _kinds() -> list[type[Any]]:
    """Those that are loaded: nothing is an instance of the others."""
    found = [getattr(sys.modules.get(module), name, None) for module, name in _WRAPPERS.items()]
    return [kind for kind in found if isinstance(kind, type)]
