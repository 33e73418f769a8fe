"""The Python side of an optimizer, kept so that a step can be undone or rehearsed on a copy.

Tensors and per-parameter state are not part of it: nobody but the program writes those.
"""

from __future__ import annotations

import operator
import types
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .._capture.said import Sayings

_NOT_CONTENT = ("param_groups", "state")


def containers_of(optimizer: torch.optim.Optimizer) -> list[Any]:
    """The lists, dicts and sets that the optimizer keeps in its attributes and groups, nested ones included."""
    found: dict[int, Any] = {}

    def visit(value: Any) -> None:
        if isinstance(value, (list, dict, set)) and id(value) not in found:
            found[id(value)] = value
        elif not isinstance(value, tuple):
            return
        for item in value.values() if isinstance(value, dict) else value:
            visit(item)

    for name, value in vars(optimizer).items():
        if name not in _NOT_CONTENT and not name.endswith("_hooks"):
            visit(value)
    for group in optimizer.param_groups:
        for key, value in group.items():
            if key != "params":
                visit(value)
    return list(found.values())


class Snapshot:
    """Attributes, groups and containers of an optimizer at one moment; shallow copies, a few microseconds."""

    __slots__ = ("_contents", "_states", "attributes", "groups", "optimizer")

    def __init__(self, optimizer: torch.optim.Optimizer, containers: list[Any]) -> None:
        self.optimizer = optimizer
        self.attributes = dict(vars(optimizer))
        self.groups = [(group, dict(group)) for group in optimizer.param_groups]
        self._contents = [(container, container.copy()) for container in containers]
        self._states = dict(optimizer.state)

    def restore(self) -> None:
        """Puts everything back, identities included; what is inside the state of a parameter stays as it is."""
        attributes = vars(self.optimizer)
        attributes.clear()
        attributes.update(self.attributes)
        for group, content in self.groups:
            group.clear()
            group.update(content)
        for container, content in self._contents:
            if isinstance(container, list):
                container[:] = content
            else:
                container.clear()
                container.update(content)
        state = self.optimizer.state
        if len(state) != len(self._states) or any(map(operator.is_not, state.values(), self._states.values())):
            state.clear()
            state.update(self._states)

    def clone(self, groups: list[dict[str, Any]], state: dict[Tensor, dict[str, Any]]) -> torch.optim.Optimizer:
        """An optimizer of the same class as it was at this moment, over other groups and state; hooks left out."""
        contents = {id(container): content for container, content in self._contents}
        clone: torch.optim.Optimizer = object.__new__(type(self.optimizer))
        attributes = vars(clone)
        for name, value in self.attributes.items():
            if name.endswith("_hooks"):
                attributes[name] = OrderedDict()
            elif isinstance(value, types.MethodType) and value.__self__ is self.optimizer:
                attributes[name] = types.MethodType(value.__func__, clone)
            elif name not in ("step", *_NOT_CONTENT):  # an own `step` is a scheduler's wrapper, bound to the original
                attributes[name] = separate(value, contents)
        attributes["param_groups"] = [
            {key: value if key == "params" else separate(value, contents) for key, value in group.items()}
            for group in groups
        ]
        attributes["state"] = defaultdict(dict, state)
        return clone

    def separated(self) -> list[dict[str, Any]]:
        """Copies of the attributes and of each group, containers as they were at this moment."""
        contents = {id(container): content for container, content in self._contents}
        tables = [self.attributes, *(content for _, content in self.groups)]
        return [
            {key: item if key in (*_NOT_CONTENT, "params") else separate(item, contents) for key, item in table.items()}
            for table in tables
        ]

    def new_tensors(self) -> list[Tensor]:
        """Tensors that have come into the optimizer's lists, dicts and sets since."""
        known = {id(item) for _, content in self._contents for item in _items(content)}
        found = (item for container in containers_of(self.optimizer) for item in _items(container))
        return [item for item in found if isinstance(item, Tensor) and id(item) not in known]

    def groups_with(self, index: int, shown: dict[str, Any], *, stock: bool) -> list[dict[str, Any]]:
        """Groups for a clone in which only `shown` has parameters, in place of group `index`.

        A rule that is not PyTorch's own may count its groups, so the others are there, empty.
        """
        if stock:
            return [shown]
        contents = [{**content, "params": []} for _, content in self.groups]
        contents[index] = shown
        return contents


def separate(value: Any, contents: dict[int, Any] | None = None) -> Any:
    """A copy of nested lists, dicts and sets that shares their leaves; `contents` may say what a container held."""
    if isinstance(value, (list, dict, set)):
        held: Any = contents.get(id(value), value) if contents else value
        if isinstance(value, dict):
            copy: Any = held.copy()
            copy.update((key, separate(item, contents)) for key, item in held.items())
            return copy
        return type(value)(separate(item, contents) for item in held)
    return value


def _items(container: Any) -> Iterator[Any]:
    yield from container
    if isinstance(container, dict):
        yield from container.values()


def run_rule(clone: torch.optim.Optimizer) -> None:
    """Calls the step of a clone below the hooks and the profiler's mark; what it says is for the real one to say."""
    step = type(clone).step
    with Sayings():
        getattr(step, "__wrapped__", step)(clone)
