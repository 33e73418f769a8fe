"""Which modules of a model are its blocks: the repeated ones, which can be dropped and run again one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torch import nn

_CONTAINERS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)

Wanted = str | type[nn.Module] | Sequence[type[nn.Module] | nn.Module | str]


def find_blocks(model: nn.Module, wanted: Wanted | None = None) -> dict[str, nn.Module]:
    """The blocks of a model by name, outermost ones only, each once.

    By default these are members of a ModuleList or Sequential whose class occurs there more than once: the layers of a
    transformer, the bottlenecks of a ResNet. `wanted` names them otherwise, by class, by name or as modules.
    """
    chosen = _members(model) if wanted is None else _wanted(model, wanted)
    inner = {part for module in chosen.values() for part in module.modules() if part is not module}
    blocks = {name: module for name, module in _once(chosen).items() if module not in inner}
    if not blocks:
        raise ValueError(
            f"{type(model).__qualname__} has no blocks: no class occurs more than once in a ModuleList or Sequential; "
            "name them with blocks=[...], by class, name or module"
        )
    return blocks


def _once(modules: dict[str, nn.Module]) -> dict[str, nn.Module]:
    """Without modules that are there under another name before."""
    names: dict[nn.Module, str] = {}
    for name, module in modules.items():
        names.setdefault(module, name)
    return {name: module for module, name in names.items()}


def _members(model: nn.Module) -> dict[str, nn.Module]:
    members = _once(
        {
            f"{name}.{child}" if name else child: module
            for name, container in model.named_modules()
            if isinstance(container, _CONTAINERS)
            for child, module in container.named_children()
            if _does_much(module)
        }
    )
    count = Counter(type(module) for module in members.values())
    repeated = {name: module for name, module in members.items() if count[type(module)] > 1}
    # A stage is a container too; its members are the better blocks.
    better = {module for module in repeated.values() if not isinstance(module, _CONTAINERS)}
    return {
        name: module
        for name, module in repeated.items()
        if module in better or not any(part in better for part in module.modules())
    }


def _does_much(module: nn.Module) -> bool:
    """Whether it is called, made of others and has parameters: running a single layer again saves next to nothing."""
    return _is_called(module) and any(True for _ in module.children()) and any(True for _ in module.parameters())


def _is_called(module: nn.Module) -> bool:
    """Whether it has a forward pass, which lists and dictionaries of modules have not."""
    return getattr(module.forward, "__func__", None) is not nn.Module.forward


def _wanted(model: nn.Module, wanted: Wanted) -> dict[str, nn.Module]:
    kinds = [wanted] if isinstance(wanted, (type, str)) else list(wanted)
    classes = tuple(kind for kind in kinds if isinstance(kind, type))
    chosen: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        if name and isinstance(module, classes):
            chosen |= _called(name, module)
    names = {module: name for name, module in model.named_modules()}
    for kind in kinds:
        if isinstance(kind, str):
            try:
                chosen |= _called_or_refused(kind, model.get_submodule(kind))
            except AttributeError:
                raise ValueError(f"{type(model).__qualname__} has no module {kind!r}") from None
        elif isinstance(kind, nn.Module):
            if kind not in names:
                raise ValueError(f"this {type(kind).__qualname__} is no module of the {type(model).__qualname__}")
            chosen |= _called_or_refused(names[kind], kind)
    return chosen


def _called_or_refused(name: str, module: nn.Module) -> dict[str, nn.Module]:
    found = _called(name, module)
    if not found:
        raise ValueError(
            f"{name!r} is no block: a {type(module).__qualname__} is never called, and nothing in it is; "
            "name modules that have a forward()"
        )
    return found


def _called(name: str, module: nn.Module) -> dict[str, nn.Module]:
    """The module itself; if it only holds others, as a list of modules does, the outermost of those that are called."""
    if _is_called(module):
        return {name: module}
    found: dict[str, nn.Module] = {}
    for child, part in module.named_children():
        found |= _called(f"{name}.{child}" if name else child, part)
    return found
