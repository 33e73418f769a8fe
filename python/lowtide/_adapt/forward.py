"""What stands in for `forward` on the instances while a model is adapted, and when a call is left alone."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils import parametrize
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

_C: Any = torch._C


class Forward:
    """Stands in for `forward` of one module; called like it. Copies and pickles of the module have the original."""

    def __init__(self, module: nn.Module, handle: Callable[[Forward, tuple[Any, ...], dict[str, Any]], Any]) -> None:
        functools.update_wrapper(self, module.forward)
        self.module = module
        self.original: Callable[..., Any] = module.forward
        self._own = module.__dict__.get("forward")  # somebody else may have put one on the instance
        self._handle = handle
        module.forward = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.original(*args, **kwargs)
        return self._handle(self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        """Whoever takes it for a function finds what the original has."""
        if name in ("original", "module"):
            raise AttributeError(name)
        return getattr(self.original, name)

    def remove(self) -> None:
        """Gives the module its own back."""
        if self.module.__dict__.get("forward") is not self:
            return  # replaced by somebody else since
        if self._own is None:
            del self.module.forward
        else:
            self.module.forward = self._own

    def _plain(self, module: nn.Module) -> Any:
        function = getattr(self.original, "__func__", None)
        return self.original if function is None else function.__get__(module)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copied = memo.get(id(self.module))
        return copy.copy(self.original) if copied is None else self._plain(copied)

    def __reduce__(self) -> Any:
        return getattr, (self.module, "forward")


def is_left_alone() -> bool:
    """Whether a block that is called now is kept as it is: nothing is saved, or the user decides about what is.

    That is so without gradients, under saved tensor hooks of the user's, among them a checkpoint's, where there can be
    no such hooks, as in `torch.func.grad`, and in a backward pass, where a checkpoint of the user's runs again. It is
    so under modes, transforms, tracers and caches, too, which would not be there in the second run.
    """
    autograd: Any = _C._autograd
    return (
        not torch.is_grad_enabled()
        or not autograd._saved_tensors_hooks_is_enabled()
        or autograd._top_saved_tensors_default_hooks(True) is not None
        or _C._current_graph_task_id() != -1
        or _C._len_torch_dispatch_stack() > 0
        or (_C._len_torch_function_stack() > 0 and _has_mode_of_the_users())
        or _C._functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
        or _C._get_tracing_state() is not None
        or parametrize._cache_enabled > 0
    )


def _has_mode_of_the_users() -> bool:
    """Whether torch functions go through a mode other than that of a default device, which checkpoints know of."""
    modes: list[object] = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return any(not isinstance(mode, DeviceContext) for mode in modes)


class Caches:
    """The `use_cache` of a model's configurations: for generation, and a second run would add to such a cache."""

    def __init__(self, model: nn.Module) -> None:
        configs: list[Any] = [getattr(module, "config", None) for module in model.modules()]
        self._configs = list({id(config): config for config in configs if hasattr(config, "use_cache")}.values())
        self._off: list[Any] = []

    def turn_off(self) -> None:
        """Where it is on, for now."""
        found = [config for config in self._configs if config.use_cache is True]
        for config in found:
            config.use_cache = False
        self._off += found

    def turn_on(self) -> None:
        """Where it was."""
        for config in self._off:
            config.use_cache = True
        self._off = []


def changes_what_it_is_given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a cache of keys and values is among the arguments: a second run would add to it again."""
    return any(hasattr(value, "get_seq_length") for value in (*args, *kwargs.values()))
