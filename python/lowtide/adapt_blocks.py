"""Which modules of a model are its blocks: the repeated ones, which can be dropped and run again one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import nn

_CONTAINERS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)

Wanted = type[nn.Module] | Sequence[type[nn.Module] | nn.Module | str]


def find_blocks(model: nn.Module, wanted: Wanted | None = None) -> dict[str, nn.Module]:
    """The blocks of a model by name, outermost ones only.

    By default these are members of a ModuleList or Sequential whose class occurs there more than once: the layers of a
    transformer, the bottlenecks of a ResNet. `wanted` names them otherwise, by class, by name or as modules.
    """
    chosen = _members(model) if wanted is None else _wanted(model, wanted)
    blocks = {
        name: module
        for name, module in chosen.items()
        if not any(name != other and name.startswith(other + ".") for other in chosen)
    }
    if not blocks:
        raise ValueError(
            f"{type(model).__qualname__} has no blocks: no class occurs more than once in a ModuleList or Sequential; "
            "name them with blocks=[...], by class, name or module"
        )
    return blocks


def _members(model: nn.Module) -> dict[str, nn.Module]:
    members = {
        f"{name}.{child}" if name else child: module
        for name, container in model.named_modules()
        if isinstance(container, _CONTAINERS)
        for child, module in container.named_children()
        if _does_much(module)
    }
    count = Counter(type(module) for module in members.values())
    repeated = {name: module for name, module in members.items() if count[type(module)] > 1}
    # A stage is a container too; its members are the better blocks.
    return {
        name: module
        for name, module in repeated.items()
        if not isinstance(module, _CONTAINERS)
        or not any(other.startswith(name + ".") and not isinstance(repeated[other], _CONTAINERS) for other in repeated)
    }


def _does_much(module: nn.Module) -> bool:
    """Whether it is made of others and has parameters: running a single layer again saves next to nothing."""
    return any(True for _ in module.children()) and any(True for _ in module.parameters())


def _wanted(model: nn.Module, wanted: Wanted) -> dict[str, nn.Module]:
    kinds = [wanted] if isinstance(wanted, type) else list(wanted)
    classes = tuple(kind for kind in kinds if isinstance(kind, type))
    chosen = {name: module for name, module in model.named_modules() if name and isinstance(module, classes)}
    names = {module: name for name, module in model.named_modules()}
    for kind in kinds:
        if isinstance(kind, str):
            try:
                chosen[kind] = model.get_submodule(kind)
            except AttributeError:
                raise ValueError(f"{type(model).__qualname__} has no module {kind!r}") from None
        elif isinstance(kind, nn.Module):
            if kind not in names:
                raise ValueError(f"this {type(kind).__qualname__} is no module of the {type(model).__qualname__}")
            chosen[names[kind]] = kind
    return chosen


def tensors_in(value: object) -> list[torch.Tensor]:
    """The tensors in a structure of arguments or results, in order."""
    found: list[torch.Tensor] = []
    _collect(value, found, set())
    return found


def _collect(value: object, found: list[torch.Tensor], seen: set[int]) -> None:
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, dict):
        _collect_all(value.values(), value, found, seen)
    elif isinstance(value, (list, tuple)):
        _collect_all(value, value, found, seen)
    elif hasattr(value, "__dataclass_fields__"):
        _collect_all(vars(value).values(), value, found, seen)


def _collect_all(values: Iterable[object], holder: object, found: list[torch.Tensor], seen: set[int]) -> None:
    if id(holder) in seen:
        return
    seen.add(id(holder))
    for value in values:
        _collect(value, found, seen)
