"""How long operators take on a device that is not here if they are small: kernels that leave a part of it idle.

    operator                 = launch + kernel, for each of its kernels
    kernel that moves bytes  = fill + bytes / (share of the bandwidth)
    product of matrices      = fill + max(waves x tile, bytes / (share of the bandwidth))

    waves = ceil(tiles x splits / multiprocessors)
    tile  = 2 a b depth / splits / (peak / multiprocessors) x (1 + feed x (a + b) / (a b))      of a x b elements

A product is computed in tiles, a multiprocessor each, and the last wave of them may be nearly empty: NVIDIA's "Matrix
Multiplication Background User's Guide" calls that tile and wave quantization. Its tiles are those of cuBLAS, from
64 x 64 to 256 x 128. A tile of a x b elements loads a + b of them for a b multiplications, so that small tiles wait for
their operands. A few tiles of great depth are split along it, and what the splits make is added by a kernel that moves
bytes. The fastest of all is taken. A convolution is such a product of its result by its weights, without the matrix
ever being made; so is each of its gradients; so is attention in one kernel.

A kernel's fill is what it takes until the first bytes are there and after the last ones: below fill x bandwidth, about
3 MB on an A100, it reaches less than half of the bandwidth.

The four constants are fitted to published times of an A100, 36 products and 8 additions, and held against as many
of an A40 and of an H100: `bench/fission/utilisation.py` says which and has the errors. There were none
for convolutions. Data that is still in a cache is read as slowly as any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import torch

from .._capture.recorder import Ref
from .gpus import GIGA, Device
from .lowering import Operator
from .rooflines import _peak, bytes_moved, operations

_aten = torch.ops.aten

FILL_NS = 1_500
PRODUCT_FILL_NS = 5_000  # the loop over the depth begins and ends too
BANDWIDTH_SHARE = 0.9
FEED = 22

TILES = ((256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64))
SPLITS = (1, 2, 4, 8, 16, 32, 64)
LEAST_DEPTH = 128  # of a split
PARTIAL_BYTES = 2 * 4  # what a split makes is float32, written and read


class Product(NamedTuple):
    """`batch` products of matrices, rows x depth by depth x columns."""

    batch: int
    rows: int
    columns: int
    depth: int


class Kernel(NamedTuple):
    """What one kernel moves, and computes if it multiplies."""

    moved: int
    product: Product | None = None


def operator_ns(operator: Operator, device: Device) -> int:
    """How long an operator takes, at least its roofline; 0 for what neither computes nor moves bytes."""
    peak = _peak(operator, device)
    return sum(kernel_ns(kernel, peak, device) for kernel in kernels_of(operator))


def kernel_ns(kernel: Kernel, peak: int, device: Device) -> int:
    """How long a kernel takes with its launch, at `peak` operations per second on the whole device."""
    bandwidth = BANDWIDTH_SHARE * device.bytes_per_second
    if kernel.product is None:
        return device.launch_ns + math.ceil(FILL_NS + kernel.moved * GIGA / bandwidth)
    return device.launch_ns + _product_ns(kernel.product, kernel.moved, peak, device.multiprocessors, bandwidth)


@lru_cache(maxsize=1 << 16)
def _product_ns(product: Product, moved: int, peak: int, multiprocessors: int, bandwidth: float) -> int:
    """The fastest way."""
    fastest = math.inf
    for splits in SPLITS:
        if splits > 1 and product.depth < splits * LEAST_DEPTH:
            break
        depth = -(-product.depth // splits)
        added = 0 if splits == 1 else PARTIAL_BYTES * splits * product.batch * product.rows * product.columns
        adding = FILL_NS + added * GIGA / bandwidth if added else 0
        for tall, wide in TILES:
            tiles = product.batch * -(-product.rows // tall) * -(-product.columns // wide)
            waves = -(-tiles * splits // multiprocessors)
            work = 2 * (tall * wide + FEED * (tall + wide)) * depth
            multiplying = waves * work * multiprocessors * GIGA / peak
            fastest = min(fastest, max(multiplying, moved * GIGA / bandwidth) + adding)
    return math.ceil(PRODUCT_FILL_NS + fastest)


def kernels_of(operator: Operator) -> list[Kernel]:
    """One for most operators."""
    work, moved = operations(operator), bytes_moved(operator)
    if not work:
        return [Kernel(moved)] if moved else []
    packet = operator.target.overloadpacket
    if packet is _aten.convolution_backward:
        return list(_gradients(operator, work))
    made = next(operator.new_results(), None)
    if made is None:
        return [Kernel(moved)]
    if packet is _aten.convolution:
        return [Kernel(moved, _per_channel(made, work, _groups(operator)))]
    *batch, rows, columns = (1, 1, *made.sizes)
    return [Kernel(moved, Product(math.prod(batch), rows, columns, _depth(made, work)))]


def _gradients(operator: Operator, work: int) -> Iterator[Kernel]:
    """A convolution's: of what it read, of its weights and of its bias, as far as they are wanted."""
    gradient, read, weight, *_ = operator.arguments
    of_read, of_weight, of_bias = operator.results
    groups = _groups(operator)
    work //= max(1, sum(ref is not None for ref in (of_read, of_weight)))
    if of_read is not None:
        moved = _bytes(gradient) + _bytes(weight) + _bytes(of_read)
        yield Kernel(moved, _per_channel(of_read, work, groups))
    if of_weight is not None:
        moved = _bytes(gradient) + _bytes(read) + _bytes(of_weight)
        channels, *window = of_weight.sizes
        yield Kernel(moved, Product(groups, channels // groups, math.prod(window), _depth(of_weight, work)))
    if of_bias is not None:
        yield Kernel(_bytes(gradient) + _bytes(of_bias))


def _per_channel(made: Ref, work: int, groups: int) -> Product:
    """Of an image's pixels by channels."""
    images, channels, *pixels = made.sizes
    return Product(groups, images * math.prod(pixels), channels // groups, _depth(made, work))


def _depth(made: Ref, work: int) -> int:
    """How many products are added for each element of a result."""
    return -(-work // (2 * max(1, math.prod(made.sizes))))


def _groups(operator: Operator) -> int:
    names = [argument.name for argument in operator.target._schema.arguments]
    groups: int = operator.arguments[names.index("groups")]
    return groups


def _bytes(ref: Ref) -> int:
    return math.prod(ref.sizes) * ref.dtype.itemsize
