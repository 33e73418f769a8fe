"""How much memory an optimizer will take for its state when it first steps."""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import Any

import torch

_ELEMENTS = 3  # of the parameter that is tried


def state_tensors(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """What its state holds now."""
    return [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]


def state_to_come(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of state for the parameters that have none yet, from what the rule makes for a small one of each group."""
    total = 0
    for group in optimizer.param_groups:
        new = [p for p in group["params"] if p.requires_grad and p not in optimizer.state]
        if new:
            for_each, for_an_element = _tried(optimizer, group, new[0])
            total += sum(for_each + for_an_element * p.numel() for p in new)
    return total


def _tried(optimizer: torch.optim.Optimizer, group: dict[str, Any], like: torch.Tensor) -> tuple[int, int]:
    """Bytes that the state takes for a parameter, and for each of its elements."""
    small = torch.nn.Parameter(torch.zeros(_ELEMENTS, dtype=like.dtype, device=like.device))
    small.grad = torch.zeros_like(small)
    twin = copy.copy(optimizer)
    twin.param_groups = [{**group, "params": [small]}]
    twin.state = defaultdict(dict)
    try:
        type(optimizer).step(twin)
    except Exception:  # a rule that cannot do with one small parameter: its state is seen when it is there
        return 0, 0
    made = state_tensors(twin)
    as_large = [t for t in made if t.numel() == _ELEMENTS]
    others = sum(t.untyped_storage().nbytes() for t in made if t.numel() != _ELEMENTS)
    return others, sum(t.element_size() for t in as_large)
