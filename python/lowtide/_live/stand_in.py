"""Tensors without data, which live Python gets for results that are not computed yet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch


class Form(NamedTuple):
    """What Python may ask of a tensor without its data."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    is_leaf: bool

    @staticmethod
    def of(tensor: torch.Tensor) -> Form:
        """The form of a tensor."""
        placed = (tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)
        return Form(*placed, tensor.requires_grad, tensor.is_leaf)


_here = threading.local()


@contextmanager
def operators_deferred(defer: Callable[..., Any], before: Callable[[str], None]) -> Iterator[None]:
    """While open, operators that are called with stand-ins on this thread are given to `defer(operator, ...)`.

    `before` is called with a name for what must see real tensors, and makes them.
    """
    own = getattr(_here, "defer", None), getattr(_here, "before", None)
    _here.defer, _here.before = defer, before
    try:
        yield
    finally:
        _here.defer, _here.before = own


class StandInUsedError(RuntimeError):
    """A stand-in has reached code that needs its data, by a way that nobody watches."""


class StandIn(torch.Tensor):
    """Shape, strides, dtype and device. Whatever gets at it while it is one is either watched or raises."""

    number: int  # of the variable that it stands for, in the log of its program
    form: Form

    @staticmethod
    def __new__(cls, number: int, form: Form) -> StandIn:
        one: StandIn = torch.Tensor._make_wrapper_subclass(
            cls, form.shape, strides=form.strides, dtype=form.dtype, device=form.device
        )
        one.number = number
        one.form = form
        return one

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        """Of one that the step has not kept, because no code read it again, what is known is shown."""
        if getattr(_here, "defer", None) is None:
            form = f"shape={self.form.shape}, dtype={self.form.dtype}"
            return f"tensor(..., {form}, not kept by the planned step: no code reads it again)"
        return str(torch.Tensor.__repr__(self))  # type: ignore[no-untyped-call]

    def as_subclass(self, cls: Any) -> Any:
        """PyTorch's own does not ask function modes."""
        if getattr(_here, "before", None) is not None:
            _here.before("a class of tensors")
        return torch.Tensor.as_subclass(self, cls)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """An operator that is called by itself, past PyTorch's functions: deferred as well, or there is no data."""
        defer = getattr(_here, "defer", None)
        if defer is None:
            raise StandInUsedError(f"{func} needs a tensor that the planned step has not computed yet")
        return defer(func, args, kwargs or {})


# As messages of Python and of the user name it.
StandIn.__name__ = StandIn.__qualname__ = "Tensor"
StandIn.__module__ = "torch"


def become(stand_in: StandIn, value: torch.Tensor) -> None:
    """What holds the stand-in holds the value from now on: the same Python object, with other insides."""
    is_parameter = stand_in.__dict__.pop("_is_param", False)  # as `nn.Parameter` marks what is no plain tensor
    stand_in.__class__ = torch.nn.Parameter if is_parameter else type(value)  # type: ignore[assignment]
    del stand_in.__dict__["number"], stand_in.__dict__["form"]  # attributes that live Python has set stay
    torch._C._swap_tensor_impl(stand_in, value)
