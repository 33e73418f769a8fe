"""Parameters that one twin can stand for.

A class is a set of parameters for which `optimizer.step()` must pass the same numbers: same group, dtype and device,
same state keys, equal counters (0-dim state such as `step`, and Python numbers). Its twin is a one-element parameter.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import Parameter

from .ledger import NotExpressible, is_plain

Origin = tuple[str, ...]


@dataclass(slots=True, eq=False)
class ParameterClass:
    """Parameters of one group that share a twin, and the twin's tensors.

    `origins` and `roots` run side by side: parameter, gradient, state that holds data, then counters.
    """

    group: int
    members: list[Parameter]
    twin: Parameter
    gradient: Tensor
    state: dict[str, Any] | None  # the twin's, as a step finds it; None when the members have no entry
    origins: tuple[Origin, ...]
    roots: tuple[Tensor, ...]
    data_roots: int
    counters: list[tuple[Tensor, Tensor]]  # the twin's tensor, and the representative's that it follows
    python_keys: list[str]
    own_entries: dict[str, list[Any]]  # lists in the group that have an entry per parameter, cut to the twin's
    stock: bool  # the rule is PyTorch's own

    def state_now(self, states: Mapping[Tensor, dict[str, Any]]) -> dict[str, Any] | None:
        """A fresh state dict for the twin, counters and Python numbers as the members have them."""
        if self.state is None:
            return None
        for mine, real in self.counters:
            mine.copy_(real)
        state = self.state.copy()
        if self.python_keys:
            real_state = states[self.members[0]]
            for key in self.python_keys:
                state[key] = real_state[key]
        return state

    def attributes_kept(self) -> bool:
        """Whether the twin still has the attributes of the members, and no others; if not, it has them again."""
        there = vars(self.twin)
        hung = there if self.stock else attributes_of(self.members[0])
        if hung.keys() == there.keys() and all(value is there[name] for name, value in hung.items()):
            return True
        there.clear()
        there.update(hung)
        return False


def make_twin(rank: int, like: Parameter, value: float = 0.5) -> Parameter:
    """A one-element parameter with a gradient, and with what the user has hung on the real one."""
    twin = Parameter(torch.full((1,) * rank, value, dtype=like.dtype, device=like.device), like.requires_grad)
    vars(twin).update(attributes_of(like))
    twin.grad = torch.full_like(twin, 0.25)
    return twin


def attributes_of(parameter: Parameter) -> dict[str, Any]:
    """What the user has hung on a parameter; what makes a parameter without data a fake one is left out."""
    if not isinstance(parameter, FakeTensor):
        return vars(parameter)
    return {name: value for name, value in vars(parameter).items() if name not in _FAKE_ATTRIBUTES}


with FakeTensorMode():
    _FAKE_ATTRIBUTES = frozenset(vars(Parameter(torch.empty(0))))


def partition(
    optimizer: torch.optim.Optimizer, updated: Iterable[Parameter], data_state: set[str], *, stock: bool
) -> list[ParameterClass]:
    """The classes of the `updated` parameters, group by group; `data_state` names 0-dim state that is no counter.

    `stock` rules treat all ranks alike and know of no marks; others often decay matrices only.
    """
    chosen = {id(parameter) for parameter in updated}
    classes: list[ParameterClass] = []
    met: set[int] = set()
    memory = _Memory(type(optimizer).__name__, (p for group in optimizer.param_groups for p in group["params"]))
    for index, group in enumerate(optimizer.param_groups):
        members: dict[Hashable, list[Parameter]] = {}
        for place, parameter in enumerate(group["params"]):
            if id(parameter) in met:
                raise NotExpressible(f"{type(optimizer).__name__} has a parameter twice in its groups")
            met.add(id(parameter))
            if id(parameter) in chosen:
                state = optimizer.state.get(parameter)
                _check(optimizer, parameter, state, memory)
                rank = min(parameter.dim(), 1) if stock else parameter.dim()
                marks = () if stock else marks_of(parameter, group, place)
                members.setdefault((rank, _class_key(parameter, state, data_state), marks), []).append(parameter)
        for alike in members.values():
            entries = {} if stock else own_entries(group, place_of(alike[0], group))
            classes.append(_make_class(optimizer, index, alike, data_state, entries, stock))
    return classes


def own_entries(group: Mapping[str, Any], place: int) -> dict[str, list[Any]]:
    """Lists of plain values that run along the group's parameters, cut to the entry at `place`; names left out."""
    length = len(group["params"])
    return {
        key: [value[place]]
        for key, value in group.items()
        if key not in ("params", "param_names")
        and type(value) is list
        and len(value) == length
        and all(map(is_plain, value))
    }


def marks_of(parameter: Parameter, group: Mapping[str, Any], place: int) -> Hashable:
    """What the user has said about this one parameter: attributes on it, its own entries in the group."""
    hung = tuple((name, value if is_plain(value) else id(value)) for name, value in attributes_of(parameter).items())
    return hung, tuple((key, entry[0]) for key, entry in own_entries(group, place).items())


def place_of(parameter: Tensor, group: Mapping[str, Any]) -> int:
    """Where a parameter stands in its group."""
    return next(place for place, one in enumerate(group["params"]) if one is parameter)


def gradient_strides(parameter: Tensor) -> tuple[int, ...]:
    """How autograd lays out a gradient: as the parameter where that is dense, else row-major."""
    if torch.ops.aten.is_non_overlapping_and_dense(parameter):
        return parameter.stride()
    return torch.empty(parameter.shape, device="meta").stride()


def _check(
    optimizer: torch.optim.Optimizer, parameter: Parameter, state: dict[str, Any] | None, memory: _Memory
) -> None:
    name = type(optimizer).__name__
    if type(parameter) not in (Parameter, Tensor, FakeTensor):
        raise NotExpressible(f"{name} updates a {type(parameter).__name__}, which is more than a plain parameter")
    if parameter.grad is not None and parameter.grad.layout is not torch.strided:
        raise NotExpressible(f"{name} updates a parameter of shape {tuple(parameter.shape)} by a sparse gradient")
    for key, value in (state or {}).items():
        if isinstance(value, Tensor):
            if value.layout is not torch.strided:
                raise NotExpressible(f"{name} keeps a tensor of layout {value.layout} in state {key!r}")
            memory.take(value, key)
        elif not is_plain(value):
            raise NotExpressible(f"{name} keeps a Python {type(value).__name__} in state {key!r}")


class _Memory:
    """Which bytes belong to parameters and to their state: no two states may share any."""

    def __init__(self, optimizer: str, parameters: Iterable[Tensor]) -> None:
        self._optimizer = optimizer
        self._taken: dict[int, list[tuple[int, int, str]]] = {}  # by storage: begin, end and whose
        for parameter in parameters:
            if parameter.layout is torch.strided:
                self._add(parameter, "a parameter")

    def take(self, value: Tensor, key: str) -> None:
        """Refuses a state tensor in memory that is taken."""
        begin, end = _extent(value)
        for other_begin, other_end, owner in self._taken.get(value.untyped_storage()._cdata, ()):
            if begin < other_end and other_begin < end:
                raise NotExpressible(f"{self._optimizer} keeps state {key!r} in the memory of {owner}")
        self._add(value, f"state {key!r}")

    def _add(self, value: Tensor, owner: str) -> None:
        self._taken.setdefault(value.untyped_storage()._cdata, []).append((*_extent(value), owner))


def _extent(tensor: Tensor) -> tuple[int, int]:
    """First byte in its storage, and the end of the last; empty ones have none."""
    size = tensor.element_size()
    begin = int(tensor.storage_offset()) * size
    if tensor.numel() == 0:
        return begin, begin
    steps = sum((int(n) - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (steps + 1) * size


def _class_key(parameter: Parameter, state: dict[str, Any] | None, data_state: set[str]) -> Hashable:
    contents: list[Hashable] = []
    for key, value in (state or {}).items():
        if not isinstance(value, Tensor):
            contents.append((key, type(value), value))
        elif value.dim() == 0 and key not in data_state:
            contents.append((key, value.dtype, value.item()))
        else:
            contents.append((key, value.dtype, value.dim() - parameter.dim()))
    return (parameter.dtype, parameter.device, parameter.requires_grad, state is None, tuple(contents))


def _make_class(
    optimizer: torch.optim.Optimizer,
    group: int,
    members: list[Parameter],
    data_state: set[str],
    entries: dict[str, list[Any]],
    stock: bool,
) -> ParameterClass:
    first = members[0]
    ranks = {member.dim() for member in members}
    twin = make_twin(first.dim() if len(ranks) == 1 else 1, first)
    assert twin.grad is not None
    real: dict[str, Any] | None = optimizer.state.get(first)
    state: dict[str, Any] | None = None if real is None else {}
    data: list[str] = []
    counters: list[str] = []
    python_keys: list[str] = []
    for key, value in (real or {}).items():
        assert state is not None
        if not isinstance(value, Tensor):
            state[key] = value
            python_keys.append(key)
        elif value.dim() == 0 and key not in data_state:
            state[key] = value.detach().clone()
            counters.append(key)
        else:
            shape = twin.shape if value.shape == first.shape else (1,) * value.dim()
            state[key] = torch.full(shape, 0.125, device=value.device).to(value.dtype)
            data.append(key)
    kept = state or {}
    return ParameterClass(
        group=group,
        members=members,
        twin=twin,
        gradient=twin.grad,
        state=state,
        origins=(("param",), ("grad",), *(("state", key) for key in data + counters)),
        roots=(twin, twin.grad, *(kept[key] for key in data + counters)),
        data_roots=2 + len(data),
        counters=[(kept[key], (real or {})[key]) for key in counters],
        python_keys=python_keys,
        own_entries=entries,
        stock=stock,
    )


def layout_of(optimizer: torch.optim.Optimizer, classes: Sequence[ParameterClass]) -> Hashable:
    """Who is in which class, and the form of every state tensor: what a composed program relies on."""
    return tuple((one.group, one.twin.dim(), tuple(map(_form(optimizer), one.members))) for one in classes)


def _form(optimizer: torch.optim.Optimizer) -> Any:
    return lambda parameter: (id(parameter), state_form(optimizer.state.get(parameter)))


def state_form(state: dict[str, Any] | None) -> Hashable:
    """Keys of a parameter's state; for tensors dtype, shape and strides as well."""
    if state is None:
        return None
    return tuple(
        (key, value.dtype, tuple(value.shape), value.stride()) if isinstance(value, Tensor) else (key, type(value))
        for key, value in state.items()
    )


class StateWatch:
    """Notices when someone other than the program has touched the optimizer's groups or state.

    Objects are compared by address and counters by version too; it holds nothing alive but the counters.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, classes: Sequence[ParameterClass]) -> None:
        self._optimizer = optimizer
        self._hung = [vars(member) for one in classes if not one.stock for member in one.members]
        self._counters: list[Tensor] = []
        for one in classes:
            keys = [origin[1] for origin in one.origins[one.data_roots :]]
            for member in one.members if keys else ():
                self._counters += map(optimizer.state[member].__getitem__, keys)
        self.settle()

    def settle(self) -> None:
        """Takes the present contents as known."""
        self._addresses = self._contents()
        self._versions = [counter._version for counter in self._counters]

    def changed(self) -> bool:
        """Whether anything differs from what was last settled."""
        return self._contents() != self._addresses or [counter._version for counter in self._counters] != self._versions

    def _contents(self) -> list[int]:
        state, groups = self._optimizer.state, self._optimizer.param_groups
        addresses = [id(state), id(groups), len(groups)]
        for group in groups:
            addresses += (id(group["params"]), len(group["params"]))
        for attributes in self._hung:
            addresses += map(id, chain.from_iterable(attributes.items()))
        addresses += map(id, chain.from_iterable(map(dict.values, state.values())))
        return addresses
