"""Tensors by the variables that hold them, and the lines that put them there."""

from __future__ import annotations

import ast
import linecache
import os
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch

_MOST_OBJECTS = 200_000  # looked at for one variable
_DEEPEST = 8
_FEW_KEYS = 16  # a dict with more of them is shown as a container of things alike
_GROWING = {"append", "appendleft", "extend", "insert", "add", "update", "setdefault"}
_CONTAINERS = (list, tuple, set, frozenset, deque)


@dataclass(slots=True)
class Place:
    """Somewhere that holds tensors: `losses[*]` in `train()`."""

    path: str
    scope: str  # "train()", or the file of a module
    file: str
    lines: range  # of the scope
    container: str = ""  # "list" if it holds its tensors one by one
    tensors: list[torch.Tensor] = field(default_factory=list)


Seen = dict[int, int]  # objects by id, and how many steps they were away when they were looked into


def places_in_frame(frame: FrameType, seen: Seen | None = None) -> Iterator[Place]:
    """Where tensors are that a running function's variables lead to, through containers and attributes of objects.

    Each variable is followed wherever it leads, or only to what is not among those `seen` from others, if given.
    """
    code = frame.f_code
    if code.co_name == "<module>":
        yield from places_in_module(frame.f_globals, code.co_filename)
        return
    last = max(line for _, _, line in code.co_lines() if line is not None)
    scope = Place("", f"{_owner(frame)}{code.co_name}()", code.co_filename, range(code.co_firstlineno, last + 1))
    yield from _places_in(frame.f_locals, scope, seen)


def _owner(frame: FrameType) -> str:
    """The class of the module whose method it is: there are many `forward`."""
    names = frame.f_code.co_varnames[:1] if frame.f_code.co_argcount else ()
    first = frame.f_locals.get(names[0]) if names else None
    return f"{type(first).__name__}." if isinstance(first, torch.nn.Module) and names == ("self",) else ""


def places_in_module(variables: Mapping[str, Any], file: str) -> Iterator[Place]:
    """The same for what is global in a file."""
    yield from _places_in(variables, Place("", os.path.basename(file), file, range(1, sys.maxsize)), None)


def _places_in(variables: Mapping[str, Any], scope: Place, seen: Seen | None) -> Iterator[Place]:
    for name, value in list(variables.items()):
        if not name.startswith("__") and not isinstance(value, (ModuleType, type, FunctionType)):
            yield from _places_below(name, value, scope, {} if seen is None else seen)


def _places_below(name: str, value: Any, scope: Place, seen: Seen) -> Iterator[Place]:
    places: dict[str, Place] = {}
    most = len(seen) + _MOST_OBJECTS
    open_objects: deque[tuple[str, str, Any, int]] = deque([(name, "", value, 0)])
    while open_objects and len(seen) < most:
        path, container, one, depth = open_objects.popleft()
        if seen.get(id(one), _DEEPEST + 1) <= depth:
            continue
        seen[id(one)] = depth
        if isinstance(one, torch.Tensor):
            new = Place(path, scope.scope, scope.file, scope.lines, container)
            places.setdefault(path, new).tensors.append(one)
        elif depth < _DEEPEST:
            open_objects.extend((*below, depth + 1) for below in _below(path, one))
    yield from places.values()


def _below(path: str, value: Any) -> Iterator[tuple[str, str, Any]]:
    kind = type(value).__name__
    if isinstance(value, _CONTAINERS):
        yield from ((f"{path}[*]", kind, item) for item in list(value))
    elif isinstance(value, dict):
        alike = len(value) > _FEW_KEYS or not all(isinstance(key, str) for key in value)
        for key, item in list(value.items()):
            yield (f"{path}[*]", kind, item) if alike else (f"{path}[{key!r}]", "", item)
    elif not isinstance(value, (ModuleType, type, FunctionType, FrameType)):
        for name, item in list(getattr(value, "__dict__", {}).items()):
            if isinstance(value, torch.nn.Module) and name in ("_parameters", "_buffers", "_modules"):
                yield from ((f"{path}.{key}", "", below) for key, below in list(item.items()))
            else:
                yield f"{path}.{name}", "", item


def line_that_fills(place: Place, files: list[str]) -> tuple[str, str] | None:
    """Where the place gets its tensors, as `file:line`, and that line's text; one that adds to it comes first.

    Variables are looked for in the file of their frame, attributes in all of `files`.
    """
    owner, _, name = place.path.split("[")[0].rpartition(".")
    found: list[tuple[bool, int, str]] = []
    for file in files if owner else [place.file]:
        for filling in _fillings(file):
            in_scope = bool(owner) or filling.line in place.lines
            if in_scope and (filling.is_attribute, filling.name) == (bool(owner), name):
                found.append((filling.adds == bool(place.container), filling.line, file))
    if not found:
        return None
    _, line, file = max(found)
    return f"{file}:{line}", linecache.getline(file, line).strip()


class _Filling(NamedTuple):
    """An assignment to a name or an attribute, or a call that adds to it."""

    is_attribute: bool
    name: str
    adds: bool
    line: int


@lru_cache(maxsize=64)
def _fillings(file: str) -> list[_Filling]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return []
    fillings: list[_Filling] = []

    def add(target: ast.expr, adds: bool, line: int) -> None:
        if isinstance(target, ast.Name):
            fillings.append(_Filling(False, target.id, adds, line))
        elif isinstance(target, ast.Attribute):
            fillings.append(_Filling(True, target.attr, adds, line))
        elif isinstance(target, ast.Subscript):
            add(target.value, True, line)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for item in target.elts:
                add(item, adds, line)

    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                add(target, False, node.lineno)
        elif isinstance(node, ast.AugAssign):
            add(node.target, True, node.lineno)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr, ast.For)) and getattr(node, "value", True) is not None:
            add(node.target, False, node.lineno)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWING:
            add(node.func.value, True, node.lineno)
    return fillings
