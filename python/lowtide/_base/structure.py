"""The structure of arguments and results: which leaves there are, and how to put them together again.

PyTorch's pytrees, and beyond them the objects that people make batches and results of: instances of dataclasses and of
other plain classes, of `UserDict` (as tokenizers give), and of classes derived from dict or list. Such an object is
taken apart into its attributes and items and rebuilt as its own class, without calling its constructor.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import inspect
import logging
import types
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

import torch
import torch.utils._pytree as pytree

MAX_LEAVES = 10_000  # of one object; a larger one is a leaf

_ATOMS = frozenset({torch.Tensor, torch.nn.Parameter, bool, int, float, complex, str, bytes, type(None)})
_NEVER_OPENED = (
    torch.Tensor,
    torch.nn.Module,
    torch.optim.Optimizer,
    torch.utils.data.Dataset,
    torch.utils.data.DataLoader,
    torch.utils.data.Sampler,
    logging.Logger,
    logging.Handler,
    enum.Enum,
    BaseException,
    tuple,
    type,
)
_class_of: Callable[[Any], Any] = type  # as something that can be a key of a cache
_PLAIN = (object, dict, list, collections.OrderedDict)
_HEAP_TYPE = 1 << 9  # CPython's flag of classes made at run time


_T = TypeVar("_T")


def instances_in(tree: Any, kind: type[_T]) -> Iterator[_T]:
    """Every object of a class in a tree: itself, or inside lists, tuples and dicts."""
    if isinstance(tree, kind):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from instances_in(item, kind)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from instances_in(item, kind)


class Structure(NamedTuple):
    """A pytree's specification, and the objects among its leaves: position, class, and the structure of each inside."""

    spec: Any
    objects: tuple[tuple[int, type, Structure, int], ...] = ()  # the last is the number of leaves inside

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """The tree with these leaves; objects are new ones."""
        if not self.objects:
            if len(leaves) == 1 and self.spec.is_leaf():  # as most results are, sooner
                return leaves[0]
            return pytree.tree_unflatten(leaves, self.spec)
        outer: list[Any] = []
        at = 0
        for position, cls, inside, count in self.objects:
            skipped = position - len(outer)
            outer += leaves[at : at + skipped]
            at += skipped
            outer.append(_rebuild(cls, inside.unflatten(leaves[at : at + count])))
            at += count
        outer += leaves[at:]
        return pytree.tree_unflatten(outer, self.spec)


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of any pytree, plain objects in it included, and how to put them together again.

    >>> from types import SimpleNamespace
    >>> leaves, structure = flatten({"a": 1, "b": SimpleNamespace(x=2, y=[3, 4])})
    >>> leaves, structure.unflatten([5, 6, 7, 8])
    ([1, 2, 3, 4], {'a': 5, 'b': namespace(x=6, y=[7, 8])})
    """
    leaves, spec = pytree.tree_flatten(tree)
    if all([type(leaf) in _ATOMS for leaf in leaves]):
        return leaves, Structure(spec)
    return _open_objects(leaves, spec, frozenset())


_flat_calls: dict[tuple[Any, ...], Structure] = {}


def flatten_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Structure]:
    """`flatten((args, kwargs))`, sooner where no argument has anything inside."""
    leaves = [*args, *kwargs.values()]
    for leaf in leaves:
        if type(leaf) not in _ATOMS and not isinstance(leaf, torch.Tensor):
            return flatten((args, kwargs))
    key = (len(args), *kwargs)
    structure = _flat_calls.get(key)
    if structure is None:
        structure = _flat_calls[key] = flatten((args, kwargs))[1]
    return leaves, structure


def _open_objects(leaves: list[Any], spec: Any, around: frozenset[int]) -> tuple[list[Any], Structure]:
    flat: list[Any] = []
    objects: list[tuple[int, type, Structure, int]] = []
    for position, leaf in enumerate(leaves):
        if type(leaf) in _ATOMS or id(leaf) in around or not _opens(_class_of(leaf)):
            flat.append(leaf)
            continue
        inner, inner_spec = pytree.tree_flatten(_parts(leaf))
        inside, structure = _open_objects(inner, inner_spec, around | {id(leaf)})
        if len(inside) > MAX_LEAVES:
            flat.append(leaf)
            continue
        objects.append((position, type(leaf), structure, len(inside)))
        flat += inside
    return flat, Structure(spec, tuple(objects))


@lru_cache(maxsize=4096)
def _opens(cls: Any) -> bool:
    """Whether all there is to an instance is in its attributes and items, because Python code alone made the class."""
    if cls is types.SimpleNamespace:
        return True
    if issubclass(cls, _NEVER_OPENED) or any("__next__" in vars(c) or "__call__" in vars(c) for c in cls.__mro__):
        return False
    return cls not in _PLAIN and all(base in _PLAIN or _made_in_python(base) for base in cls.__mro__)


def _made_in_python(cls: type) -> bool:
    in_python = cls.__flags__ & _HEAP_TYPE and any("__dict__" in vars(base) for base in cls.__mro__)
    return bool(in_python or "__slots__" in vars(cls))


@lru_cache(maxsize=4096)
def _slots(cls: type) -> dict[str, Any]:
    return {
        name: descriptor
        for base in cls.__mro__
        for name, descriptor in vars(base).items()
        if isinstance(descriptor, types.MemberDescriptorType) and name not in ("__dict__", "__weakref__")
    }


def _parts(value: Any) -> tuple[dict[str, Any], Any]:
    """Attributes, and the items of a dict or a list."""
    attributes = dict(getattr(value, "__dict__", ()))
    for name, descriptor in _slots(_class_of(value)).items():
        with contextlib.suppress(AttributeError):  # an empty slot
            attributes[name] = descriptor.__get__(value)
    if isinstance(value, dict):
        return attributes, dict(dict.items(value))
    return attributes, list(list.__iter__(value)) if isinstance(value, list) else ()


def _rebuild(cls: type, parts: tuple[dict[str, Any], Any]) -> Any:
    attributes, items = parts
    new: Any = cls.__new__
    value = new(cls)
    slots = _slots(cls)
    for name, item in attributes.items():
        if name in slots:
            slots[name].__set__(value, item)
        else:
            value.__dict__[name] = item
    if isinstance(value, dict):
        base: Any = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
        for key, item in items.items():
            base.__setitem__(value, key, item)
    elif isinstance(value, list):
        list.extend(value, items)
    return value


def assign(target: Any, source: Any) -> None:
    """Gives the dicts, lists and objects in `target` the content of those in `source`, themselves staying in place."""
    if isinstance(target, dict):
        kept = {key: target[key] if _assigned(dict.get(target, key), item) else item for key, item in source.items()}
        base: Any = collections.OrderedDict if isinstance(target, collections.OrderedDict) else dict
        base.clear(target)
        for key, item in kept.items():
            base.__setitem__(target, key, item)
    elif isinstance(target, (list, collections.deque)):
        items = [old if _assigned(old, new) else new for old, new in zip_longest(target, source)][: len(source)]
        target.clear()
        target.extend(items)
    elif isinstance(target, tuple):
        for old, new in zip(target, source, strict=True):
            assign(old, new)
    if _opens(_class_of(target)):
        old, new = _parts(target)[0], _parts(source)[0]
        for name, item in new.items():
            if not _assigned(old.get(name), item):
                object.__setattr__(target, name, item)
        for name in [name for name in old if name not in new]:
            object.__delattr__(target, name)


def _assigned(old: Any, new: Any) -> bool:
    """Assigns, if what has changed is inside; else the new object must take the old one's place."""
    inside = old is new or _holds(old, new)
    if inside and old is not new:
        assign(old, new)
    return inside


def _holds(old: Any, new: Any) -> bool:
    if type(old) is not type(new):
        return False
    if isinstance(old, tuple):
        return len(old) == len(new) and all(a is b or _holds(a, b) for a, b in zip(old, new, strict=True))
    return isinstance(old, (dict, list, collections.deque)) or _opens(_class_of(old))


# -- names -------------------------------------------------------------------------------------------------------------


def as_arguments(example: Any) -> tuple[Any, ...]:
    """The tuple of arguments: what is no tuple or list is the only one."""
    return tuple(example) if type(example) in (tuple, list) else (example,)


def argument_names(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """How the function's author would write each leaf of its arguments.

    >>> def step(batch, *more, scale): ...
    >>> argument_names(step, ({"x": [1, 2]}, 3), {"scale": 4})
    ["batch['x'][0]", "batch['x'][1]", 'more[0]', 'scale']
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for index, argument in enumerate(args):
        name = f"argument {index}"
        for place, parameter in enumerate(parameters[: index + 1]):
            if parameter.kind is parameter.VAR_POSITIONAL:
                name = f"{parameter.name}[{index - place}]"
            elif place == index:
                name = parameter.name
        names += leaf_names(argument, name)
    for key, argument in kwargs.items():
        names += leaf_names(argument, key)
    return names


def leaf_names(tree: Any, root: str) -> list[str]:
    """The path of each leaf in a tree that is called `root`."""
    _, structure = flatten(tree)
    return list(_paths_of(structure, root))


def _paths_of(structure: Structure, root: str) -> Iterator[str]:
    objects = {position: (cls, inside) for position, cls, inside, _ in structure.objects}
    for position, path in enumerate(_paths(structure.spec, root)):
        if position not in objects:
            yield path
            continue
        cls, inside = objects[position]
        for inner in _paths_of(inside, ""):
            part, inner = inner[:3], inner[3:]
            if part == "[0]":  # its attributes; [1] are its items
                inner = inner.replace("['", ".", 1).replace("']", "", 1)
                if issubclass(cls, (collections.UserDict, collections.UserList)):
                    inner = inner.removeprefix(".data")
            yield path + inner


def _paths(spec: Any, root: str) -> Iterator[str]:
    if spec.is_leaf():
        yield root
        return
    context = spec.context[1] if spec.type is collections.defaultdict else spec.context
    fields = getattr(context, "_fields", None)  # a named tuple
    for index, child in enumerate(spec.children()):
        if fields is not None:
            step = f".{fields[index]}"
        elif isinstance(context, list) and len(context) == spec.num_children:
            step = f"[{context[index]!r}]"
        else:
            step = f"[{index}]"
        yield from _paths(child, root + step)
