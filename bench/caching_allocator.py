"""PyTorch's caching allocator for CUDA, simulated: how many bytes a sequence of requests makes it reserve.

    allocator = CachingAllocator()
    block = allocator.allocate(3_000_000)   # reserves a segment of 20 MiB
    allocator.free(block)                   # which stays reserved

The rules are those of c10/cuda/CUDACachingAllocator.cpp with its default settings, on one stream, on a device that is
never full:

- requests are rounded up to 512 bytes, and nothing is given for none;
- those of up to 1 MiB come from segments of 2 MiB, those below 10 MiB from segments of 20 MiB, and larger ones from
  segments of their own, rounded up to 2 MiB; small and large ones have pools of their own;
- of the free blocks of its pool, a request takes the smallest that holds it, and of these that at the lowest address;
- what is left of that block is split off if it is at least 512 bytes, or in the large pool more than 1 MiB;
- a freed block joins its free neighbours in the segment; segments are never given back.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

MIB = 2**20
ROUNDING = 512
SMALL = MIB  # the largest request that is small
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
OWN_SEGMENT = 10 * MIB  # from here on, requests get a segment of their own
SEGMENT_ROUNDING = 2 * MIB


@dataclass(eq=False)
class Block:
    """A part of a segment; `before` and `after` are its neighbours there."""

    address: int
    size: int
    small: bool
    before: Block | None = None
    after: Block | None = None
    free: bool = False


class _Pool:
    """Free blocks, the smallest first, and of equal ones that at the lowest address."""

    def __init__(self) -> None:
        self._keys: list[tuple[int, int]] = []
        self._blocks: dict[int, Block] = {}  # by address

    def add(self, block: Block) -> None:
        bisect.insort(self._keys, (block.size, block.address))
        self._blocks[block.address] = block
        block.free = True

    def remove(self, block: Block) -> None:
        del self._keys[bisect.bisect_left(self._keys, (block.size, block.address))]
        del self._blocks[block.address]
        block.free = False

    def take(self, size: int) -> Block | None:
        place = bisect.bisect_left(self._keys, (size, 0))
        if place == len(self._keys):
            return None
        block = self._blocks[self._keys[place][1]]
        self.remove(block)
        return block


class CachingAllocator:
    """`reserved_bytes` is what `torch.cuda.memory_reserved()` would say, `allocated_bytes` `memory_allocated()`."""

    def __init__(self) -> None:
        self._pools = {small: _Pool() for small in (True, False)}
        self.reserved_bytes = 0
        self.allocated_bytes = 0
        self.most_allocated_bytes = 0

    def allocate(self, size: int) -> Block | None:
        """A block of at least so many bytes; none for 0 bytes."""
        if size == 0:
            return None
        size = _rounded(size, ROUNDING)
        small = size <= SMALL
        block = self._pools[small].take(size) or self._new_segment(size, small)
        rest = block.size - size
        if rest >= ROUNDING if small else rest > SMALL:
            self._split(block, size)
        self.allocated_bytes += block.size
        self.most_allocated_bytes = max(self.most_allocated_bytes, self.allocated_bytes)
        return block

    def free(self, block: Block | None) -> None:
        """Gives a block back."""
        if block is None:
            return
        self.allocated_bytes -= block.size
        pool = self._pools[block.small]
        if block.before is not None and block.before.free:
            pool.remove(block.before)
            block = _joined(block.before, block)
        if block.after is not None and block.after.free:
            pool.remove(block.after)
            block = _joined(block, block.after)
        pool.add(block)

    def _new_segment(self, size: int, small: bool) -> Block:
        if small:
            segment = SMALL_SEGMENT
        elif size < OWN_SEGMENT:
            segment = LARGE_SEGMENT
        else:
            segment = _rounded(size, SEGMENT_ROUNDING)
        block = Block(self.reserved_bytes, segment, small)  # segments follow each other, but blocks never join across
        self.reserved_bytes += segment
        return block

    def _split(self, block: Block, size: int) -> None:
        rest = Block(block.address + size, block.size - size, block.small, before=block, after=block.after)
        if rest.after is not None:
            rest.after.before = rest
        block.after = rest
        block.size = size
        self._pools[block.small].add(rest)


def _joined(first: Block, second: Block) -> Block:
    first.size += second.size
    first.after = second.after
    if first.after is not None:
        first.after.before = first
    return first


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit
