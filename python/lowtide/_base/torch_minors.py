"""What differs between the minor versions of PyTorch that are tested, so that nothing else asks for a version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def of_class(method: Any) -> Callable[..., Any]:
    """What a class has as a class method, as a function of the class and its arguments.

    `torch.autograd.Function.apply` is written in Python up to 2.13, and in C from 2.14 on.
    """
    if isinstance(method, classmethod):
        return method.__func__
    return lambda owner, *args, **kwargs: method.__get__(None, owner)(*args, **kwargs)
