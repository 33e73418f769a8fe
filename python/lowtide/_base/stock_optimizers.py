"""Which update rules are PyTorch's own: they are known to treat each parameter by itself, so they need no proof."""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any

import torch

_TRUSTED = sys.stdlib_module_names | {"torch", "typing_extensions"}
_NOT_OF_THE_STEP = frozenset(
    {"__init__", "__module__", "__qualname__", "__doc__", "__annotations__", "__dict__", "__weakref__", "__repr__",
     "__str__", "__parameters__", "__orig_bases__", "zero_grad", "state_dict", "load_state_dict", "add_param_group"}
)  # fmt: skip
_CONTENT = ("param_groups", "state", "defaults")  # a class may make properties of them


def is_stock(optimizer: torch.optim.Optimizer) -> bool:
    """Whether no code but PyTorch's own runs in `step`.

    A class of the user's is stock as long as it replaces nothing that `step` uses: new methods are never called.
    """
    classes = type(optimizer).__mro__[:-1]
    stock = [cls for cls in classes if f"{cls.__module__}.".startswith("torch.optim.")]
    if torch.optim.Optimizer in stock[:1]:
        return False
    for cls in classes:
        for name, value in vars(cls).items():
            used = name.startswith("__") or name in _CONTENT or any(name in vars(base) for base in stock)
            replaced = cls not in stock and not callable(value)
            if used and name not in _NOT_OF_THE_STEP and (replaced or not _is_trusted(value)):
                return False
    if any(name != "step" and callable(getattr(type(optimizer), name, None)) for name in vars(optimizer)):
        return False
    module = sys.modules[inspect.unwrap(type(optimizer).step).__module__]
    return all(_is_trusted(value) for value in vars(module).values() if isinstance(value, types.FunctionType))


def _is_trusted(value: Any) -> bool:
    """Whether a function and all that it wraps are PyTorch's or Python's; what is not a function is let pass."""
    value = getattr(value, "__func__", value)
    while isinstance(value, types.FunctionType):
        if str(value.__globals__.get("__name__")).partition(".")[0] not in _TRUSTED:
            return False
        value = getattr(value, "__wrapped__", None)
    return True
