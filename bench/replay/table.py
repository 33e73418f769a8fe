"""Eager loops from one arena, against PyTorch's own allocators: the experiments of Sekiyama et al. 2018.

    python -m bench run replay_table [--quick] [--full] [memory] [time] [step] [capacity]

`memory`: the arena beside the most bytes alive, what their best-fit heuristic needs, and what PyTorch's caching
allocator for CUDA (simulated) reserves for the same requests. `time`: nanoseconds for a request and its release, by
size: PyTorch's allocator for CPU, the simulated pool, and the arena; nothing is written to the memory. `step`: the
processor's time of a training step, replayed over plain, in processes of their own that take turns. `capacity`: the
largest batch for which resident bytes and pool, or arena, fit in what the pool takes at a batch of 8; and samples per
second there.

Everything runs on one thread. Models are the zoo's small ones at a batch of 8, with Adam; with `--full`, `memory` has
them in their published sizes.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import dataclasses
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from statistics import median
from typing import Any

import torch

import lowtide
from bench import zoo
from bench.lib.apart import ROOT, command_of
from bench.lib.markdown import header, line
from bench.lib.progress import each
from bench.zoo.graphs import MIB
from lowtide import _core, _torch
from lowtide._replay.profiles import Packed

MODELS = (
    "alexnet", "googlenet", "resnet50", "inception_resnet_v2", "bert_base", "gpt2", "t5_base", "lstm_seq2seq"
)  # fmt: skip
TABLES = ("memory", "time", "step", "capacity")
BATCH = 8
FULL = {  # batch, and side or length
    "alexnet": (32, 224), "googlenet": (8, 224), "resnet50": (8, 224), "inception_resnet_v2": (2, 299),
    "bert_base": (4, 128), "gpt2": (2, 256), "t5_base": (2, 128), "lstm_seq2seq": (16, 50),
}  # fmt: skip
CLASSES = (
    ("below 1 KiB", 0, 1 << 10),
    ("below 64 KiB", 1 << 10, 64 << 10),
    ("below 1 MiB", 64 << 10, 1 << 20),
    ("1 MiB and more", 1 << 20, 1 << 62),
)


def build(name: str, batch: int = BATCH) -> zoo.Job:
    """The small model, on texts twice as long as in the tests."""
    job = zoo.build(name, batch=batch)
    return dataclasses.replace(job, extent=2 * job.extent) if job.row.small.extent == 16 else job


def build_full(name: str) -> zoo.Job:
    """The published model, on inputs that a CPU has the time for."""
    batch, extent = FULL[name]
    return zoo.build(name, "paper", use=zoo.Use("", (batch,), extent))


def training(job: zoo.Job) -> Callable[[int], None]:
    step = job.train_step(job.model, torch.optim.Adam(job.model.parameters()))
    return lambda number: step(job.make_batch(job.batch_size, number % 4))


def inference(job: zoo.Job) -> Callable[[int], None]:
    def run(number: int) -> None:
        with torch.no_grad():
            job.row.task.loss(job.model, job.make_batch(job.batch_size, number % 4))

    return run


def packed_of(run: Callable[[int], None], iterations: int = 6) -> Packed:
    """What is known of its iterations after some of them: the largest way that they go."""
    with lowtide.replay() as replay:
        for number in range(iterations):
            run(number)
            replay.step()
            replay.settle()
        return max(replay.profiles(), key=lambda packed: packed.arena_bytes)


def resident_bytes(job: zoo.Job) -> int:
    """Parameters, buffers, and the state of Adam."""
    held = [*job.model.parameters(), *job.model.buffers()]
    return sum(t.nbytes for t in held) + 2 * sum(p.nbytes for p in job.model.parameters() if p.requires_grad)


def print_memory(models: Sequence[str], build: Callable[[str], zoo.Job]) -> list[dict[str, Any]]:
    """The table; gives its rows."""
    columns = ("model", "", "requests", "most alive MiB", "arena", "fragmentation", "best fit", "pool", "arena / pool")
    print(header((*columns, "ms to pack")))
    rows: list[dict[str, Any]] = []
    for name in each(models, "models"):
        for what, loop in (("training", training), ("inference", inference)):
            packed = packed_of(loop(build(name)))
            heuristic = Packed.pack(packed.recording, algorithm="skyline")
            row = {
                "model": name,
                "loop": what,
                "requests": len(packed.recording),
                "peak_bytes": packed.peak_bytes,
                "arena_bytes": packed.arena_bytes,
                "proven": is_proven(packed),
                "best_fit_bytes": heuristic.arena_bytes,
                "pool_bytes": packed.pooled_bytes,
                "packing_seconds": packed.seconds,
            }
            rows.append(row)
            alive, arena, best_fit, pool = (row[f"{k}_bytes"] / MIB for k in ("peak", "arena", "best_fit", "pool"))
            cells = (
                name, what, row["requests"], f"{alive:.2f}", f"{arena:.2f}{'' if row['proven'] else ' (not proven)'}",
                f"{100 * (1 - alive / arena):.2f} %", f"{best_fit:.2f}", f"{pool:.2f}", f"{arena / pool:.2f}",
                f"{1e3 * packed.seconds:.0f}",
            )  # fmt: skip
            print(line(cells), flush=True)
    print(f"\n{sum(row['proven'] for row in rows)} of {len(rows)} arenas are the smallest there are.\n")
    return rows


def is_proven(packed: Packed) -> bool:
    return packed.arena_bytes - packed.bound_bytes < 64


def of_sizes(packed: Packed, least: int, most: int) -> Packed | None:
    """The requests of these sizes alone, where they are in the whole."""
    recording, offsets = packed.recording, packed.script.offsets
    sizes, ends = recording.bytes, recording.ends
    chosen = [i for i, size in enumerate(sizes) if least <= size < most and offsets[i] >= 0]
    if not chosen:
        return None
    part = _torch.Recording(
        [sizes[i] for i in chosen],
        list(range(len(chosen))),
        [bisect.bisect_left(chosen, ends[i]) for i in chosen],
        [False] * len(chosen),
    )
    script = _torch.Script(part, [offsets[i] for i in chosen])
    return Packed(part, script, packed.arena_bytes, packed.bound_bytes, packed.algorithm, packed.seconds)


@dataclasses.dataclass(frozen=True)
class Nanos:
    """Of a request and its release."""

    model: str
    sizes: str
    requests: int
    ordinary: float
    pool: float
    replayed: float


def nanos_of(model: str, sizes: str, packed: Packed, rounds: int) -> Nanos:
    """Medians; all three take turns."""
    native = _torch.eager_replay()
    native.start()
    native.set_arena(packed.arena_bytes)
    taken: list[tuple[float, float, float]] = []
    pool = _core.CachingAllocator()
    for _ in range(rounds):
        ordinary, replayed = _torch.time_allocations(packed.recording, packed.script, rounds=3)
        taken.append((ordinary, pool.play(packed.events, iterations=2), replayed))
    native.stop()
    count = len(packed.recording)
    ordinary, pooled, replayed = (median(column) / count for column in zip(*taken, strict=True))
    return Nanos(model, sizes, count, ordinary, pooled, replayed)


def print_time(models: Sequence[str], rounds: int) -> list[Nanos]:
    """The table; gives its rows."""
    print(header(("model", "size", "requests", "PyTorch ns", "pool ns", "arena ns", "arena / PyTorch")))
    rows = []
    for name in each(models, "models"):
        whole = packed_of(training(build(name)))
        parts: list[tuple[str, Packed | None]] = [("all", whole)]
        parts += [(label, of_sizes(whole, least, most)) for label, least, most in CLASSES]
        for label, packed in parts:
            if packed is None:
                continue
            nanos = nanos_of(name, label, packed, rounds)
            rows.append(nanos)
            times = [f"{taken:.0f}" for taken in (nanos.ordinary, nanos.pool, nanos.replayed)]
            print(line((name, label, nanos.requests, *times, f"{nanos.replayed / nanos.ordinary:.2f}")), flush=True)
    print()
    return rows


def serve_steps(name: str, side: str, batch: int) -> None:
    """Trains for as long as lines come in: for each, a step, and its seconds of the processor as a line."""
    torch.set_num_threads(1)
    run = training(build(name, batch))
    replaying = lowtide.replay() if side == "replayed" else contextlib.nullcontext()
    with replaying as replay:
        for number in range(8):
            run(number)
            if replay is not None:
                replay.settle()
        for number, _ in enumerate(sys.stdin):
            begin = time.process_time()
            run(number)
            print(time.process_time() - begin, flush=True)


def timed_apart(name: str, batches: tuple[int, int], steps: int) -> tuple[float, float]:
    """Median seconds of a step, plain and replayed, in two processes that take turns."""
    taken: tuple[list[float], list[float]] = ([], [])
    with contextlib.ExitStack() as stack:
        sides = []
        for side, batch in zip(("plain", "replayed"), batches, strict=True):
            command = command_of("bench.replay.table", name, side, str(batch))
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            sides.append(stack.enter_context(subprocess.Popen(command, cwd=ROOT, text=True, **pipes)))
        for _ in range(steps):
            for process, seconds in zip(sides, taken, strict=True):
                assert process.stdin is not None and process.stdout is not None
                process.stdin.write("\n")
                process.stdin.flush()
                seconds.append(float(process.stdout.readline()))
    return median(taken[0]), median(taken[1])


def print_steps(models: Sequence[str], steps: int) -> list[dict[str, Any]]:
    """The table; gives its rows."""
    print(header(("model", "plain ms", "replayed ms", "replayed / plain")))
    rows = []
    for name in each(models, "models"):
        plain, replayed = (1e3 * seconds for seconds in timed_apart(name, (BATCH, BATCH), steps))
        rows.append({"model": name, "plain_ms": plain, "replayed_ms": replayed})
        print(line((name, f"{plain:.2f}", f"{replayed:.2f}", f"{replayed / plain:.3f}")), flush=True)
    print()
    return rows


def needs(name: str, batch: int) -> tuple[int, int]:
    """Bytes of pool and of arena, with all that stays beside them."""
    job = build(name, batch)
    packed = packed_of(training(job), iterations=5)
    stays = sum(size for size, stay in zip(packed.recording.bytes, packed.recording.stays, strict=True) if stay)
    beside = resident_bytes(job) + stays
    return packed.pooled_bytes + beside, packed.arena_bytes + beside


def largest_batch(fits: Callable[[int], bool], known: int) -> int:
    """The largest that fits, from one that does."""
    low, high = known, known + max(1, known // 4)
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def print_capacity(models: Sequence[str], steps: int) -> list[dict[str, Any]]:
    """The table; gives its rows."""
    columns = ("model", "capacity MiB", "largest batch, pool", "arena", "samples/s, plain", "replayed")
    print(header((*columns, "replayed / plain")))
    rows = []
    for name in each(models, "models"):
        need = cache(partial(needs, name))
        capacity = need(BATCH)[0]

        def fits(batch: int, side: int, need: Any = need, capacity: int = capacity) -> bool:
            return need(batch)[side] <= capacity

        batches = tuple(largest_batch(partial(fits, side=side), BATCH) for side in (0, 1))
        seconds = timed_apart(name, batches, steps)
        plain, replayed = (batch / taken for batch, taken in zip(batches, seconds, strict=True))
        rows.append(
            {
                "model": name,
                "capacity_bytes": capacity,
                "pool_batch": batches[0],
                "arena_batch": batches[1],
                "plain_samples": plain,
                "replayed_samples": replayed,
            }
        )
        speeds = (f"{plain:.0f}", f"{replayed:.0f}", f"{replayed / plain:.2f}")
        print(line((name, f"{capacity / MIB:.1f}", *batches, *speeds)), flush=True)
    print()
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(TABLES)}; all unless named")
    parser.add_argument("--quick", action="store_true", help="two models, few steps: does it run?")
    parser.add_argument("--full", action="store_true", help="memory of the models in their published sizes")
    parser.add_argument("--models", nargs="*", default=MODELS)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Prints the tables; gives their rows."""
    models = options.models[:2] if options.quick else options.models
    steps, rounds = (3, 1) if options.quick else (60, 5)
    tables: dict[str, Callable[[], Any]] = {
        "memory": lambda: print_memory(models, build_full if options.full else build),
        "time": lambda: print_time(models, rounds),
        "step": lambda: print_steps(models, steps),
        "capacity": lambda: print_capacity(models, steps),
    }
    torch.set_num_threads(1)
    return {name: tables[name]() for name in options.tables or TABLES}


if __name__ == "__main__":
    serve_steps(sys.argv[1], sys.argv[2], int(sys.argv[3]))
