"""Memory of a step beside its plan: what an optimizer's own rule allocates, and tensors that no operator touches.

A rule that runs as it is, opaquely for one parameter or eagerly after the program, asks PyTorch for memory while the
arena is there. How much is found before the first step, by running the rule on fake tensors. What that does not see
(hooks, workspaces inside operators) is measured in each step under a budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import Parameter

from .. import _core, _torch
from .._base.random_states import read_random_states, set_random_states
from .._base.stock_optimizers import is_stock
from .._optimizer.reach import RuleReach
from .._optimizer.snapshot import Snapshot, containers_of, run_rule
from .living import Living
from .swapping import is_away


@dataclass(frozen=True, slots=True)
class Beside:
    """Bytes of a step that its graph does not have."""

    resident: int = 0  # tensors of the model and of its optimizers that are there
    update: int = 0  # the most that rules allocate which run as they are, new state included
    reserved: int = 0  # what the device's allocator has beyond its blocks, and of others

    @property
    def total(self) -> int:
        """All of them, as if they were there at once."""
        return self.resident + self.update


def eager_bytes(graph: _core.Graph, beside: Beside) -> int:
    """What eager needs for a step: the one whole of which memory budgets are shares.

    While the optimizer's own rule allocates, the rest of the step is over.
    """
    return beside.resident + max(graph.eager_bytes, graph.resident_bytes + beside.update)


class PeakMeter:
    """Counts the most bytes that are allocated at once under it, the arena's included; nothing if not `wanted`."""

    def __init__(self, wanted: bool, device: torch.device) -> None:
        self._meter = _torch.Meter(device) if wanted else None
        self.bytes = 0
        self.left = 0  # of them, behind it: not the arena's

    def __enter__(self) -> PeakMeter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._meter is not None:
            self.left, _arena, self.bytes, _count = self._meter.read()
            self._meter.close()


def resident_beside(
    model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer], bound: Iterable[torch.Tensor | None]
) -> int:
    """Bytes of the model and of the optimizers' state, but for what is `bound` to buffers of the graph."""
    states = (state.values() for optimizer in optimizers for state in optimizer.state.values())
    there = [*model.parameters(), *model.buffers(), *(v for values in states for v in values)]
    known = {_address(tensor) for tensor in bound if tensor is not None}
    found = {_address(t): t.untyped_storage().nbytes() for t in there if _is_plain(t) and _address(t) not in known}
    return sum(found.values())


def update_bytes(optimizer: torch.optim.Optimizer, turns: Sequence[Sequence[Parameter]]) -> int:
    """The most that its rule allocates in two steps, the first of which may make state.

    Each step calls the rule once for each of the `turns`, with gradients for the parameters in it. 0 if the rule does
    not run on fake tensors, or might change more in Python than a copy of the optimizer: what it takes is then seen in
    the first step.
    """
    if not getattr(type(optimizer).step, "hooked", False):
        return 0
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    living = Living()
    random_state = read_random_states()
    try:
        python_kept = nullcontext() if is_stock(optimizer) else RuleReach(optimizer).kept()
        clones = [_on_fakes(optimizer, parameters, fake_mode) for parameters in turns]
        with python_kept, fake_mode, living:
            for _ in range(2):
                for clone in clones:
                    run_rule(clone)
    except Exception:  # whatever a rule does on tensors without values
        return 0
    finally:
        set_random_states(random_state)
    return living.most


def _on_fakes(
    optimizer: torch.optim.Optimizer, parameters: Sequence[Parameter], fake_mode: FakeTensorMode
) -> torch.optim.Optimizer:
    """A copy of the optimizer over fake parameters, of which the given ones have gradients, and fake state."""
    updated = set(map(id, parameters))
    fakes: dict[int, Parameter] = {}

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        with fake_mode:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)

    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) in updated:
                stand_in = fakes[id(parameter)] = Parameter(fake(parameter), requires_grad=parameter.requires_grad)
                stand_in.grad = fake(parameter)
    groups = [
        {**group, "params": [fakes[id(p)] for p in group["params"] if id(p) in fakes]}
        for group in optimizer.param_groups
    ]
    state: dict[torch.Tensor, dict[str, Any]] = {}
    for parameter, own in optimizer.state.items():
        if id(parameter) in fakes:
            state[fakes[id(parameter)]] = {k: fake(v) if isinstance(v, torch.Tensor) else v for k, v in own.items()}
    return Snapshot(optimizer, containers_of(optimizer)).clone(groups, state)


def _is_plain(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_meta:
        return False
    return not is_away(value)


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
