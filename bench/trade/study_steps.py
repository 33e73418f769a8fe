"""Training steps that a study of recompute captured, as graphs with the costs that it counted.

A file is JSON, compressed by gzip: `bufs` are [bytes, kind], of which kind `plan` is planned and all others are
resident; `ops` have a target `n`, a phase `ph` (f, b or o for the optimizer), the buffers that they read `r`, write `w`
and make `a`, `rng`, FLOPs `fl` and bytes moved `by`; `outs` are the buffers that outlive the step. An op costs what
takes longer, its FLOPs at so many for each byte of bandwidth or its bytes; those of the optimizer cost nothing.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from lowtide import Graph, _core

ROLES = {
    "param": "parameter", "state": "optimizer_state", "buf": "buffer", "input": "input", "const": "constant",
    "plan": "activation",
}  # fmt: skip


def load(path: Path, flops_a_byte: float, reuse: bool) -> Graph:
    """The step; with `reuse`, operators may make results over operands as Lowtide's own table has it."""
    with gzip.open(path) as file:
        step = json.load(file)
    sizes, kinds = zip(*step["bufs"], strict=True)
    kept = {buffer for buffer in step["outs"] if kinds[buffer] == "plan"}
    builder = _core.GraphBuilder()
    for number, (size, kind) in enumerate(step["bufs"]):
        resident = kind != "plan"
        builder.buffer(size, resident=resident, initial=resident, role=ROLES[kind], name=f"b{number}")
    values: dict[int, int] = {}

    def value(buffer: int) -> int:
        if buffer not in values:
            values[buffer] = builder.value(buffer, "float32", [max(1, sizes[buffer] // 4)])
        return values[buffer]

    for fields in step["ops"]:
        made, changed = fields["a"], [b for b in fields["w"] if b not in fields["a"]]
        reads = [b for b in dict.fromkeys(fields["r"]) if b not in made]
        cost = 0 if fields["ph"] not in "fb" else int(max(fields["fl"] / flops_a_byte, fields["by"]))
        op = builder.op(
            fields["n"],
            [value(buffer) for buffer in reads],
            [*changed, *made],
            time_ns=cost,
            random=bool(fields["rng"]),
            mutating=bool(changed),
            may_skip_updates="batch_norm" in fields["n"] and fields["ph"] == "f",
        )
        if reuse and made:
            places = _core.op_row("aten::" + fields["n"].split(".")[0]).result_over
            for position in places:
                source = fields["r"][position] if position < len(fields["r"]) else made[0]
                fits = kinds[source] == "plan" and sizes[source] == sizes[made[0]]
                if fits and not {source, made[0]} & kept and source not in changed and source not in made:
                    builder.reuse(op, source, made[0])
        for buffer in changed:
            values.pop(buffer, None)
    for buffer in kept:
        builder.keep(buffer)
    return builder.build()
