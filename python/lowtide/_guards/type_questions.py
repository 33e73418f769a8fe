"""Code that asks which class a value has, as `type(x) is torch.Tensor` does.

What stands in for a tensor is an instance of `torch.Tensor`, but `type` tells it from one, and nothing can keep it from
that. So code is looked at before it runs: its bytecode, for what becomes of the answer.
"""

from __future__ import annotations

import builtins
import dis
import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

_ASKED_FOR = (torch.Tensor, torch.nn.Parameter)
_THEIR_NAMES = frozenset({"Tensor", "Parameter"})
_NAMES_OF_CLASSES = frozenset({"__name__", "__qualname__", "__module__"})
_OWN = frozenset({"self", "cls"})  # which no tensor is called

# Functions that may be given a class: they show it, or tensors and what stands in for them are alike for them.
_HARMLESS = frozenset(
    {"isinstance", "issubclass", "hasattr", "getattr", "str", "repr", "print", "format", "super", "debug", "info",
     "warning", "warn", "error", "exception", "log", "warning_once"}
)  # fmt: skip
_SHOWS = frozenset({"FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE", "POP_TOP"})
_COMPARES = frozenset({"COMPARE_OP", "IS_OP", "CONTAINS_OP", "BINARY_SUBSCR", "BINARY_OP"})
_LEAVES = frozenset({"RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "RETURN_CONST"})
_TAKES_ALL = ("STORE_", "POP_", "DELETE_", "RETURN_", "RAISE_", "LIST_", "SET_", "MAP_", "DICT_")  # and gives nothing
_BUILDS = frozenset({"BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_MAP", "BUILD_CONST_KEY_MAP"})
_MOVES_NOTHING = frozenset(
    {"NOP", "RESUME", "CACHE", "PRECALL", "KW_NAMES", "EXTENDED_ARG", "MAKE_CELL", "COPY_FREE_VARS", "DELETE_FAST",
     "SETUP_ANNOTATIONS", "NOT_TAKEN", "RETURN_GENERATOR", "GEN_START"}
)  # fmt: skip


class Question(NamedTuple):
    """A line whose code asks for a class, and what the answer is held against: dotted names, or one of these."""

    line: int
    against: tuple[str, ...]


_UNKNOWN = "what nobody knows"
_ANOTHER_TYPE = "the class of something else"
_TENSORS = "the name of that of tensors"


class _Value(NamedTuple):
    """What is known of a value on the stack."""

    kind: str  # path, several, constant, type, name of a type, null, other
    text: str = ""
    parts: tuple[str, ...] = ()


_OTHER = _Value("other")
_NULL = _Value("null")
_THE_FUNCTION = _Value("path", "type")


def asks_for_tensors(function: types.FunctionType, *, users: bool) -> int:
    """The line of a function that asks whether the class of something is that of tensors; 0 if there is none.

    Of libraries' code only what says so itself: it is written for values of many classes.
    """
    for question in _questions(function.__code__):
        against = [_resolve(function, path) for path in question.against]
        if any(map(_is_or_has, against)):
            return question.line
        if users and (_ANOTHER_TYPE in against or (_UNKNOWN in against and _sees_tensors(function))):
            return question.line
    return 0


@functools.lru_cache(maxsize=4096)
def _questions(code: types.CodeType) -> tuple[Question, ...]:
    """Those of the code and of functions within it."""
    found = [question for inner in _codes_in(code) for question in _questions(inner)]
    if "type" in code.co_names or "__class__" in code.co_names:
        found = [*_Reading(code).questions, *found]
    return tuple(found)


def _codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    return (constant for constant in code.co_consts if isinstance(constant, types.CodeType))


def _all_names(code: types.CodeType) -> set[str]:
    return set(code.co_names).union(*map(_all_names, _codes_in(code)))


def _sees_tensors(function: types.FunctionType) -> bool:
    """Whether the code can get at the class by its names."""
    names = _all_names(function.__code__)
    if not names.isdisjoint(_THEIR_NAMES):
        return True
    given = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return any(map(_is_or_has, (*_cells(function).values(), *given, *map(function.__globals__.get, names))))


def _is_or_has(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_is_class, (*value.keys(), *value.values())))
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(map(_is_class, value))
    return _is_class(value)


def _is_class(value: Any) -> bool:
    return any(value is one for one in _ASKED_FOR)


def _cells(function: types.FunctionType) -> dict[str, Any]:
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    return found


def _resolve(function: types.FunctionType, path: str) -> Any:
    """What a dotted name is for the function, as far as no code has to run for it."""
    if path in (_UNKNOWN, _ANOTHER_TYPE):
        return path
    if path == _TENSORS:
        return torch.Tensor
    root, *rest = path.split(".")
    if root in function.__code__.co_varnames:
        return _UNKNOWN
    for names in (_cells(function), function.__globals__, vars(builtins)):
        if root in names:
            value = names[root]
            break
    else:
        return _UNKNOWN
    for name in rest:
        if not isinstance(value, (types.ModuleType, type)) or name not in vars(value):
            return _UNKNOWN
        value = vars(value)[name]
    return value


class _Reading:
    """Follows the stack through the code, in the order of its lines."""

    def __init__(self, code: types.CodeType) -> None:
        self.questions: list[Question] = []
        self._stack: list[_Value] = []
        self._variables: dict[str, _Value] = {}  # those that hold a class that was asked for
        self._line = code.co_firstlineno
        at_jumps: dict[int, list[_Value]] = {}
        falls_through = True
        for instruction in dis.get_instructions(code):
            if instruction.starts_line:
                self._line = _line_of(instruction) or self._line
            if not falls_through:
                self._stack = list(at_jumps.get(instruction.offset, ()))
            self._follow(instruction)
            if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
                at_jumps.setdefault(instruction.argval, list(self._stack))
            name = instruction.opname
            falls_through = name not in _LEAVES and not (name.startswith("JUMP_") and "IF" not in name)

    def _ask(self, *against: _Value) -> None:
        """An answer is held against something."""
        paths: list[str] = []
        for value in against:
            if value.kind == "path":
                paths.append(value.text)
            elif value.kind == "several":
                paths += value.parts
            elif value.kind != "constant":
                paths.append(_ANOTHER_TYPE if value.kind == "type" else _UNKNOWN)
        if paths:
            self.questions.append(Question(self._line, tuple(paths)))

    def _pop(self, count: int) -> list[_Value]:
        missing = max(0, count - len(self._stack))
        taken = self._stack[len(self._stack) + missing - count :] if count else []
        del self._stack[len(self._stack) - len(taken) :]
        return [_OTHER] * missing + taken

    def _follow(self, instruction: dis.Instruction) -> None:
        name, argument, value = instruction.opname, instruction.arg or 0, instruction.argval
        effect = _effect(instruction)
        if name in _MOVES_NOTHING or (effect == 0 and name.startswith("JUMP")):
            return
        if name == "PUSH_NULL":
            self._stack.append(_NULL)
        elif name in ("LOAD_GLOBAL", "LOAD_NAME") or name.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF")):
            self._load(value if isinstance(value, tuple) else (value,), effect)
        elif name in ("LOAD_ATTR", "LOAD_METHOD"):
            self._load_attribute(str(value), effect)
        elif name in ("LOAD_CONST", "LOAD_SMALL_INT"):
            self._stack.append(_Value("constant", value if isinstance(value, str) else ""))
        elif name.startswith("CALL") and not name.startswith("CALL_INTRINSIC"):
            self._call(_operands_of_call(name, argument, effect))
        elif name in _COMPARES:
            self._compare(self._pop(2))
        elif name in _BUILDS:
            self._build(self._pop(1 - effect))
        elif name in ("STORE_FAST", "STORE_NAME"):
            self._store(str(value), *self._pop(1))
        elif name in ("SWAP", "ROT_TWO"):
            self._swap(argument or 2)
        elif name in ("COPY", "DUP_TOP"):
            depth = argument or 1
            self._stack.append(self._stack[-depth] if depth <= len(self._stack) else _OTHER)
        else:
            self._anything(name, effect)

    def _load(self, names: Iterable[str], effect: int) -> None:
        names = list(names)
        self._stack += [_NULL] * (effect - len(names))  # of a function that is to be called
        self._stack += [self._variables.get(name, _Value("path", name)) for name in names]

    def _load_attribute(self, name: str, effect: int) -> None:
        (owner,) = self._pop(1)
        if owner.kind == "type":
            found = _Value("name of a type") if name in _NAMES_OF_CLASSES else _OTHER
        elif name == "__class__":
            found = _OTHER if owner.text in _OWN else _Value("type")
        else:
            found = _Value("path", f"{owner.text}.{name}" if owner.kind == "path" else f"?.{name}")
        self._stack += [found, _OTHER][: effect + 1]

    def _call(self, operands: int) -> None:
        popped = [value for value in self._pop(operands) if value is not _NULL]
        called, given = popped[0] if popped else _OTHER, popped[1:]
        if called == _THE_FUNCTION and len(given) == 1:
            self._stack.append(_OTHER if given[0].text in _OWN else _Value("type"))
            return
        shows = called.text.rpartition(".")[2] in _HARMLESS or called.text.endswith(("Error", "Exception", "Warning"))
        if not shows and any(value.kind == "type" or value == _THE_FUNCTION for value in given):
            self._ask(_OTHER)
        self._stack.append(_OTHER)

    def _compare(self, pair: list[_Value]) -> None:
        kinds = [value.kind for value in pair]
        if "type" in kinds:
            self._ask(pair[1 - kinds.index("type")])
        elif "name of a type" in kinds and pair[1 - kinds.index("name of a type")].text in _THEIR_NAMES:
            self._ask(_Value("path", _TENSORS))
        self._stack.append(_OTHER)

    def _build(self, items: list[_Value]) -> None:
        if any(item.kind == "type" for item in items):
            self._ask(_OTHER)
        parts = [item.text if item.kind == "path" else _UNKNOWN for item in items if item.kind != "constant"]
        self._stack.append(_Value("several", parts=tuple(parts)))

    def _store(self, name: str, value: _Value) -> None:
        if value.kind == "type":
            self._variables[name] = value
        else:
            self._variables.pop(name, None)

    def _swap(self, depth: int) -> None:
        if depth <= len(self._stack):
            self._stack[-1], self._stack[-depth] = self._stack[-depth], self._stack[-1]

    def _anything(self, name: str, effect: int) -> None:
        gives = 0 if effect > 0 or name.startswith(_TAKES_ALL) else 1
        taken = self._pop(max(0, gives - effect))
        if name not in _SHOWS and any(value.kind == "type" for value in taken):
            self._ask(_OTHER)
        self._stack += [_OTHER] * max(gives, effect)


def _operands_of_call(name: str, argument: int, effect: int) -> int:
    """How many values a call takes off the stack, with the function itself."""
    beside = {"CALL": 2, "CALL_KW": 3, "CALL_METHOD": 2, "CALL_FUNCTION": 1, "CALL_FUNCTION_KW": 2}
    return argument + beside[name] if name in beside else 1 - effect


def _effect(instruction: dis.Instruction) -> int:
    argument = instruction.arg if instruction.opcode >= dis.HAVE_ARGUMENT else None
    return dis.stack_effect(instruction.opcode, argument, jump=False)


def _line_of(instruction: dis.Instruction) -> int:
    line = getattr(instruction, "line_number", instruction.starts_line)
    return int(line or 0)
