"""Packs a CSV file by omnimalloc's supermalloc, as packers.py asks: INPUT OUTPUT THREADS SECONDS [CAPACITY]."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from omnimalloc import Allocation
from omnimalloc.allocators import supermalloc

from bench.packing.problems import HEADER, read


def main() -> None:
    """Writes the offsets, and prints what packing alone took."""
    path, output, threads, seconds, *capacity = sys.argv[1:]
    problem = read(Path(path))
    columns = (problem.lower.tolist(), problem.upper.tolist(), problem.size.tolist())
    allocations = tuple(
        Allocation(id=i, size=size, start=lower, end=upper)
        for i, (lower, upper, size) in enumerate(zip(*columns, strict=True))
    )
    if capacity:  # it knows no capacity, but can be told that it need not search below one
        search = supermalloc._search
        supermalloc._search = lambda portfolio, low, peak: search(portfolio, max(low, int(capacity[0])), peak)
    packer = supermalloc.SupermallocAllocator(timeout=float(seconds), num_threads=int(threads))
    begin, cpu_begin = time.perf_counter(), time.process_time()
    result = packer.solve(allocations)
    used = {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - cpu_begin}
    offsets = np.zeros(len(problem), dtype=np.int64)
    for allocation in result.allocations:
        offsets[allocation.id] = allocation.offset
    rows = np.stack([problem.ids, problem.lower, problem.upper, problem.size, offsets], axis=1)
    np.savetxt(output, rows, fmt="%d", delimiter=",", header=HEADER + ",offset", comments="")
    print(json.dumps(used))


if __name__ == "__main__":
    main()
