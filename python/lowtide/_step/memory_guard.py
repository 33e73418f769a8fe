"""Guard mode: watches that no operator of a planned step reads or writes where it must not.

`LOWTIDE_GUARD=1` looks at the operands of each operator, `LOWTIDE_GUARD=all` at the whole arena after each. It is read
when `lowtide.compile` is called. The watching itself is done by the runtime; this file says what was found.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from .. import _torch
from .._lower.lowering import Lowered
from ..errors import MemoryGuardError

_LEVELS = {"": "off", "0": "off", "1": "operands", "all": "everything"}


@dataclass(frozen=True, slots=True)
class MemoryGuard:
    """How closely a step is watched, and what its plan has to leave free on either side of everything."""

    level: str
    margin: int


OFF = MemoryGuard("off", 0)


def chosen_guard() -> MemoryGuard:
    """What the environment asks for."""
    asked = os.environ.get("LOWTIDE_GUARD", "")
    if asked not in _LEVELS:
        raise ValueError(f'LOWTIDE_GUARD is "0", "1" or "all", not {asked!r}')
    level = _LEVELS[asked]
    return OFF if level == "off" else MemoryGuard(level, _torch.GUARD_MARGIN)


def explain_fault(
    fault: _torch.MemoryFault, lowered: Lowered, operators: Sequence[int], buffers: Sequence[int]
) -> MemoryGuardError:
    """A fault in the user's words, by the operator of each call and the step's buffer of each of the runtime's."""

    def operator(call: int) -> str:
        found = lowered.operators[operators[call]]
        module = f", {found.where.module}" if found.where.module else ""
        return f"{found.target} ({found.where.source}{module})"

    def memory(buffer: int) -> str:
        if buffer < 0:
            return "its workspace"
        found = lowered.buffers[buffers[buffer]]
        return f"{found.name or found.role} ({found.nbytes} bytes)"

    suspects = [operator(call) for call in range(fault.first_suspect, fault.last_suspect + 1)]
    by = suspects[0]
    if len(suspects) > 1:
        by = f"one of {len(suspects)} operators, {suspects[0]} to {suspects[-1]},"
    buffer = memory(fault.buffer)
    side = "in front of" if fault.distance < 0 else "behind the end of"
    said = {
        "overlap": f"{by} is given memory for {memory(fault.other)} where {buffer} is still alive",
        "dead_operand": f"{by} uses {buffer}, whose memory was given back before or never given",
        "changed": f"{by} changed {buffer}, which is not its to write",
        "out_of_range": f"{by} wrote outside of its operands: {side} {buffer}",
        "dead_changed": f"{by} wrote to memory that belonged to nobody then",
        "poison_result": f"{by} read memory that belongs to nobody, or left a part of its result {buffer} unwritten",
    }[fault.kind]
    if len(suspects) > 1:
        said += "; LOWTIDE_GUARD=all finds out which one"
    return MemoryGuardError(f"the memory guard stopped the step: {said}", kind=fault.kind, suspects=suspects)
