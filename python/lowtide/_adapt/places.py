"""Places in Python that can be put back: dictionaries, lists, variables, attributes of classes, random generators.

A place is what it is, the object, and what was there: `(kind, target, content)`. Places of a block are looked into at
each of its runs, so there are functions instead of objects.
"""

from __future__ import annotations

import random
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from operator import eq, is_
from types import CellType, FunctionType
from typing import Any, NamedTuple

import torch


class Kind(NamedTuple):
    """What can be done with a place. Contents are copies: nobody else changes them."""

    read: Callable[[Any], Any]
    same: Callable[[Any, Any], bool]
    write: Callable[[Any, Any], object]
    replaced: Callable[[Any, Callable[[Any], Any]], Any]  # a content with other objects in it


Place = tuple[Kind, Any, Any]


def _same_entries(one: dict[Any, Any], other: dict[Any, Any]) -> bool:
    return len(one) == len(other) and all(map(is_, one.values(), other.values())) and one.keys() == other.keys()


def read_entries(table: dict[Any, Any]) -> dict[Any, Any]:
    """What is in the table, whatever a class of the user's makes of it when it is asked."""
    base: Any = OrderedDict if isinstance(table, OrderedDict) else dict
    return dict(base.items(table))


def _write_entries(target: dict[Any, Any], content: dict[Any, Any]) -> None:
    base: Any = OrderedDict if isinstance(target, OrderedDict) else dict
    if list(target) != list(content):
        base.clear(target)
    for key, value in content.items():
        base.__setitem__(target, key, value)


def _read_but_forward(target: dict[str, Any]) -> dict[str, Any]:
    content = target.copy()
    content.pop("forward", None)
    return content


def _write_but_forward(target: dict[str, Any], content: dict[str, Any]) -> None:
    forward = {name: target[name] for name in ("forward",) if name in target}
    _write_entries(target, content)
    target.update(forward)


def _same_items(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(map(is_, one, other))


def _write_list(target: list[Any], content: list[Any]) -> None:
    list.__setitem__(target, slice(None), content)


def _write_collection(target: Any, content: list[Any]) -> None:
    target.clear()
    (target.update if isinstance(target, set) else target.extend)(content)


def _values(content: dict[Any, Any], other: Callable[[Any], Any]) -> dict[Any, Any]:
    return {key: other(value) for key, value in content.items()}


def _items(content: list[Any], other: Callable[[Any], Any]) -> list[Any]:
    return [other(item) for item in content]


def _read_cell(cell: CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:
        return []


def _write_cell(cell: CellType, content: list[Any]) -> None:
    if content:
        cell.cell_contents = content[0]
    else:
        del cell.cell_contents


Variable = tuple[dict[str, Any], str]  # of a Python module


def _read_variable(variable: Variable) -> list[Any]:
    table, name = variable
    return [table[name]] if name in table else []


def _write_variable(variable: Variable, content: list[Any]) -> None:
    table, name = variable
    if content:
        table[name] = content[0]
    else:
        table.pop(name, None)


Slot = tuple[Any, Any]  # an object, and the descriptor


def _read_slot(slot: Slot) -> list[Any]:
    owner, descriptor = slot
    try:
        return [descriptor.__get__(owner)]
    except AttributeError:
        return []


def _write_slot(slot: Slot, content: list[Any]) -> None:
    owner, descriptor = slot
    if content:
        descriptor.__set__(owner, content[0])
    else:
        descriptor.__delete__(owner)


_CODE = (FunctionType, staticmethod, classmethod, property, type)


def _read_class(kind: type) -> dict[str, Any]:
    """Its attributes, without methods."""
    return {
        name: value
        for name, value in vars(kind).items()
        if not isinstance(value, _CODE) and not name.startswith("__") and not hasattr(type(value), "__set_name__")
    }


def _write_class(kind: type, content: dict[str, Any]) -> None:
    now = _read_class(kind)
    for name in now.keys() - content.keys():
        delattr(kind, name)
    for name, value in content.items():
        if now.get(name, content) is not value:
            setattr(kind, name, value)


def _as_it_is(content: Any, other: Callable[[Any], Any]) -> Any:
    return content


DICT = Kind(read_entries, _same_entries, _write_entries, _values)
BUT_FORWARD = Kind(_read_but_forward, _same_entries, _write_but_forward, _values)  # of modules that are stood in for
LIST = Kind(list.copy, _same_items, _write_list, _items)
COLLECTION = Kind(list, _same_items, _write_collection, _items)  # sets and queues
CELL = Kind(_read_cell, _same_items, _write_cell, _items)
VARIABLE = Kind(_read_variable, _same_items, _write_variable, _items)
SLOT = Kind(_read_slot, _same_items, _write_slot, _items)
CLASS = Kind(_read_class, _same_entries, _write_class, _values)


# -- random generators -------------------------------------------------------------------------------------------------

TORCH_GENERATOR = Kind(torch.Generator.get_state, torch.equal, torch.Generator.set_state, _as_it_is)
PYTHON_GENERATOR = Kind(lambda one: one.getstate(), eq, lambda one, state: one.setstate(state), _as_it_is)


def _numpy_bits(generator: Any) -> Any:
    return getattr(generator, "bit_generator", None) or getattr(generator, "_bit_generator", generator)


def _read_numpy(generator: Any) -> Any:
    if hasattr(generator, "get_state"):
        return generator.get_state(legacy=False)
    return _numpy_bits(generator).state


def _write_numpy(generator: Any, content: Any) -> None:
    if hasattr(generator, "set_state"):
        generator.set_state(content)
    else:
        _numpy_bits(generator).state = content


def _same_state(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same_state(value, other[key]) for key, value in one.items())
    return bool(one.tobytes() == other.tobytes()) if hasattr(one, "tobytes") else bool(one == other)


NUMPY_GENERATOR = Kind(_read_numpy, _same_state, _write_numpy, _as_it_is)

_SMALL_ARRAY = 1 << 20  # bytes; larger ones are data, which nobody changes between two runs


def _write_array(array: Any, content: Any) -> None:
    array[...] = content


ARRAY = Kind(lambda array: array.copy(), _same_state, _write_array, _as_it_is)


def write_back(places: Iterable[Place]) -> None:
    """Puts back what is not as it was."""
    for kind, target, content in places:
        if not kind.same(kind.read(target), content):
            kind.write(target, content)


def _read_context(variable: ContextVar[Any]) -> list[Any]:
    try:
        return [variable.get()]
    except LookupError:
        return []


def _write_context(variable: ContextVar[Any], content: list[Any]) -> None:
    for value in content:
        variable.set(value)


CONTEXT = Kind(_read_context, _same_items, _write_context, _items)


def kind_of_state(value: Any) -> Kind | None:
    """How to put back an object that has its state inside: a random generator, a context variable, a small array."""
    if isinstance(value, torch.Generator):
        return TORCH_GENERATOR
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return PYTHON_GENERATOR
    if isinstance(value, ContextVar):
        return CONTEXT
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not type(value).__module__.startswith("numpy"):
        return None
    if isinstance(value, (numpy.random.Generator, numpy.random.RandomState, numpy.random.BitGenerator)):
        return NUMPY_GENERATOR
    if (
        type(value) is numpy.ndarray
        and value.flags.writeable
        and value.nbytes <= _SMALL_ARRAY
        and not value.dtype.hasobject
    ):
        return ARRAY
    return None
