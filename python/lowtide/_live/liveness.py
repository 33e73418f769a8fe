"""Which local variables no later instruction of a running function reads."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

_READS = frozenset({"LOAD_FAST", "LOAD_CLOSURE", "LOAD_DEREF", "LOAD_CLASSDEREF", "DELETE_FAST", "LOAD_FAST_CHECK"})
_LEAVES = frozenset({"RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "RETURN_CONST", "RETURN_GENERATOR"})
_ALWAYS_JUMPS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})
_LOOKS_AT_ALL = frozenset({"locals", "vars", "eval", "exec", "dir", "breakpoint", "_getframe", "currentframe", "stack"})
_OPTIMIZED = 0x1  # a function's code, whose variables are fast locals
_GENERATORS = 0x20 | 0x80 | 0x200
_REFERENCES_OF_FRAME = 3  # to the copy of its variables, if nobody else has it: its own, and two where that is counted


def dead_values(frame: FrameType) -> Iterator[Any]:
    """What the variables of a running function hold that it will not read again."""
    code = frame.f_code
    if not code.co_flags & _OPTIMIZED or code.co_flags & _GENERATORS or frame.f_trace is not None:
        return
    dead = _dead_names(code, frame.f_lasti)
    if not dead:
        return
    values = frame.f_locals
    yield from [values[name] for name in dead if name in values]
    if sys.getrefcount(values) <= _REFERENCES_OF_FRAME:
        values.clear()  # a copy, which would hold on to everything as long as the frame lives


@lru_cache(maxsize=4096)
def _dead_names(code: CodeType, last: int) -> frozenset[str]:
    if not _LOOKS_AT_ALL.isdisjoint(code.co_names):
        return frozenset()
    shared = {*code.co_cellvars, *code.co_freevars}
    return frozenset(code.co_varnames) - live_after(code, last) - shared


def _jumps(instruction: dis.Instruction) -> bool:
    return instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs


def live_after(code: CodeType, last: int) -> frozenset[str]:
    """Names that an instruction behind the one at `last` may read before it writes them, in handlers too."""
    instructions = list(dis.get_instructions(code))
    at = {one.offset: index for index, one in enumerate(instructions)}
    handlers = [(entry.start, entry.end, entry.target) for entry in dis._parse_exception_table(code)]  # type: ignore[attr-defined]
    here = at[max(offset for offset in at if offset <= last)]
    pending = [(here + 1, frozenset[str]())]
    if _jumps(instructions[here]):  # by a value that is being asked for
        pending.append((at[instructions[here].argval], frozenset()))
    pending += [(at[target], frozenset[str]()) for start, end, target in handlers if start <= last < end]
    seen: set[tuple[int, frozenset[str]]] = set()
    live: set[str] = set()
    while pending:
        index, written = pending.pop()
        while index < len(instructions) and (index, written) not in seen:
            seen.add((index, written))
            one = instructions[index]
            pending += [(at[target], written) for start, end, target in handlers if start <= one.offset < end]
            if one.opname in _READS and one.argval not in written:
                live.add(one.argval)
            if one.opname == "STORE_FAST":
                written = written | {one.argval}
            if one.opname in _LEAVES:
                break
            if _jumps(one):
                pending.append((at[one.argval], written))
                if one.opname in _ALWAYS_JUMPS:
                    break
            index += 1
    return frozenset(live)
