"""A block's forward pass, kept or dropped: what stands in for `forward` on the instances while a model is adapted.

A dropped call is PyTorch's own checkpoint, not the reentrant one.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from .adapt_again import SecondRuns, WatchedRuns

NOTHING: Any = nullcontext()


class Forward:
    """Stands in for `forward` of one module; called like it. Copies and pickles of the module have the original."""

    def __init__(self, module: nn.Module, handle: Callable[[Forward, tuple[Any, ...], dict[str, Any]], Any]) -> None:
        functools.update_wrapper(self, module.forward)
        self.module = module
        self.original: Callable[..., Any] = module.forward
        self._own = module.__dict__.get("forward")  # somebody else may have put one on the instance
        self._handle = handle
        module.forward = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        return self._handle(self, args, kwargs)

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


def run_dropped(
    forward: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    again: SecondRuns,
    first: Any = NOTHING,
) -> Any:
    """Calls a block so that what it saves is dropped and made again."""
    names = list(kwargs)

    def call(*values: Any) -> Any:
        return forward(*values[: len(args)], **dict(zip(names, values[len(args) :], strict=True)))

    return _checkpoint(call, (*args, *kwargs.values()), again, first)


def run_watched(again: WatchedRuns, first: Any = NOTHING) -> Any:
    """The same for a block that nobody has seen running."""
    return _checkpoint(again.call, (), again, first)


def _checkpoint(call: Callable[..., Any], args: tuple[Any, ...], again: SecondRuns, first: Any) -> Any:
    return checkpoint(call, *args, use_reentrant=False, preserve_rng_state=True, context_fn=lambda: (first, again))


def is_left_alone() -> bool:
    """Whether a block that is called now is kept as it is: nothing is saved, or the user decides about what is.

    That is so without gradients, under saved tensor hooks of the user's, among them a checkpoint's, where there can be
    no such hooks, as in `torch.func.grad`, and in a backward pass, where a checkpoint of the user's runs again.
    """
    autograd: Any = torch._C._autograd
    return (
        not torch.is_grad_enabled()
        or not autograd._saved_tensors_hooks_is_enabled()
        or autograd._top_saved_tensors_default_hooks(True) is not None
        or torch._C._current_graph_task_id() != -1
    )


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
