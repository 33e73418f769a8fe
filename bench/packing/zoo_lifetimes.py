"""The lives and sizes of the planned buffers of some training steps of the zoo, as files for problems.py.

python -m bench.packing.zoo_lifetimes

Steps are in program order, sizes rounded up to the 64 bytes that a plan aligns them to.
"""

from __future__ import annotations

import gzip

import lowtide
from bench import zoo
from bench.packing.problems import HEADER, UNIT, ZOO
from bench.zoo.graphs import Form, graph_of

STEPS = {
    "googlenet": 32,
    "efficientnet_b0": 32,
    "inception_resnet_v2": 32,
    "resnet101_fpn": 6,
    "unet_plus_plus": 16,
    "bert_base": 32,
    "t5_base": 8,
    "gpt_neo_1.3b": 32,
}


def main() -> None:
    """Writes a file for each."""
    ZOO.mkdir(parents=True, exist_ok=True)
    for name, batch in STEPS.items():
        use = next(use for use in zoo.row_of(name).uses if batch in use.batches)
        graph = graph_of(name, use, batch, Form())[0]
        plan = lowtide.plan(graph, layout="first_fit")
        lives = zip(plan.begins(), plan.ends(), plan.offsets(), strict=True)
        rows = [
            (begin, end, -(-graph.buffer_size(buffer) // UNIT) * UNIT)
            for buffer, (begin, end, offset) in enumerate(lives)
            if offset >= 0
        ]
        lines = [f"{i},{begin},{end},{size}" for i, (begin, end, size) in enumerate(rows) if end > begin and size > 0]
        path = ZOO / f"{name}.csv.gz"
        path.write_bytes(gzip.compress("\n".join([HEADER, *lines, ""]).encode(), mtime=0))
        print(f"{path.name}: {len(lines)} buffers, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
