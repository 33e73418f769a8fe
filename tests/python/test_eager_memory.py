"""PyTorch's allocator, simulated: sequences made by hand, with the arithmetic, and eager steps."""

import itertools
import random

import pytest
import torch
from torch import nn

import lowtide
from caching_allocator import MIB, Block, CachingAllocator
from eager_memory import run_eager
from lowtide._core import GraphBuilder
from models import plain_step


@pytest.mark.parametrize(
    ("sizes", "reserved", "allocated"),
    [
        ([0], 0, 0),
        ([1], 2 * MIB, 512),  # rounded up, in a small segment
        ([513], 2 * MIB, 1024),
        ([MIB, MIB], 2 * MIB, 2 * MIB),  # two small ones fill a segment
        ([MIB, MIB, 1], 4 * MIB, 2 * MIB + 512),
        ([MIB + 1], 20 * MIB, MIB + 512),  # the smallest large one
        ([9 * MIB, 9 * MIB], 20 * MIB, 18 * MIB),  # of the rest of 11 MiB, 2 MiB are split off
        ([10 * MIB - 512] * 2, 20 * MIB, 20 * MIB),  # of the rest of 10 MiB + 512, 1024 bytes are not
        ([10 * MIB], 10 * MIB, 10 * MIB),  # from here on segments of their own ...
        ([10 * MIB + 1], 12 * MIB, 10 * MIB + 512),  # ... rounded up to 2 MiB, of which the rest is split off ...
        ([19 * MIB], 20 * MIB, 20 * MIB),  # ... unless it is at most 1 MiB
    ],
)
def test_what_requests_reserve(sizes: list[int], reserved: int, allocated: int) -> None:
    allocator = CachingAllocator()
    for size in sizes:
        allocator.allocate(size)
    assert (allocator.reserved_bytes, allocator.allocated_bytes) == (reserved, allocated)


def block(allocator: CachingAllocator, size: int) -> Block:
    made = allocator.allocate(size)
    assert made is not None
    return made


def test_the_smallest_free_block_that_holds_it_is_taken() -> None:
    allocator = CachingAllocator()
    blocks = [block(allocator, size * MIB) for size in (40, 30, 20, 30)]
    for freed in blocks:
        allocator.free(freed)
    assert block(allocator, 22 * MIB).address == 40 * MIB, "the lower of the two of 30 MiB"
    # Of that, 8 MiB are free now: the smallest that holds 5.
    assert block(allocator, 5 * MIB).address == 62 * MIB
    assert allocator.reserved_bytes == 120 * MIB


def test_free_neighbours_join_within_a_segment_only() -> None:
    allocator = CachingAllocator()
    parts = [block(allocator, 5 * MIB) for _ in range(8)]  # two segments of 20 MiB, both full
    for part in parts[1:7]:
        allocator.free(part)
    assert allocator.reserved_bytes == 40 * MIB
    block(allocator, 15 * MIB)  # the last three of the first segment are one
    block(allocator, 15 * MIB)
    assert allocator.reserved_bytes == 40 * MIB
    for freed in (parts[0], parts[7]):
        allocator.free(freed)
    block(allocator, 10 * MIB)  # 5 MiB are free in each, which are not one
    assert allocator.reserved_bytes == 50 * MIB


def test_small_and_large_have_pools_of_their_own() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(20 * MIB))
    allocator.allocate(MIB)
    assert allocator.reserved_bytes == 22 * MIB


def test_blocks_never_overlap_and_everything_is_free_in_the_end() -> None:
    chance = random.Random(0)
    allocator = CachingAllocator()
    held: list[Block] = []
    for _ in range(3000):
        if held and chance.random() < 0.48:
            allocator.free(held.pop(chance.randrange(len(held))))
        else:
            held.append(block(allocator, int(10 ** chance.uniform(0, 7.5))))
    ordered = sorted(held, key=lambda one: one.address)
    assert all(one.address + one.size <= other.address for one, other in itertools.pairwise(ordered))
    assert ordered[-1].address + ordered[-1].size <= allocator.reserved_bytes
    assert allocator.allocated_bytes == sum(one.size for one in held)
    reserved = allocator.reserved_bytes
    for one in held:
        allocator.free(one)
    assert allocator.allocated_bytes == 0
    again = [allocator.allocate(MIB) for _ in range(2)]
    assert allocator.reserved_bytes == reserved and again[0] is not again[1]


def test_gradients_live_until_they_are_zeroed() -> None:
    builder = GraphBuilder()

    def buffer(size: int, role: str, *, resident: bool = False, initial: bool = False) -> int:
        return builder.buffer(size * MIB, resident=resident, initial=initial, role=role, name="")

    weight = buffer(10, "parameter", resident=True, initial=True)
    state = buffer(20, "optimizer_state", resident=True)
    made = buffer(30, "activation")
    gradient = buffer(10, "gradient", resident=True)
    scratch = buffer(40, "temporary")
    builder.op("forward", [builder.value(weight, "", [])], [made])
    builder.op("backward", [builder.value(made, "", [])], [gradient])
    builder.op("update", [builder.value(gradient, "", [])], [scratch])
    builder.op("apply", [builder.value(scratch, "", [])], [weight, state], mutating=True)
    eager = run_eager(builder.build())
    assert eager.resident == 30 * MIB
    assert eager.live == 80 * MIB  # weight, state, gradient and scratch, from the second step on
    # Weight 10, made 30, gradient 10, scratch 40; the state finds room where made was, and leaves 10 of it. In the
    # second step made finds room where scratch was, the gradient in these 10, and scratch where it was before.
    assert eager.reserved == 90 * MIB
    assert eager.fragmentation == pytest.approx(1 - 80 / 90)


def test_a_simulated_step_holds_what_a_real_one_does() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.Adam(model.parameters())
    batch = {"x": torch.randn(512, 256), "y": torch.randint(10, (512,))}
    step = plain_step(model, optimizer)
    eager = run_eager(lowtide.capture(step, model=model, optimizer=optimizer, example=(batch,)))
    step(batch)
    optimizer.zero_grad()
    with lowtide.measure() as used:
        step(batch)
    simulated = eager.live - eager.resident
    assert simulated <= used.peak_bytes <= 1.02 * simulated, "operators' own workspaces are not in the graph"
