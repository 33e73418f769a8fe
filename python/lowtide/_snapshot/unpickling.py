"""Pickles as plain data: containers, numbers and strings. Anything else is refused, and nothing is ever called.

A pickle is a program for a machine with a stack. Of its instructions this machine has those that make and fill lists,
tuples and dictionaries, and those for numbers and strings; it has none that looks up a name or calls something. What it
makes takes memory in proportion to the bytes that it has read: numbers have 64 bits, strings are no longer than the
file, there is at most one container or string for 8 bytes (PyTorch writes one for 25 or more), each is remembered once
at most, and marks nest no deeper than a snapshot.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable
from typing import Any, NoReturn

from ..errors import InvalidSnapshotError

_FREE, _BYTES_EACH = 1000, 8  # of containers and strings
_DEEPEST = 100
_PROTOCOLS = (2, 3, 4, 5)
_CODES = {opcode.name: ord(opcode.code) for opcode in pickletools.opcodes}
_NAMES = {code: name for name, code in _CODES.items()}
_STOP = _CODES["STOP"]
_LENGTHS = {"<B": 1, "<H": 2, "<i": 4, "<I": 4, "<Q": 8, ">d": 8}

_Step = Callable[[int], int]
"""Runs an instruction whose operands begin here, and gives where the next one begins."""


def plain_data(pickled: bytes, watch: Callable[[int], None] = lambda at: None) -> Any:
    """What a pickle holds. Raises `InvalidSnapshotError` for one that is damaged, or that is more than data.

    `watch` is told now and then how many bytes have been read.
    """
    machine = _Machine(pickled, watch)
    at = machine.begin()
    steps = machine.steps()
    try:
        while (code := pickled[at]) != _STOP:
            at = steps[code](at + 1)
    except (IndexError, struct.error):
        _damaged(at)
    if at + 1 != len(pickled):
        raise InvalidSnapshotError(f"the pickle ends at byte {at}, the file at byte {len(pickled)}")
    return machine.result(at)


def _damaged(at: int) -> NoReturn:
    raise InvalidSnapshotError(f"the pickle is cut off or damaged at byte {at}")


def _refuse(at: int) -> NoReturn:
    raise InvalidSnapshotError(f"the pickle holds more than a snapshot does, at byte {at}")


class _Machine:
    """`_stack` holds what came after the last mark, `_below` what was there before each."""

    def __init__(self, pickled: bytes, watch: Callable[[int], None]) -> None:
        self._pickled = pickled
        self._watch = watch
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: list[Any] = []
        self._made = 0  # containers and strings

    def begin(self) -> int:
        """Where the first instruction is."""
        if len(self._pickled) < 2 or self._pickled[0] != _CODES["PROTO"] or self._pickled[1] not in _PROTOCOLS:
            raise InvalidSnapshotError("expected a pickle of protocol 2 or later, as PyTorch writes snapshots")
        return 2

    def result(self, at: int) -> Any:
        """What is left in the end."""
        if self._below or len(self._stack) != 1:
            _damaged(at)
        return self._stack[0]

    def steps(self) -> list[_Step]:
        """By code."""
        known: dict[str, _Step] = {
            "MARK": self._mark, "FRAME": self._frame, "MEMOIZE": self._memoize, "LONG1": self._long,
            "NONE": self._constant(None), "NEWTRUE": self._constant(True), "NEWFALSE": self._constant(False),
            "BININT1": self._number("<B"), "BININT2": self._number("<H"), "BININT": self._number("<i"),
            "BINFLOAT": self._number(">d"), "SHORT_BINUNICODE": self._string("<B"), "BINUNICODE": self._string("<I"),
            "BINUNICODE8": self._string("<Q"), "BINGET": self._get("<B"), "LONG_BINGET": self._get("<I"),
            "BINPUT": self._put("<B"), "LONG_BINPUT": self._put("<I"), "EMPTY_LIST": self._container(list),
            "EMPTY_DICT": self._container(dict), "EMPTY_TUPLE": self._container(tuple), "TUPLE": self._marked_tuple,
            "TUPLE1": self._tuple(1), "TUPLE2": self._tuple(2), "TUPLE3": self._tuple(3), "APPEND": self._append,
            "APPENDS": self._appends, "SETITEM": self._set_item, "SETITEMS": self._set_items,
        }  # fmt: skip
        steps: list[_Step] = [self._unknown] * 256
        for name, step in known.items():
            steps[_CODES[name]] = step
        return steps

    def _frame(self, at: int) -> int:
        """Picklers begin one every 64 KiB or so; what is in it needs none."""
        self._watch(at)
        return at + 8

    def _unknown(self, at: int) -> int:
        code = self._pickled[at - 1]
        raise InvalidSnapshotError(
            "expected containers, numbers and strings, got the instruction "
            f"{_NAMES.get(code, hex(code))} at byte {at - 1} of the pickle"
        )

    def _count(self, at: int) -> None:
        self._made += 1
        if self._made > _FREE + at // _BYTES_EACH:
            _refuse(at)

    # -- numbers and strings

    def _constant(self, value: bool | None) -> _Step:
        def step(at: int) -> int:
            self._stack.append(value)
            return at

        return step

    def _number(self, form: str) -> _Step:
        read, length = struct.Struct(form).unpack_from, _LENGTHS[form]

        def step(at: int) -> int:
            self._stack.append(read(self._pickled, at)[0])
            return at + length

        return step

    def _long(self, at: int) -> int:
        """Of up to 64 bits and a sign."""
        end = at + 1 + self._pickled[at]
        if end > at + 10 or end > len(self._pickled):
            _refuse(at)
        self._stack.append(int.from_bytes(self._pickled[at + 1 : end], "little", signed=True))
        return end

    def _string(self, form: str) -> _Step:
        read, length = struct.Struct(form).unpack_from, _LENGTHS[form]

        def step(at: int) -> int:
            begin = at + length
            end = begin + int(read(self._pickled, at)[0])
            if end > len(self._pickled):
                _damaged(at)
            self._count(end)
            self._stack.append(self._pickled[begin:end].decode(errors="replace"))
            return end

        return step

    # -- what was there before

    def _memoize(self, at: int) -> int:
        if len(self._memo) >= self._made:
            _refuse(at)
        self._memo.append(self._stack[-1])
        return at

    def _put(self, form: str) -> _Step:
        """Picklers count from 0 on: an index far off would be a table of that size."""
        read, length = struct.Struct(form).unpack_from, _LENGTHS[form]

        def step(at: int) -> int:
            if read(self._pickled, at)[0] != len(self._memo):
                _refuse(at)
            return self._memoize(at) + length

        return step

    def _get(self, form: str) -> _Step:
        read, length = struct.Struct(form).unpack_from, _LENGTHS[form]

        def step(at: int) -> int:
            self._stack.append(self._memo[read(self._pickled, at)[0]])
            return at + length

        return step

    # -- containers

    def _mark(self, at: int) -> int:
        if len(self._below) == _DEEPEST:
            _refuse(at)
        self._below.append(self._stack)
        self._stack = []
        return at

    def _marked(self) -> list[Any]:
        """What came after the last mark, which goes."""
        found, self._stack = self._stack, self._below.pop()
        return found

    def _container(self, kind: Callable[[], Any]) -> _Step:
        def step(at: int) -> int:
            self._count(at)
            self._stack.append(kind())
            return at

        return step

    def _tuple(self, length: int) -> _Step:
        def step(at: int) -> int:
            self._count(at)
            items = [self._stack.pop() for _ in range(length)]
            self._stack.append(tuple(reversed(items)))
            return at

        return step

    def _marked_tuple(self, at: int) -> int:
        self._count(at)
        items = self._marked()
        self._stack.append(tuple(items))
        return at

    def _append(self, at: int) -> int:
        item = self._stack.pop()
        self._filled(list, at).append(item)
        return at

    def _appends(self, at: int) -> int:
        items = self._marked()
        self._filled(list, at).extend(items)
        return at

    def _set_item(self, at: int) -> int:
        item, key = self._stack.pop(), self._stack.pop()
        self._set([key], [item], at)
        return at

    def _set_items(self, at: int) -> int:
        items = self._marked()
        self._set(items[::2], items[1::2], at)
        return at

    def _set(self, keys: list[Any], items: list[Any], at: int) -> None:
        """Keys are strings: of other keys somebody could choose those that make a dictionary slow."""
        if len(keys) != len(items) or not set(map(type, keys)) <= {str}:
            _refuse(at)
        self._filled(dict, at).update(zip(keys, items, strict=True))

    def _filled(self, kind: type, at: int) -> Any:
        container = self._stack[-1]
        if type(container) is not kind:
            _damaged(at)
        return container
