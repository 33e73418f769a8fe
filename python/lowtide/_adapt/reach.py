"""What the code of a block can reach in Python, as it is now: attributes, containers, variables, generators, tensors.

From the block and whatever objects it is given: attributes of modules and other objects, what is in containers,
closures, the global variables that the user's code names, attributes of the user's classes. Code of libraries is not
read, but what its objects hold is seen. Beyond a depth and a count nothing is seen: vocabularies and datasets.
"""

from __future__ import annotations

import builtins
import functools
from collections import deque
from collections.abc import Iterable, Iterator
from io import IOBase
from itertools import islice
from types import BuiltinFunctionType, CellType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NamedTuple
from weakref import ReferenceType

import torch
from torch import nn

from .._guards.walk import is_users_file, names_in
from .places import (
    BUT_FORWARD,
    CELL,
    CLASS,
    COLLECTION,
    DICT,
    LIST,
    SLOT,
    VARIABLE,
    Place,
    Variable,
    kind_of_state,
    read_entries,
)

_DEEPEST = 6
_LONGEST = 10_000  # members of a container
_FOLLOWED = 1000  # members that are looked into
_PLAIN = frozenset(
    {int, float, complex, bool, str, bytes, type(None), type(Ellipsis), slice, range, type, ModuleType, ReferenceType,
     BuiltinFunctionType, torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format}
)  # fmt: skip
_SCRIPTED = "{} is TorchScript, which saves other tensors once it is optimized"
DRAWN_FROM = "it can draw from {}, and a second run could not do that again"
_CATCH_ALL = frozenset({"Exception", "BaseException"})
_BASES = (nn.Module, object)
_TABLES = ("_parameters", "_buffers", "_modules")
_HOOKS = frozenset(name for name, value in vars(nn.Module()).items() if isinstance(value, (dict, set))) - {*_TABLES}


class _Code(NamedTuple):
    """What functions can see besides their arguments."""

    cells: tuple[CellType, ...]
    variables: tuple[Variable, ...]
    saves_early: bool = False
    catches: bool = False  # any exception
    scripted: str = ""  # a function in TorchScript


class Reach:
    """Everything that can be reached from `roots`. `without` are types of objects that stand for themselves."""

    def __init__(self, roots: Iterable[object], without: tuple[type, ...] = (), most: int = 2000) -> None:
        self._most = most  # places
        self.places: list[Place] = []
        self.tensors: dict[int, tuple[str, torch.Tensor]] = {}
        self.parameters: dict[int, tuple[str, torch.Tensor]] = {}
        self.modules: list[nn.Module] = []
        self.once: list[str] = []  # what cannot be done a second time
        self.ends_late = False  # whether a second run cannot be ended by an exception where it saves a tensor
        self.saves_early = False  # whether it may use RReLU, whose noise is saved before it is drawn
        self._without = without
        self._seen: dict[int, object] = {}
        self._classes: set[type] = set()
        self._variables: set[tuple[int, str]] = set()
        for root in roots:
            self._see(root, "" if isinstance(root, nn.Module) else type(root).__qualname__, 0)
        self._seen = {}

    def _see(self, value: Any, name: str, depth: int) -> None:
        kind = type(value)
        if kind in _PLAIN or id(value) in self._seen or len(self.places) > self._most:
            return
        self._seen[id(value)] = value
        if isinstance(value, torch.Tensor):
            self._see_tensor(value, name)
        elif isinstance(value, nn.Module):
            self._see_module(value, name, depth)
        elif isinstance(value, self._without) or depth > _DEEPEST:
            return
        elif isinstance(value, torch.jit.ScriptFunction):
            self.once.append(_SCRIPTED.format(name))
        elif isinstance(value, dict):
            self._see_entries(value, name, depth)
            self._see_attributes(value, name, depth)
        elif isinstance(value, (list, tuple, set, frozenset, deque)):
            self._see_items(value, name, depth)
            self._see_attributes(value, name, depth)
        elif isinstance(value, FunctionType):
            self._see_code(_code_of_function(value), name, depth)
        elif isinstance(value, MethodType):
            self._see(value.__self__, name, depth)
            self._see(value.__func__, name, depth)
        elif isinstance(value, functools.partial):
            for part in (value.func, value.args, value.keywords):
                self._see(part, name, depth)
        elif (state := kind_of_state(value)) is not None:
            self.places.append((state, value, state.read(value)))
        elif hasattr(kind, "__next__"):
            if not isinstance(value, IOBase):
                self.once.append(DRAWN_FROM.format(name))
        elif not isinstance(value, type):
            self._see_attributes(value, name, depth)

    def _see_module(self, module: nn.Module, name: str, depth: int) -> None:
        self.modules.append(module)
        self.saves_early = self.saves_early or isinstance(module, nn.RReLU)
        if isinstance(module, torch.jit.ScriptModule):
            self.once.append(_SCRIPTED.format(name))
        attributes = vars(module)
        kind = BUT_FORWARD if isinstance(attributes.get("forward"), self._without) else DICT
        self.places.append((kind, attributes, kind.read(attributes)))
        for key, value in attributes.items():
            if type(value) in _PLAIN or (key in _HOOKS and not value):
                continue
            if key in _TABLES and not isinstance(value, dict):
                continue  # of a module that is compiled to TorchScript
            if key == "_parameters":
                self.places.append((DICT, value, value.copy()))
                self._see_parameters(value, name)
            elif key in ("_buffers", "_modules"):
                self.places.append((DICT, value, value.copy()))
                for of, part in value.items():
                    self._see(part, _joined(name, of), depth)
            else:
                self._see(value, _joined(name, key), depth + 1)
        self._see_class(type(module), depth)

    def _see_parameters(self, table: dict[str, torch.Tensor | None], name: str) -> None:
        for key, parameter in table.items():
            if parameter is not None and id(parameter) not in self.parameters:
                self._see_tensor(parameter, _joined(name, key), lent=True)

    def _see_tensor(self, tensor: torch.Tensor, name: str, lent: bool = False) -> None:
        """`lent` tensors stand in for parameters."""
        of_its_kind = self.parameters if lent or isinstance(tensor, nn.Parameter) else self.tensors
        of_its_kind[id(tensor)] = (name, tensor)
        marks = vars(tensor)
        self.places.append((DICT, marks, marks.copy()))

    def _see_entries(self, table: dict[Any, Any], name: str, depth: int) -> None:
        if len(table) > _LONGEST:
            return
        self.places.append((DICT, table, read_entries(table)))
        for key, value in islice(dict.items(table), _FOLLOWED):
            if type(value) not in _PLAIN:
                self._see(value, item_of(name, key), depth + 1)

    def _see_items(self, values: Any, name: str, depth: int) -> None:
        if len(values) > _LONGEST:
            return
        if isinstance(values, list):
            self.places.append((LIST, values, list.copy(values)))
        elif isinstance(values, (set, deque)):
            self.places.append((COLLECTION, values, list(values)))
        for value in islice(values, _FOLLOWED):
            if type(value) not in _PLAIN:
                self._see(value, f"{name}[...]", depth + 1)

    def _see_attributes(self, value: Any, name: str, depth: int) -> None:
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self.places.append((DICT, attributes, attributes.copy()))
            for key, item in attributes.items():
                if type(item) not in _PLAIN:
                    self._see(item, f"{name}.{key}", depth + 1)
        kind: Any = type(value)
        for descriptor in _slots_of(kind):
            content = SLOT.read((value, descriptor))
            self.places.append((SLOT, (value, descriptor), content))
            for item in content:
                self._see(item, f"{name}.{descriptor.__name__}", depth + 1)
        self._see_class(kind, depth)

    def _see_class(self, kind: type, depth: int) -> None:
        if kind in self._classes:
            return
        self._classes.add(kind)
        classes, code = _code_of_class(kind)
        for owner in classes:
            content = CLASS.read(owner)
            if content:
                self.places.append((CLASS, owner, content))
                for key, value in content.items():
                    self._see(value, f"{owner.__qualname__}.{key}", depth + 1)
        self._see_code(code, kind.__qualname__, depth)

    def _see_code(self, code: _Code, name: str, depth: int) -> None:
        self.saves_early = self.saves_early or code.saves_early
        self.ends_late = self.ends_late or code.catches
        if code.scripted:
            self.once.append(_SCRIPTED.format(code.scripted))
        for cell in code.cells:
            if id(cell) in self._seen:
                continue
            self._seen[id(cell)] = cell
            content = CELL.read(cell)
            self.places.append((CELL, cell, content))
            for value in content:
                self._see(value, f"the closure of {name}", depth + 1)
        for variable in code.variables:
            table, of = variable
            value = table.get(of)
            if isinstance(value, (ModuleType, type, BuiltinFunctionType)) or (id(table), of) in self._variables:
                continue
            self._variables.add((id(table), of))
            self.places.append((VARIABLE, variable, VARIABLE.read(variable)))
            self._see(value, of, depth + 1)


def item_of(name: str, key: object) -> str:
    """How the member of a container is called: anything may be a key, and only some have short names."""
    return f"{name}[{key!r}]" if type(key) in (str, int) else f"{name}[...]"


def _joined(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


@functools.lru_cache(maxsize=1024)
def _code_of_class(kind: type) -> tuple[tuple[type, ...], _Code]:
    """The classes of the user's that it is one of, and what their methods can see."""
    classes = tuple(one for one in kind.__mro__ if any(map(_is_users, _functions_of(one))))
    code = [_code_of_function(function) for one in classes for function in _functions_of(one)]
    cells = {id(cell): cell for one in code for cell in one.cells}
    variables = {(id(table), name): (table, name) for one in code for table, name in one.variables}
    everything = (function for one in kind.__mro__ if one not in _BASES for function in _functions_of(one))
    return classes, _Code(
        tuple(cells.values()),
        tuple(variables.values()),
        any(one.saves_early for one in code),
        any(one.catches for one in code),
        next((name for function in everything for name in _scripted_by(function)), ""),
    )


def _scripted_by(function: FunctionType) -> Iterator[str]:
    """Functions in TorchScript that it names, also if it is a library's."""
    table = function.__globals__
    return (name for name in function.__code__.co_names if isinstance(table.get(name), torch.jit.ScriptFunction))


def _functions_of(kind: type) -> list[FunctionType]:
    found: list[Any] = []
    for value in vars(kind).values():
        if isinstance(value, property):
            found += [value.fget, value.fset]
        else:
            found.append(getattr(value, "__func__", value))
    return [value for value in found if isinstance(value, FunctionType)]


def _code_of_function(function: FunctionType) -> _Code:
    cells = tuple(cell for cell in function.__closure__ or () if not isinstance(_content_of(cell), type))
    if not _is_users(function):
        return _Code(cells, ())
    names = names_in(function.__code__)
    return _Code(
        cells,
        _variables_of(function),
        saves_early=any("rrelu" in name for name in (*names.variables, *names.attributes)),
        catches=not _CATCH_ALL.isdisjoint(names.variables),
    )


def _content_of(cell: CellType) -> object:
    return next(iter(CELL.read(cell)), None)


def _variables_of(function: FunctionType) -> tuple[Variable, ...]:
    table = function.__globals__
    names = names_in(function.__code__)
    found = [(table, name) for name in names.variables if name in table or not hasattr(builtins, name)]
    for name in names.variables:
        module = table.get(name)
        if isinstance(module, ModuleType) and is_users_file(getattr(module, "__file__", None) or "<frozen"):
            found += [(vars(module), attribute) for attribute in names.attributes if attribute in vars(module)]
    return tuple(found)


def _is_users(function: FunctionType) -> bool:
    return is_users_file(function.__code__.co_filename)


@functools.lru_cache(maxsize=1024)
def _slots_of(kind: type) -> tuple[MemberDescriptorType, ...]:
    if kind.__module__ == "builtins":
        return ()
    return tuple(
        value
        for one in kind.__mro__
        if "__slots__" in vars(one)  # members of a class in C may be read only, and are made anew when they are read
        for name, value in vars(one).items()
        if isinstance(value, MemberDescriptorType) and name not in ("__dict__", "__weakref__")
    )
