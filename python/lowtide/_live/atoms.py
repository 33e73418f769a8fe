"""Atoms: calls that are deferred as a whole, whatever they do inside.

A module of the model, a step of an optimizer, `zero_grad`, a backward pass and the clipping of gradients are one call
each for live Python. All other tensor work is deferred call by call, as PyTorch's functions are called.
"""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.utils.checkpoint as torch_checkpoint
from torch.nn.utils import clip_grad, stateless

from .._base.wrapped import Wrapped

_functional_call: Any = stateless._functional_call
_own_checkpoint: Any = torch_checkpoint._checkpoint_without_reentrant_generator
_own_reentrant = torch_checkpoint.CheckpointFunction
_BACKWARD = (torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad)


class ModuleCall(NamedTuple):
    """A call of one of the model's modules."""

    module: torch.nn.Module
    own: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module."""
        return self.own(self.module, *args, **kwargs)


class CheckpointCall(NamedTuple):
    """A checkpoint of one of the model's modules."""

    module: torch.nn.Module
    own: Callable[..., Any]
    preserves_random_state: bool
    contexts: Callable[..., Any]
    reentrant: bool

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module, which runs again in the backward pass."""
        options: dict[str, Any] = {} if self.reentrant else {"context_fn": self.contexts}
        return torch_checkpoint.checkpoint(
            functools.partial(self.own, self.module), *args, use_reentrant=self.reentrant,
            preserve_rng_state=self.preserves_random_state, **options, **kwargs,
        )  # fmt: skip


class CheckpointBegins(NamedTuple):
    """What is called from here on, to where the checkpoint ends, runs again in the backward pass."""

    preserves_random_state: bool

    def __call__(self) -> None:
        """Does nothing: whoever calls eagerly may keep what a checkpoint would make again."""


class CheckpointEnds(NamedTuple):
    """Of the checkpoint that began last."""

    def __call__(self) -> None:
        """Does nothing."""


class OptimizerCall(NamedTuple):
    """`step` or `zero_grad` of an optimizer."""

    optimizer: torch.optim.Optimizer
    name: str
    own: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the method."""
        return self.own(*args, **kwargs)


def key_of(function: Any) -> Any:
    """What tells one function from another: equal at two calls if they do the same."""
    if type(function) is ModuleCall:
        return (ModuleCall, id(function.module), type(function.module).__name__)
    if type(function) is CheckpointCall:
        return (CheckpointCall, id(function.module), f"checkpoint of {type(function.module).__name__}", *function[2:])
    if is_checkpoint(function):
        return (type(function), None, type(function).__name__, *function)
    if type(function) is OptimizerCall:
        return (OptimizerCall, id(function.optimizer), f"{type(function.optimizer).__name__}.{function.name}")
    return function


def name_of(key: Any) -> str:
    """In a word, the function that a key stands for."""
    return str(key[2] if isinstance(key, tuple) else getattr(key, "__name__", key))


def is_atom(function: Any) -> bool:
    """Whether code of modules runs in it, which may look at Python."""
    return type(function) in (ModuleCall, CheckpointCall) or function is _functional_call


def is_checkpoint(function: Any) -> bool:
    """Whether it is where a checkpoint begins or ends."""
    return type(function) in (CheckpointBegins, CheckpointEnds)


def sees_python(function: Any) -> bool:
    """Whether code of modules, hooks or autograd functions runs in it."""
    return is_atom(function) or function in _BACKWARD


def is_step(function: Any) -> bool:
    """Whether it is `optimizer.step`."""
    return type(function) is OptimizerCall and function.name == "step"


class Atoms:
    """While open, atoms on this thread are given to `defer(function, args, kwargs)` instead of being called.

    It opens again and again. What it puts in place of functions is made once.
    """

    def __init__(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        defer: Callable[..., Any],
        before: Callable[[str], None],
        before_other: Callable[[torch.nn.Module], None],
        is_open: Callable[[], bool],
    ) -> None:
        self._thread = 0
        self._modules: Set[int] = frozenset()
        self._defer = defer
        self._before = before  # called with a name for what must see real tensors
        self._is_open = is_open  # whether anything is deferred now
        self._before_other = before_other  # called with a module that is no atom
        self._checkpointed: Any = None  # the module whose checkpoint begins, and options
        self._methods = [_Method(o, name, self._method) for o in optimizers for name in ("step", "zero_grad")]
        self._functions = Wrapped(
            (torch.nn.Module, "_call_impl", self._module_call),  # behind `__call__`, which takes long to replace
            (torch.nn.utils, "clip_grad_norm_", self._clip),
            (clip_grad, "clip_grad_norm_", self._clip),
            (torch.autograd, "backward", self._function),
            (stateless, "_functional_call", lambda _: self._function(_functional_call)),
            (torch_checkpoint, "_checkpoint_without_reentrant_generator", lambda _: self._checkpoint),
            (torch_checkpoint, "CheckpointFunction", lambda _: self._reentrant_checkpoint()),
        )

    @contextmanager
    def opened(self, modules: Set[int]) -> Iterator[None]:
        """Opens it; `modules` are the ids of the modules that are atoms."""
        self._thread = threading.get_ident()
        self._modules = modules
        self._checkpointed = None
        for method in self._methods:
            method.look()
        self.put(in_place=True)
        try:
            with self._functions:
                yield
        finally:
            self.put(in_place=False)

    def put(self, *, in_place: bool) -> None:
        """Methods of optimizers are ours, or their own."""
        for method in self._methods:
            attributes = method.optimizer.__dict__
            if in_place:
                attributes[method.name] = method.deferred
            elif method.own is None:
                attributes.pop(method.name, None)
            else:
                attributes[method.name] = method.own

    def _module_call(self, own: Callable[..., Any]) -> Callable[..., Any]:
        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread:
                return own(module, *args, **kwargs)
            if id(module) not in self._modules:
                self._before_other(module)
                return own(module, *args, **kwargs)
            checkpoint, self._checkpointed = self._checkpointed, None
            if checkpoint is not None and checkpoint[0] is module:
                return self._defer(CheckpointCall(module, own, *checkpoint[1:]), args, kwargs)
            return self._defer(ModuleCall(module, own), args, kwargs)

        return call

    def _checkpoint(
        self,
        function: Callable[..., Any],
        preserve_rng_state: bool = True,
        context_fn: Callable[..., Any] = torch_checkpoint.noop_context_fn,
        *args: Any,
        **kwargs: Any,
    ) -> Iterator[None]:
        """In place of PyTorch's generator, which is around a checkpoint's first run."""
        if not self._defers_checkpoint(function, context_fn is torch_checkpoint.noop_context_fn):
            yield from _own_checkpoint(function, preserve_rng_state, context_fn, *args, **kwargs)
            return
        if id(function) not in self._modules:
            self._defer(CheckpointBegins(preserve_rng_state), (), {})
            yield
            self._defer(CheckpointEnds(), (), {})
            return
        self._checkpointed = (function, preserve_rng_state, context_fn, False)
        try:
            yield
        finally:
            self._checkpointed = None

    def _reentrant_checkpoint(self) -> type:
        atoms = self

        class Reentrant:
            """In place of PyTorch's autograd function."""

            @staticmethod
            def apply(function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
                if not atoms._defers_checkpoint(function, False):
                    return _own_reentrant.apply(function, preserve_rng_state, *args)  # type: ignore[no-untyped-call]
                atoms._checkpointed = (function, preserve_rng_state, torch_checkpoint.noop_context_fn, True)
                return function(*args)

        return Reentrant

    def _defers_checkpoint(self, function: Callable[..., Any], by_its_calls: bool) -> bool:
        """Whether a checkpoint is deferred: that of a module as a whole, or `by_its_calls`."""
        if threading.get_ident() != self._thread or not self._is_open():
            return False
        if by_its_calls or id(function) in self._modules:
            return True
        self._before("a checkpoint of a function that is no module of the model")
        return False

    def _function(
        self, own: Callable[..., Any], prepared: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None = None
    ) -> Callable[..., Any]:
        @functools.wraps(own)
        def call(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread:
                return own(*args, **kwargs)
            return self._defer(own, args if prepared is None else prepared(args), kwargs)

        return call

    def _clip(self, own: Callable[..., Any]) -> Callable[..., Any]:
        return self._function(own, _listed)

    def _method(self, optimizer: torch.optim.Optimizer, name: str, own: Callable[..., Any]) -> types.MethodType:
        @functools.wraps(own)
        def call(_: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread:
                return own(*args, **kwargs)
            return self._defer(OptimizerCall(optimizer, name, own), args, kwargs)

        return types.MethodType(call, optimizer)  # a scheduler that is made in the step wraps its `__func__`


class _Method:
    """A method of an optimizer that is replaced in this one object."""

    def __init__(self, optimizer: torch.optim.Optimizer, name: str, wrap: Callable[..., types.MethodType]) -> None:
        self.optimizer = optimizer
        self.name = name
        self.own: Any = None  # in the object's own dictionary, if it is there
        self.deferred: Any = None
        self._wrap = wrap
        self._wrapped: Any = None  # the method that `deferred` was made for

    def look(self) -> None:
        """Which method it is now: a scheduler may have put another one there."""
        self.own = self.optimizer.__dict__.get(self.name)
        method = getattr(self.optimizer, self.name)
        if method == self._wrapped:
            functools.update_wrapper(self.deferred.__func__, method, assigned=())
        else:
            self._wrapped, self.deferred = method, self._wrap(self.optimizer, self.name, method)


def _listed(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Parameters may come as a generator."""
    return (args[0] if isinstance(args[0], torch.Tensor) else list(args[0]), *args[1:]) if args else args
