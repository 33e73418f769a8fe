"""A block's forward pass, kept or dropped: what stands in for `forward` on the instances while a model is adapted.

A dropped call is PyTorch's own checkpoint, not the reentrant one: random state and autocast are as in the first run.
For the second run a module has copies of the buffers that it changes as it runs.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

NOTHING: Any = nullcontext()


class Forward:
    """Stands in for `forward` of one module; called like it. Copies and pickles of the module have the original."""

    def __init__(self, module: nn.Module, handle: Callable[[Forward, tuple[Any, ...], dict[str, Any]], Any]) -> None:
        self.module = module
        self.original: Callable[..., Any] = module.forward
        self._own = module.__dict__.get("forward")  # somebody else may have put one on the instance
        self._handle = handle
        functools.update_wrapper(self, self.original)
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


class Buffers:
    """Buffers that a block changes as it runs, by their places in its modules: what a second run has copies of."""

    def __init__(self, places: list[tuple[dict[str, Any], str]]) -> None:
        self._places = places
        self._before: list[torch.Tensor] | None = None  # copies to begin with, if what they hold matters

    @contextmanager
    def apart(self, inner: Any) -> Iterator[None]:
        """A context for the second run, around another one."""
        own = [buffers[name] for buffers, name in self._places]
        copies = self._before or [buffer.clone() for buffer in own]
        for (buffers, name), content in zip(self._places, copies, strict=True):
            buffers[name] = content
        try:
            with inner:
                yield
        finally:
            for (buffers, name), buffer in zip(self._places, own, strict=True):
                buffers[name] = buffer


class WatchedBuffers(Buffers):
    """All buffers of a block that nobody has seen running yet."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(_places(module.modules()))
        self._statistics = {id(buffers) for buffers, _ in running_statistics(module)._places}
        self._seen = [(buffers[name], buffers[name]._version) for buffers, name in self._places]
        self._before = [buffer.clone() for buffer, _ in self._seen]

    def changed(self) -> list[str]:
        """Those that are others now, running statistics aside, which no result depends on."""
        return [
            name
            for (buffers, name), (buffer, version) in zip(self._places, self._seen, strict=True)
            if id(buffers) not in self._statistics and (buffers[name] is not buffer or buffer._version != version)
        ]


def _places(parts: Iterable[nn.Module]) -> list[tuple[dict[str, Any], str]]:
    return [(part._buffers, name) for part in parts for name, buffer in part._buffers.items() if buffer is not None]


def running_statistics(module: nn.Module) -> Buffers:
    """What the forward pass of a module in training changes and does not depend on."""
    return Buffers(
        _places(
            part
            for part in module.modules()
            if isinstance(part, nn.modules.batchnorm._NormBase) and part.training and part.track_running_stats
        )
    )


def run_dropped(
    forward: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    buffers: Buffers,
    first: Any = NOTHING,
    again: Any = NOTHING,
) -> Any:
    """Calls a block so that what it saves is dropped and made again; `buffers` are those that its runs change."""
    names = list(kwargs)

    def call(*values: Any) -> Any:
        return forward(*values[: len(args)], **dict(zip(names, values[len(args) :], strict=True)))

    def contexts() -> tuple[Any, Any]:
        return first, buffers.apart(again)

    return checkpoint(call, *args, *kwargs.values(), use_reentrant=False, preserve_rng_state=True, context_fn=contexts)


def is_left_alone() -> bool:
    """Whether a block that is called now is kept as it is: nothing is saved, or the user decides about what is.

    That is so without gradients, under saved tensor hooks of the user's, among them a checkpoint's, and in a backward
    pass, where a checkpoint of the user's runs again.
    """
    return (
        not torch.is_grad_enabled()
        or torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
        or torch._C._current_graph_task_id() != -1
    )


def turn_caches_off(model: nn.Module) -> list[Any]:
    """Sets `use_cache` of the model's configurations to False; gives those in which it was not.

    A cache of keys and values is for generation, and a second run would add to it.
    """
    configs = {id(config): config for module in model.modules() if (config := getattr(module, "config", None))}
    found = [config for config in configs.values() if getattr(config, "use_cache", False) is True]
    for config in found:
        config.use_cache = False
    return found


def changes_what_it_is_given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a cache of keys and values is among the arguments: a second run would add to it again."""
    return any(hasattr(value, "get_seq_length") for value in (*args, *kwargs.values()))
