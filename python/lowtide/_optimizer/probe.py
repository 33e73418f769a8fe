"""The probe: may an update rule run parameter by parameter, with numbers taken from a twin?

The rule runs on two throw-away twins per class, under a mode that follows each value to its sources. What makes it
unfit: a call mixes values of two parameters (global-norm rules); Python reads a value that depends on a gradient, a
parameter or data in the state (`.item()`, `if`); a call writes a tensor that several parameters share; two twins leave
other Python numbers behind than one (a counter per parameter). The user's objects are not touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .._capture.recorder import ITEM, LIFT
from .classes import ParameterClass, make_twin
from .ledger import NotExpressible, facts_of, rule_line
from .snapshot import Snapshot, run_rule

SHARED = -1  # owner of hyper-parameter tensors and attributes such as `found_inf`
_COUNTABLE = (int, float, str, bool)


def probe(before: Snapshot, classes: Sequence[ParameterClass]) -> set[str]:
    """Raises `NotExpressible`, or names the 0-dim state that turned out to hold data; starts from `before`."""
    first = {one.group: one for one in reversed(classes)}
    small, _ = _rehearse(before, list(first.values()), twins=1)
    large, mode = _rehearse(before, classes, twins=2)
    shown = [one.group for one in classes] + [index for index in range(len(before.groups)) if index not in first]
    counted = _differing(vars(small), vars(large))
    for index, group in enumerate(small.param_groups):
        counted = counted or _differing(group, large.param_groups[sorted(shown).index(index)])
    if counted is not None:
        raise NotExpressible(f"{mode.optimizer}.step() changes {counted!r} anew for each parameter")
    return mode.data_state(large)


def _rehearse(
    before: Snapshot, classes: Sequence[ParameterClass], twins: int
) -> tuple[torch.optim.Optimizer, _Provenance]:
    """Runs the rule on a clone with so many twins in each class."""
    mode = _Provenance(type(before.optimizer).__name__)
    groups: list[dict[str, Any]] = []
    states: dict[Tensor, dict[str, Any]] = {}
    for index, (_, content) in enumerate(before.groups):
        shared = {key: mode.share(value) for key, value in content.items() if isinstance(value, Tensor)}
        cast = [one for one in classes if one.group == index]
        for one in cast:
            own_lists = {key: entry * twins for key, entry in one.own_entries.items()}
            parameters = []
            for _ in range(twins):
                twin = make_twin(one.twin.dim(), one.members[0])
                state = one.state_now(before.optimizer.state)
                if state is not None:
                    state = {key: item.clone() if isinstance(item, Tensor) else item for key, item in state.items()}
                    states[twin] = state
                mode.adopt(one, twin, state or {})
                parameters.append(twin)
            groups.append({**content, **shared, **own_lists, "params": parameters})
        if not cast:
            groups.append({**content, **shared, "params": []})
    clone = before.clone(groups, states)
    for group in clone.param_groups:
        if "param_names" in group:
            group["param_names"] = _Names(mode.optimizer, group["param_names"])
    for name, value in list(vars(clone).items()):
        if isinstance(value, Tensor):
            setattr(clone, name, mode.share(value))
    try:
        with mode:
            run_rule(clone)
    except NotExpressible:
        raise
    except Exception as error:
        raise NotExpressible(f"{mode.optimizer}.step() fails on parameters of one element: {error!r}") from error
    if mode.refusal is not None:  # which the rule has caught
        raise mode.refusal
    return clone, mode


def _differing(small: dict[str, Any], large: dict[str, Any]) -> str | None:
    """A number that depends on how many parameters there are."""
    for name, value in large.items():
        if isinstance(value, _COUNTABLE) and value != small.get(name):
            return name
    return None


class _Provenance(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows storages: whose values went into each, and whether any of them is data."""

    def __init__(self, optimizer: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.optimizer = optimizer
        self._owners: dict[int, frozenset[int]] = {}
        self._data: set[int] = set()
        self._read: dict[int, str] = {}  # storages whose value Python has seen, and where
        self._held: list[Any] = []
        self._twins = 0
        self.refusal: NotExpressible | None = None

    # -- roots -----------------------------------------------------------------------------------------------------

    def adopt(self, one: ParameterClass, twin: Tensor, state: dict[str, Any]) -> None:
        """Makes a twin's tensors known as its own."""
        assert twin.grad is not None
        data = [twin, twin.grad]
        data += [state[origin[1]] for origin in one.origins[2 : one.data_roots]]
        counters = [state[origin[1]] for origin in one.origins[one.data_roots :]]
        for tensor in data + counters:
            self._owners[self._storage(tensor)] = frozenset([self._twins])
        self._data.update(map(self._storage, data))
        self._twins += 1

    def share(self, tensor: Tensor) -> Tensor:
        """A stand-in for a tensor that belongs to a group or to the optimizer."""
        copy = tensor.detach().clone()
        self._owners[self._storage(copy)] = frozenset([SHARED])
        return copy

    def data_state(self, clone: torch.optim.Optimizer) -> set[str]:
        """Keys of 0-dim state that depends on data after the step."""
        return {
            key
            for state in clone.state.values()
            for key, value in state.items()
            if isinstance(value, Tensor) and value.dim() == 0 and value.untyped_storage()._cdata in self._data
        }

    def _storage(self, tensor: Tensor) -> int:
        self._held.append(tensor)
        return int(tensor.untyped_storage()._cdata)

    # -- calls -----------------------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        facts = facts_of(func)
        if not facts.recorded:
            return func(*args, **kwargs)
        if facts.random:
            raise self._refusal(f"draws random numbers with {facts.name}")
        if "c10d" in func.namespace:
            raise self._refusal(f"communicates with {facts.name}")
        if func is LIFT:
            out = func(*args, **kwargs)
            self._owners[self._storage(out)] = frozenset()
            return out
        for tensor in _tensors((args, *kwargs.values())):
            if self._storage(tensor) not in self._owners:
                raise self._refusal(
                    f"calls {facts.name} on a tensor that is neither a parameter of its groups, a gradient, state "
                    "nor made from them"
                )
        if func is ITEM:
            self._reads(args[0])
            return func(*args, **kwargs)
        written = facts.written_in(args, kwargs)
        out = func(*args, **kwargs)
        results = out if isinstance(out, (list, tuple)) else [out]
        if any(isinstance(result, (bool, int, float)) for result in results):
            raise self._refusal(f"asks {facts.name} for a Python number that depends on tensors")
        for sources, targets in _flows(facts.name, [*args, *kwargs.values()], written, results):
            self._flow(facts.name, sources, targets, written)
        return out

    def _reads(self, tensor: Tensor) -> None:
        storage = self._storage(tensor)
        if storage in self._data:
            raise self._refusal("reads a value that depends on data, with .item(), bool() or `if`")
        self._read[storage] = rule_line()

    def _flow(self, name: str, sources: list[Tensor], targets: list[Tensor], written: list[Any]) -> None:
        owners = frozenset().union(*(self._owners.get(self._storage(source), ()) for source in sources))
        if len(owners - {SHARED}) > 1:
            raise self._refusal(f"mixes the values of several parameters in {name}")
        data = any(self._storage(source) in self._data for source in sources)
        for target in targets:
            storage = self._storage(target)
            if SHARED in self._owners.get(storage, ()) and any(target is tensor for tensor in _tensors(written)):
                raise self._refusal(f"writes a tensor that all parameters of a group share, with {name}")
            self._owners[storage] = self._owners.get(storage, frozenset()) | (owners - {SHARED})
            if data:
                self._data.add(storage)
                if storage in self._read:
                    raise self._refusal(f"makes a value depend on data that it reads at {self._read[storage]}")

    def _refusal(self, reason: str) -> NotExpressible:
        self.refusal = NotExpressible(f"{self.optimizer}.step() {reason} ({rule_line()})")
        return self.refusal


class _Names(list[str]):
    """The names of a group's parameters; a rule that looks at them treats each parameter in its own way."""

    def __init__(self, optimizer: str, names: list[str]) -> None:
        super().__init__(names)
        self._optimizer = optimizer

    def _read(self, *_: Any) -> Any:
        raise NotExpressible(f"{self._optimizer}.step() goes by the names of parameters ({rule_line()})")

    __iter__ = __getitem__ = __contains__ = index = _read


def _tensors(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    return [tensor for item in tree for tensor in _tensors(item)] if isinstance(tree, (list, tuple)) else []


def _flows(
    name: str, arguments: list[Any], written: list[Any], results: Sequence[Any]
) -> list[tuple[list[Tensor], list[Tensor]]]:
    """What flows where in a call: all into all, or place by place in the list operators of PyTorch's optimizers."""
    lists = [argument for argument in arguments if isinstance(argument, (list, tuple)) and _tensors(argument)]
    if not lists or not name.startswith(("aten._foreach_", "aten._fused_")):
        return [(_tensors(arguments), _tensors(written) + _tensors(results))]
    single = [argument for argument in arguments if isinstance(argument, Tensor)]
    targets = [one for one in written if isinstance(one, (list, tuple))]
    return [
        (single + _tensors(sources), _tensors(made))
        for sources, made in zip_longest(zip_longest(*lists), zip_longest(*targets, results), fillvalue=())
    ]
