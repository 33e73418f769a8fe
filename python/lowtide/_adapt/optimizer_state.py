"""How much memory an optimizer will take for its state when it first steps."""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import Any
from weakref import WeakKeyDictionary

import torch

from .memory import storage_bytes

_ELEMENTS = 3  # of the parameter that is tried

_found: WeakKeyDictionary[torch.optim.Optimizer, dict[Any, tuple[int, int]]] = WeakKeyDictionary()


def state_tensors(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """What its state holds now."""
    return [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]


def state_to_come(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of state for the parameters that have none yet, from what the rule makes for a small one of each group."""
    optimizer = _innermost(optimizer)
    if not _has_groups(optimizer):  # a copy would share them
        return 0
    return sum(_state_of_group(optimizer, group) for group in optimizer.param_groups)


def _innermost(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The one that has the groups: others, such as Accelerate's, are around it and show its own."""
    found = optimizer
    while not _has_groups(found) and isinstance(inner := getattr(found, "optimizer", None), torch.optim.Optimizer):
        found = inner
    return found


def _has_groups(optimizer: torch.optim.Optimizer) -> bool:
    return "param_groups" in vars(optimizer)


def _state_of_group(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> int:
    new = (p for p in group["params"] if p.requires_grad and p not in optimizer.state)
    first = next(new, None)
    if first is None:
        return 0
    for_each, for_an_element = _known_or_tried(optimizer, group, first)
    if not for_each and not for_an_element:
        return 0
    return sum(for_each + for_an_element * p.numel() for p in (first, *new))


def _known_or_tried(optimizer: torch.optim.Optimizer, group: dict[str, Any], like: torch.Tensor) -> tuple[int, int]:
    """What was found by trying, which is done once for each optimizer and way of setting up a group."""
    known = _found.setdefault(optimizer, {})
    way = (like.dtype, like.device, *((name, _switch(value)) for name, value in group.items() if name != "params"))
    if way not in known:
        known[way] = _tried(optimizer, group, like)
    return known[way]


def _switch(value: object) -> object:
    """What of an option decides which state there is: rates and momenta change all the time, but for being 0."""
    return bool(value) if value is None or isinstance(value, (bool, int, float)) else type(value)


def _tried(optimizer: torch.optim.Optimizer, group: dict[str, Any], like: torch.Tensor) -> tuple[int, int]:
    """Bytes that the state takes for a parameter, and for each of its elements."""
    small = torch.nn.Parameter(torch.zeros(_ELEMENTS, dtype=like.dtype, device=like.device))
    small.grad = torch.zeros_like(small)
    twin = copy.copy(optimizer)
    twin.param_groups = [{**group, "params": [small]}]
    twin.state = defaultdict(dict)
    try:
        _step_without_hooks(type(optimizer))(twin)
    except Exception:  # a rule that cannot do with one small parameter: its state is seen when it is there
        return 0, 0
    made = state_tensors(twin)
    as_large = [t for t in made if t.numel() == _ELEMENTS]
    others = storage_bytes(t for t in made if t.numel() != _ELEMENTS)
    return others, sum(t.element_size() for t in as_large)


def _step_without_hooks(kind: type[torch.optim.Optimizer]) -> Any:
    step: Any = kind.step
    return step.__wrapped__ if getattr(step, "hooked", False) else step
