"""Which modules of a model are its blocks: the repeated ones, which can be dropped and run again one by one.

And which tensors a batch has, with the extents that it is known by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
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


# -- batches ----------------------------------------------------------------------------------------------------------

_SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size})
_CLOSED = (nn.Module, type, FunctionType, MethodType, ModuleType)  # never looked into
_DEEPEST = 4  # objects within each other that are looked into
_LONGEST = 1000  # members of a list or a dictionary in an object; what has more is a vocabulary or a dataset


def tensors_in(value: object) -> list[torch.Tensor]:
    """The tensors in arguments or results, in order: in lists, dictionaries and attributes of objects."""
    found: list[torch.Tensor] = []
    _collect(value, found, {}, 0)
    return found


def _collect(value: object, found: list[torch.Tensor], seen: dict[int, object], depth: int) -> None:
    """Appends the tensors in a value; `seen` holds what was looked into, so that no address is used twice."""
    if isinstance(value, torch.Tensor):
        found.append(value)
        return
    if id(value) in seen:
        return
    seen[id(value)] = value
    members: Iterable[object]
    if isinstance(value, (dict, list, tuple, Mapping)):
        if depth > 0 and len(value) > _LONGEST:
            return
        members = value.values() if isinstance(value, (dict, Mapping)) else value
    elif depth < _DEEPEST and not isinstance(value, _CLOSED):
        members = _attributes(value)
        depth += 1
    else:
        return
    for member in members:
        if type(member) not in _PLAIN:
            _collect(member, found, seen, depth)


def _attributes(value: object) -> list[object]:
    """What an object has: in its dictionary, and in the slots that its classes name."""
    found = list(getattr(value, "__dict__", {}).values())
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        found += [getattr(value, name, None) for name in ((slots,) if isinstance(slots, str) else slots)]
    return found


def extents_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """Its extents; with the number of elements of a sparse one; of a nested one those of its values and the longest."""
    if tensor.is_nested:
        return _extents_of_nested(tensor)
    shape = tuple(tensor.shape)
    return (*shape, tensor._nnz()) if tensor.layout in _SPARSE else shape


def _extents_of_nested(tensor: Any) -> tuple[int, ...]:
    if tensor.layout is torch.jagged:
        return (int(tensor.size(0)), *tensor._values.shape, int(tensor._get_max_seqlen()))
    sizes = tensor._nested_tensor_size()
    return (len(sizes), tensor.numel(), *(max(column) for column in sizes.T.tolist() if column))
