"""What a buffer is to a reader of a page: the bands in which live bytes are stacked."""

from __future__ import annotations

from .._base.graph_file import GraphFile

PARAMETERS, STATE, OTHER_RESIDENT, GRADIENTS, SAVED, TENSORS, WORKSPACES = range(7)
NAMES = (
    "parameters",
    "optimizer state",
    "buffers and inputs",
    "gradients",
    "saved for backward",
    "other tensors",
    "workspaces",
)
"""From the bottom of the stack to its top: what stays, then what comes and goes."""

_OF_ROLE = {"parameter": PARAMETERS, "optimizer_state": STATE, "gradient": GRADIENTS}


def bands_of(file: GraphFile) -> list[int]:
    """By buffer. An activation of the forward pass that an op of the backward pass reads is saved for it."""
    ops = file.ops
    maker: dict[int, int] = {}
    read_backward: set[int] = set()
    read_forward: set[int] = set()
    for op, fields in enumerate(ops):
        (read_backward if fields.get("backward") else read_forward).update(file.reads(op))
        for buffer in file.writes(op):
            maker.setdefault(buffer, op)

    def band_of(buffer: int) -> int:
        fields = file.buffers[buffer]
        role = fields.get("role", "activation")
        if role in _OF_ROLE:
            return _OF_ROLE[role]
        if fields.get("resident"):
            return OTHER_RESIDENT
        if role != "activation" or buffer not in maker:
            return TENSORS
        if not ops[maker[buffer]].get("backward"):
            return SAVED if buffer in read_backward else TENSORS
        return GRADIENTS if buffer in read_forward else TENSORS

    return [band_of(buffer) for buffer in range(len(file.buffers))]
