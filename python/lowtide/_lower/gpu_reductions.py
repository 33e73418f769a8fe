"""Sums and means on a GPU: how many bytes blocks of threads leave for one another when several share an output.

PyTorch decides that from the shape and the device alone (`setReduceConfig` in ATen/native/cuda/Reduce.cuh), and so does
this, step by step. A bias' gradient, a sum over thousands of rows, may take fifty times the bytes of the rows' width.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from .._capture.recorder import Ref
from .gpus import Device

_MOST_THREADS = 512  # of a block
_VECTOR = 4  # elements that a thread loads at once
_MOST_VALUES = 256  # that one thread adds up
_ACCUMULATOR_BYTES = 4  # float32, also for half precision
_SEMAPHORE_BYTES = 4


def bytes_between_blocks(x: Ref, over: Collection[int], device: Device) -> tuple[int, ...]:
    """Requests of a sum of `x` over these dimensions: partial sums and semaphores, if blocks share an output."""
    reduced, kept = (
        _joined([(n, s) for d, (n, s) in enumerate(zip(x.sizes, x.strides, strict=True)) if (d in over) is wanted])
        for wanted in (True, False)
    )
    if not reduced or not all(x.sizes):
        return ()
    along_input = not kept or reduced[0][1] < kept[0][1]
    split = _Split(
        outputs=math.prod(n for n, _ in kept), inputs=math.prod(n for n, _ in reduced), along_input=along_input
    )
    fastest = (reduced if along_input else kept)[0][1]
    width, height = (split.inputs, split.outputs) if along_input else (split.outputs, split.inputs)
    if fastest == 1 and along_input and width >= 128 and len(reduced) == 1:
        width //= _VECTOR
    elif fastest == 1 and not along_input:
        split.vector = math.gcd(_VECTOR, x.offset, kept[0][0], *(s for _, s in (*reduced, *kept[1:])))
        width //= split.vector
    split.into_threads(width, height, device.warp)
    return split.into_blocks(device)


def _joined(dimensions: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sizes and strides, the smallest stride first; dimensions that follow one another in memory are one."""
    joined: list[tuple[int, int]] = []
    for n, stride in sorted(((n, s) for n, s in dimensions if n > 1), key=lambda dimension: dimension[1]):
        if joined and joined[-1][0] * joined[-1][1] == stride:
            joined[-1] = (joined[-1][0] * n, joined[-1][1])
        else:
            joined.append((n, stride))
    return joined


@dataclass(slots=True)
class _Split:
    """Who adds up what: threads of a block, and blocks."""

    outputs: int
    inputs: int  # of each output
    along_input: bool  # neighbouring threads have inputs of the same output
    vector: int = 1  # outputs of a thread
    width: int = field(init=False, default=1)  # of a block, in threads
    height: int = field(init=False, default=1)
    sharing: int = field(init=False, default=1)  # threads of a block that share an output
    apart: int = field(init=False, default=1)  # that do not

    def into_threads(self, width: int, height: int, warp: int) -> None:
        most = _MOST_THREADS // self.vector
        widest, highest = (min(_power_of_two(n), most) for n in (width, height))
        self.width = min(widest, warp)
        self.height = min(highest, most // self.width)
        self.width = min(widest, most // self.height)
        self.sharing, self.apart = (self.width, 1) if self.along_input else (1, self.width)

    def into_blocks(self, device: Device) -> tuple[int, ...]:
        if self._values() < min(16 * self.height, _MOST_VALUES):
            return ()  # a row of threads has an output of its own
        self.sharing *= self.height
        blocks = _ceil(self.outputs // self.vector, self.apart)
        wanted = device.multiprocessors * (device.threads_per_multiprocessor // (self.width * self.height))
        if self._values() < _MOST_VALUES or blocks > wanted:
            return ()
        fewest_values, fewest_blocks = (128, 64) if device.is_amd else (16, 1)
        share = max(
            min(_ceil(wanted, blocks), _ceil(self._values(), fewest_values)), _ceil(self._values(), _MOST_VALUES)
        )
        if share == 1:
            return ()
        lanes = 1 if self.along_input else self.width * self.vector
        partial = _ACCUMULATOR_BYTES * self.outputs * max(share, fewest_blocks) * lanes
        return partial, _SEMAPHORE_BYTES * blocks

    def _values(self) -> int:
        """What is left to a thread."""
        return _ceil(self.inputs, self.sharing)


def _power_of_two(n: int) -> int:
    return 1 << (max(n, 1).bit_length() - 1)


def _ceil(n: int, divisor: int) -> int:
    return -(-n // divisor)
