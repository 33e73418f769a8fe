"""Snapshots of PyTorch's own allocator on emulated CUDA: read, equal to its statistics byte for byte, and packed.

LOWTIDE_FULL=1 takes 25 snapshots of each model instead of one.
"""

import gc
import os
import pickle
import random
from pathlib import Path

import pytest
import torch

import lowtide
from bench import zoo
from lowtide._snapshot.unpickling import plain_data

FULL = os.environ.get("LOWTIDE_FULL") == "1"
NAMES = ["alexnet", "resnet50", "mobilenet_v2", "unet", "vit_base", "bert_base", "t5_base", "gpt2"]
MOMENTS = ["before the model", "before the first step", "after step 0"]  # from which on it is recorded
NOW = {  # statistics of PyTorch, and what they are called here
    "reserved_bytes.all.current": "reserved_bytes",
    "active_bytes.all.current": "active_bytes",
    "allocated_bytes.all.current": "allocated_bytes",
    "requested_bytes.all.current": "requested_bytes",
}
PEAKS = {"reserved_bytes.all.peak": "peak_reserved_bytes", "requested_bytes.all.peak": "peak_requested_bytes"}


@pytest.fixture(autouse=True)
def _as_it_was():
    yield
    forget()


def forget() -> None:
    """An allocator that holds nothing of what was before, and records nothing."""
    torch.cuda.memory._record_memory_history(enabled=None)
    torch._C._accelerator_setAllocatorSettings("expandable_segments:False")
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def record(name: str, draw: random.Random, file: Path) -> tuple[dict[str, int], bool]:
    """PyTorch's statistics when the snapshot was written, and whether the trace goes back to when they began."""
    forget()
    moment, steps = draw.choice(MOMENTS), draw.randrange(1, 4)
    stacks = {"context": draw.choice(["all", "alloc", None]), "stacks": draw.choice(["all", "python"])}
    most = draw.choice([200, 10**9, 10**9])
    torch._C._accelerator_setAllocatorSettings(f"expandable_segments:{draw.random() < 0.3}")

    def begin(now: str) -> None:
        if now == moment:
            torch.cuda.memory._record_memory_history(max_entries=most, **stacks)
            torch.cuda.reset_peak_memory_stats()

    begin("before the model")
    job = zoo.build(name, batch=draw.randrange(2, 6))
    model = job.model.train().cuda()
    optimizer = draw.choice([torch.optim.AdamW, torch.optim.SGD])(model.parameters())
    step = job.train_step(model, optimizer)
    begin("before the first step")
    for count, batch in enumerate(job.batches(steps)):
        step({key: value.cuda() for key, value in batch.items()})
        if draw.random() < 0.2:
            torch.cuda.empty_cache()
        begin(f"after step {count}")
    if draw.random() < 0.3:
        beside_a_stream()
    statistics = torch.cuda.memory_stats()
    torch.cuda.memory._dump_snapshot(str(file))
    written = pickle.loads(file.read_bytes())
    assert plain_data(file.read_bytes()) == written
    return statistics, len(written["device_traces"][0]) < most


def beside_a_stream() -> None:
    """What a second stream still uses when it is freed."""
    stream = torch.cuda.Stream()
    here = torch.ones(1 << 20, device="cuda")
    with torch.cuda.stream(stream):
        here.mul_(2)
    here.record_stream(stream)


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_those_of_the_allocator(name, tmp_path):
    file = tmp_path / "trace.pickle"
    for number in range(25 if FULL else 1):
        draw = random.Random(f"{name} {number}")
        statistics, goes_back = record(name, draw, file)
        found = lowtide.snapshot(file)
        figures = found.figures()
        assert {ours: figures[ours] for ours in NOW.values()} == {ours: statistics[his] for his, ours in NOW.items()}
        for his, ours in PEAKS.items():
            was = statistics[his]
            assert figures[ours] == was or (not goes_back and figures[ours] < was), (number, ours)
        assert figures["peak_requested_bytes"] <= figures["packed_bound_bytes"] <= figures["packed_bytes"]
        assert figures["packed_bytes"] <= figures["peak_reserved_bytes"]
        everyone = found.figures(top=10**6)["holders"]
        assert sum(holder["bytes"] for holder in everyone) == figures["peak_requested_bytes"]
        found.save(tmp_path / "page.html")  # both plans of the page are verified, the allocator's own is one
        reserved, packed = figures["peak_reserved_bytes"], figures["packed_bytes"]
        print(f"{name} {number}: {reserved=} {packed=} bound={figures['packed_bound_bytes']}")


def make_and_keep(kept: list) -> None:
    kept.append(torch.ones(5 << 20, device="cuda"))


def test_the_line_that_holds_the_peak_is_named(tmp_path):
    torch.cuda.memory._record_memory_history()
    kept: list = []
    for _ in range(3):
        make_and_keep(kept)
    torch.cuda.memory._dump_snapshot(str(tmp_path / "trace.pickle"))
    figures = lowtide.snapshot(tmp_path / "trace.pickle").figures(top=10)
    assert lowtide.snapshot(torch.cuda.memory._snapshot()).figures(top=10)["holders"] == figures["holders"]
    holder = next(one for one in figures["holders"] if one["source"])  # other tests may have left memory in use
    line = make_and_keep.__code__.co_firstlineno + 1
    assert holder["source"] == f"{__file__}:{line}" and holder["function"] == "make_and_keep"
    assert (holder["op"], holder["count"], holder["largest_bytes"]) == ("aten::ones", 3, 20 << 20)
