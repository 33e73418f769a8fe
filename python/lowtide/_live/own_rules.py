"""What a deferred `optimizer.step()` would change in Python, where live Python could look before it is made."""

from __future__ import annotations

import dis
import functools
import inspect
import logging
import os
import sys
import types
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from .._base.sources import OURS
from .._base.stock_optimizers import is_stock
from .._guards.guards import plain_key
from .atoms import OptimizerCall

_OF_TENSORS = frozenset({"data", "grad", "requires_grad"})  # attributes that a rule sets of its parameters
_NOT_STEPS = frozenset(
    {"__init__", "__setstate__", "__getstate__", "__repr__", "zero_grad", "state_dict", "load_state_dict",
     "add_param_group"}
)  # fmt: skip
_OF_ALL = frozenset({"defaults", "state", "param_groups", "step", "zero_grad"})  # attributes of every optimizer
_WAYS_TO_SET = frozenset({"setattr", "vars", "__dict__", "globals", "__setattr__"})
_FIXED = (types.ModuleType, str, bytes, torch.dtype, logging.Logger)  # what is no place to note something in
_TORCH = os.path.dirname(torch.__file__) + os.sep


class OwnRules:
    """Of the optimizers of a step, those whose rule is not PyTorch's own."""

    def __init__(self, optimizers: list[torch.optim.Optimizer]) -> None:
        own = [optimizer for optimizer in optimizers if not is_stock(optimizer)]
        self._own = frozenset(map(id, own))
        self._at_once = frozenset(
            id(one) for one in own if _notes_something(type(one)) or _has_no_groups(one) or _keeps_objects(one)
        )

    def __contains__(self, optimizer: object) -> bool:
        return id(optimizer) in self._own

    def is_made_at_once(self, call: OptimizerCall) -> bool:
        """Whether Python could see that a step is not made yet: attributes and hooks cannot be watched."""
        optimizer: Any = call.optimizer
        if id(optimizer) in self._at_once:
            return True
        if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
            return True
        step = call.own
        is_plain = getattr(step, "__func__", None) is type(optimizer).step or hasattr(step, "_wrapped_by_lr_sched")
        return not is_plain


def result_is_used(frame: FrameType | None) -> bool:
    """Whether the code that has called a step does anything with what it gives; PyTorch's own hands it on."""
    while frame is not None and frame.f_code.co_filename.startswith((OURS, _TORCH)):
        frame = frame.f_back
    return frame is not None and not _is_dropped(frame.f_code, frame.f_lasti)


@functools.lru_cache(maxsize=1024)
def _is_dropped(code: types.CodeType, last: int) -> bool:
    """Whether what the instruction at `last` gives is thrown away."""
    following = (one for one in dis.get_instructions(code) if one.offset > last and one.opname != "CACHE")
    return next(following).opname == "POP_TOP"


def _notes_something(cls: type) -> bool:
    """Whether methods set attributes or variables, or see objects in which they could note something."""
    seen: set[int] = set()
    waiting = list(_methods(cls))
    while waiting:
        function = waiting.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        codes = list(_nested(function.__code__))
        names = {name for code in codes for name in code.co_names}
        if not names.isdisjoint(_WAYS_TO_SET) or any(map(_stores, codes)):
            return True
        visible = [function.__globals__[name] for name in names if name in function.__globals__]
        visible += inspect.getclosurevars(function).nonlocals.values()
        waiting += [one for one in visible if isinstance(one, types.FunctionType) and not _is_a_librarys(one)]
        if any(not callable(one) and not isinstance(one, _FIXED) and plain_key(one) is None for one in visible):
            return True
    return False


@functools.lru_cache(maxsize=1024)
def _stores(code: types.CodeType) -> bool:
    return any(
        (one.opname == "STORE_ATTR" and one.argval not in _OF_TENSORS)
        or one.opname == "STORE_GLOBAL"
        or (one.opname == "STORE_DEREF" and one.argval in code.co_freevars)
        for one in dis.get_instructions(code)
    )


def _is_a_librarys(function: types.FunctionType) -> bool:
    return function.__module__.partition(".")[0] in ("torch", *sys.stdlib_module_names)


def _methods(cls: type) -> Iterator[types.FunctionType]:
    """All methods that a step may run and that are not PyTorch's own."""
    for base in cls.__mro__[:-1]:
        if base.__module__.partition(".")[0] == "torch":
            continue
        for name, value in vars(base).items():
            function = getattr(value, "__func__", value)
            while hasattr(function, "__wrapped__"):
                function = function.__wrapped__
            if name not in _NOT_STEPS and isinstance(function, types.FunctionType):
                yield function


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _keeps_objects(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it has lists, tables or objects of its own, in which a rule may note something."""
    return any(
        name not in _OF_ALL
        and not name.endswith("_hooks")
        and plain_key(value) is None
        and not isinstance(value, torch.Tensor)
        for name, value in vars(optimizer).items()
    )


def _has_no_groups(optimizer: torch.optim.Optimizer) -> bool:
    """Whether nothing can be put in place of its groups: a class may make a property of them."""
    return "param_groups" not in vars(optimizer) or isinstance(getattr(type(optimizer), "param_groups", None), property)
