"""Bystanders: what lies outside a step's surroundings and may still get hold of tensors while it is captured.

Code of libraries keeps what it makes: in variables of its modules, in attributes of its classes, in dictionaries, lists
and thread locals there. What stands in them is noted before a capture. Where a stand-in of the capture is found in one
afterwards, that entry is put back. Everything else stays: an import, a counter, a warning that was given.
"""

from __future__ import annotations

import gc
import sys
import threading
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any

_LEFT_OUT = frozenset({"torch", "lowtide", "numpy", "sympy", "mpmath", "_pytest", "pytest"}) | sys.stdlib_module_names
_DEEPEST = 6  # objects within each other in which stand-ins are looked for
_MOST = 20_000  # objects that are looked at for one entry
_MISSING = object()
_CLOSED = (types.ModuleType, type, types.FunctionType, types.CodeType, types.FrameType)


class Bystanders:
    """What the modules of libraries hold, and the `more` objects, as it is when this is made."""

    def __init__(self, more: Iterable[object] = ()) -> None:
        self._tables: list[tuple[Any, dict[Any, Any]]] = []  # dictionaries and classes, and their entries
        self._lists: list[tuple[Any, list[Any]]] = []  # lists, sets and deques, and their items
        self._seen: set[int] = set()
        for name, module in list(sys.modules.items()):
            if type(module) is types.ModuleType and name.partition(".")[0] not in _LEFT_OUT:
                self._note_all(vars(module), name)
        for one in more:
            self._note(one, "")

    def _note_all(self, table: dict[str, Any], module: str) -> None:
        self._note(table, module)
        for value in list(table.values()):
            if type(value) in _NOT_NOTED or id(value) in self._seen:
                continue
            self._seen.add(id(value))
            self._note(value, module)

    def _note(self, value: Any, module: str) -> None:
        kind = type(value)
        note = _NOTED.get(kind)
        if note is None and kind not in _NOT_NOTED:
            note = _how_to_note(kind)
            if note is None:
                _NOT_NOTED.add(kind)
            else:
                _NOTED[kind] = note
        if note is not None:
            note(self, value, module)

    def _note_table(self, value: dict[Any, Any], _module: str) -> None:
        self._tables.append((value, dict.copy(value)))

    def _note_list(self, value: Iterable[Any], _module: str) -> None:
        self._lists.append((value, list(value)))

    def _note_class(self, value: type, module: str) -> None:
        if value.__module__ == module:
            self._tables.append((value, vars(value).copy()))

    def _note_owner(self, value: Any, module: str) -> None:
        self._note(value.__self__, module)

    def _note_attributes(self, value: Any, _module: str) -> None:
        local = isinstance(value, threading.local)
        attributes = value.__dict__ if local else object.__getattribute__(value, "__dict__")
        if type(attributes) is dict:
            self._tables.append((attributes, dict(attributes)))
            for item in list(attributes.values()):
                if type(item) is dict:
                    self._tables.append((item, dict(item)))
                elif type(item) in (list, set, deque):
                    self._lists.append((item, list(item)))

    def put_back(self, is_ours: Callable[[object], bool]) -> None:
        """Puts back every entry that has changed and leads to something that `is_ours`."""
        for target, before in self._tables:
            table = vars(target) if isinstance(target, type) else target
            changed = [key for key, value in list(dict(table).items()) if before.get(key, _MISSING) is not value]
            for key in changed:
                if leads_to(table[key], is_ours) or leads_to(key, is_ours):
                    _set(target, key, before.get(key, _MISSING))
        for holder, before_items in self._lists:
            now = list(holder)
            if len(now) == len(before_items) and all(a is b for a, b in zip(now, before_items, strict=True)):
                continue
            if any(leads_to(item, is_ours) for item in now):
                holder.clear()
                for item in before_items:
                    holder.add(item) if isinstance(holder, set) else holder.append(item)


# Annotations and what imports leave at every module: their attributes are Python's own.
_OF_THE_LANGUAGE = frozenset({"typing", "typing_extensions", "_frozen_importlib", "_frozen_importlib_external"})
_NOTED: dict[type, Callable[[Bystanders, Any, str], None]] = {}
_NOT_NOTED: set[type] = set()


def _how_to_note(kind: type[Any]) -> Callable[[Bystanders, Any, str], None] | None:
    if kind is types.BuiltinMethodType:
        return Bystanders._note_owner
    if kind in (dict, OrderedDict) or (issubclass(kind, dict) and kind.__module__ == "collections"):
        return Bystanders._note_table
    if kind in (list, set, deque):
        return Bystanders._note_list
    if issubclass(kind, type):
        return Bystanders._note_class
    if issubclass(kind, (types.ModuleType, types.FunctionType)):
        return None
    if kind.__module__ in _OF_THE_LANGUAGE:
        return None
    if kind.__dictoffset__ or issubclass(kind, (threading.local, weakref.WeakKeyDictionary)):
        return Bystanders._note_attributes
    return None


def _set(target: Any, key: Any, value: Any) -> None:
    if isinstance(target, type):
        delattr(target, key) if value is _MISSING else setattr(target, key, value)
        return
    base: Any = OrderedDict if isinstance(target, OrderedDict) else dict
    if value is _MISSING:
        base.__delitem__(target, key)
    else:
        base.__setitem__(target, key, value)


def leads_to(value: object, is_ours: Callable[[object], bool]) -> bool:
    """Whether `value`, or something that it holds, `is_ours`. Modules, classes and functions are not looked into."""
    level: dict[int, object] = {id(value): value}
    seen: dict[int, object] = {}
    for _ in range(_DEEPEST):
        if any(map(is_ours, level.values())):
            return True
        seen.update(level)
        inside = [one for one in level.values() if not issubclass(type(one), _CLOSED)]
        level = {id(one): one for one in gc.get_referents(*inside) if id(one) not in seen}
        if not level or len(seen) > _MOST:
            return False
    return any(map(is_ours, level.values()))
