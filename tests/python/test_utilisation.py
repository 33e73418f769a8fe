"""Small kernels on devices that are not here: waves by hand, convolutions as products, and profiles of others."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bench.fission import utilisation as bench
from lowtide._lower.axes import axes_of
from lowtide._lower.capture import _recorded
from lowtide._lower.gpus import DEVICES, GIGA, LAUNCH_NS
from lowtide._lower.lowering import Operator, lower
from lowtide._lower.part_rooflines import WholeCost
from lowtide._lower.parts import part_of
from lowtide._lower.rooflines import time_ns
from lowtide._lower.utilisation import (
    BANDWIDTH_SHARE,
    FEED,
    FILL_NS,
    PRODUCT_FILL_NS,
    Kernel,
    Product,
    kernel_ns,
    kernels_of,
    operator_ns,
)

A100 = DEVICES["A100"]
HALF = A100.operations_per_second["float16"]


def operators_of(function: Callable[..., Any], *shapes: tuple[int, ...]) -> list[Operator]:
    """Those of `function` on parameters of these shapes and of its backward pass."""
    model = nn.ParameterList([torch.randn(shape) for shape in shapes])

    def step() -> None:
        function(*model).sum().backward()

    with _recorded(step, model, [], ()) as (tape, runs):
        return lower(tape, runs).operators


def products_of(function: Callable[..., Any], *shapes: tuple[int, ...]) -> list[Product]:
    kernels = [kernel for operator in operators_of(function, *shapes) for kernel in kernels_of(operator)]
    return [kernel.product for kernel in kernels if kernel.product is not None]


def test_the_last_wave_counts_whole() -> None:
    # 108 tiles of 256 x 128, one for each multiprocessor of an A100: 2 x (256 x 128 + 22 x 384) x 4096 operations
    # at 312e12 / 108 a second are 117 us. One tile more takes a second wave, or three of smaller tiles.
    one = kernel_ns(Kernel(0, Product(108, 256, 128, 4096)), HALF, A100)
    tile = 2 * (256 * 128 + FEED * 384) * 4096 * 108 * GIGA / HALF
    assert one == LAUNCH_NS + math.ceil(PRODUCT_FILL_NS + tile)
    assert kernel_ns(Kernel(0, Product(109, 256, 128, 4096)), HALF, A100) > 1.4 * one


def test_a_deep_product_is_split() -> None:
    # 64 x 64 elements are one tile. Of depth 2^16 it would keep one multiprocessor busy for 300 us.
    whole = kernel_ns(Kernel(0, Product(1, 64, 64, 1 << 16)), HALF, A100)
    assert whole < LAUNCH_NS + PRODUCT_FILL_NS + FILL_NS + 10_000


def test_a_kernel_that_moves_bytes_fills_first() -> None:
    moved = 1 << 20
    nanos = moved * GIGA / (BANDWIDTH_SHARE * A100.bytes_per_second)
    assert kernel_ns(Kernel(moved), HALF, A100) == LAUNCH_NS + math.ceil(FILL_NS + nanos)


@pytest.mark.parametrize(
    ("function", "shapes", "expected"),
    [
        (torch.mm, [(8, 16), (16, 24)], [(1, 8, 24, 16), (1, 8, 16, 24), (1, 16, 24, 8)]),
        (torch.bmm, [(3, 8, 16), (3, 16, 24)], [(3, 8, 24, 16), (3, 8, 16, 24), (3, 16, 24, 8)]),
        # 2 images of 10 x 10 pixels and 4 channels by windows of 3 x 3: 2 x 8 x 8 pixels of 6 channels, 4 x 9 products
        # for each. Of its gradients the first has 2 x 10 x 10 pixels of 4 channels, for each 36 x 6 x 64 / 4 / 100
        # products on average; the other 6 x (4 x 9) elements, for each one product a pixel of the result.
        (
            F.conv2d,
            [(2, 4, 10, 10), (6, 4, 3, 3)],
            [(1, 128, 6, 36), (1, 200, 4, 35), (1, 6, 36, 128)],
        ),
        # In two groups: 3 channels each, of 2.
        (
            lambda x, w: F.conv2d(x, w, groups=2),
            [(2, 4, 10, 10), (6, 2, 3, 3)],
            [(2, 128, 3, 18), (2, 200, 2, 18), (2, 3, 18, 128)],
        ),
        # Transposed by windows of 2 x 2 that do not overlap: each pixel of the result is one of them.
        (
            lambda x, w: F.conv_transpose2d(x, w, stride=2),
            [(2, 4, 5, 5), (4, 6, 2, 2)],
            [(1, 200, 6, 4), (1, 50, 4, 24), (1, 4, 24, 50)],
        ),
    ],
)
def test_products(
    function: Callable[..., Any], shapes: list[tuple[int, ...]], expected: list[tuple[int, int, int, int]]
) -> None:
    assert sorted(products_of(function, *shapes)) == sorted(Product(*each) for each in expected)


STEPS: list[tuple[Callable[..., Any], list[tuple[int, ...]]]] = [
    (lambda x, w: F.gelu(F.linear(x, w)), [(64, 128, 256), (512, 256)]),
    (lambda x, w: F.relu(F.conv2d(x, w)), [(16, 32, 28, 28), (64, 32, 3, 3)]),
    (lambda x: F.softmax(x @ x.transpose(-1, -2), dim=-1) @ x, [(16, 8, 128, 64)]),
]


@pytest.mark.parametrize(("function", "shapes"), STEPS)
def test_parts_never_take_less_than_the_whole(function: Callable[..., Any], shapes: list[tuple[int, ...]]) -> None:
    for operator in operators_of(function, *shapes):
        whole = operator_ns(operator, A100)
        assert whole >= time_ns(operator, A100), "nothing is faster than its roofline"
        for axis in axes_of(operator):
            for count in (count for count in (2, 4, 8) if axis.extent % count == 0):
                part = part_of(operator, axis, 0, count)
                small = Operator(
                    operator.target, part.arguments, part.results, operator.made, operator.writes, operator.where
                )
                taken = count * operator_ns(small, A100)
                assert taken >= whole + (count - 1) * LAUNCH_NS


def test_one_part_costs_what_the_whole_does() -> None:
    function, shapes = STEPS[0]
    for operator in operators_of(function, *shapes):
        whole = WholeCost(operator, A100)
        assert whole.scaled(whole.kernels_ns) == time_ns(operator, A100)


def made_up(layers: dict[str, tuple[float, ...]]) -> str:
    """A profile in Vidur's format: of each layer milliseconds on 4 tokens, each time that it was profiled."""
    sizes = {"n_head": 4, "n_kv_head": 2, "n_embd": 64, "n_expanded_embd": 256, "use_gated_mlp": True, "num_tokens": 4}
    names = [f"time_stats.{layer}.{figure}" for layer in layers for figure in ("mean", "median")]
    lines = [",".join([*names, *sizes, "num_tensor_parallel_workers"])]
    for times in zip(*layers.values(), strict=True):
        for shards in (1, 2):
            figures = [figure for time in times for figure in (99.0, time / shards)]
            lines.append(",".join(map(str, [*figures, *sizes.values(), shards])))
    return "\n".join(lines) + "\n"


def test_profiles_are_read_as_vidur_writes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj", "add")
    for speed, device in enumerate(("a100", "a40", "h100"), 1):
        for model in (bench.PHI, bench.LLAMA):
            file = tmp_path / "data/profiling/compute" / device / model / "mlp.csv"
            file.parent.mkdir(parents=True)
            file.write_text(made_up({name: (speed * row, 3 * speed * row) for row, name in enumerate(names, 1)}))
    monkeypatch.setattr(bench, "SHARDS", ((bench.PHI, 1), (bench.LLAMA, 2)))
    monkeypatch.setattr(bench, "ROWS_OF_PRODUCTS", (4,))
    monkeypatch.setattr(bench, "ROWS_OF_ADDITIONS", (4,))
    # 4 heads of 16, and 2 of keys and of values: 128 columns. The MLP has a gate: 512 columns. Of 1 and 3 ms the median
    # is 2 ms.
    products, additions = bench.products(tmp_path), bench.additions(tmp_path)
    assert [point.name for point in products] == [
        *("4 x 128 x 64", "4 x 64 x 64", "4 x 512 x 64", "4 x 64 x 256"),
        *("4 x 64 x 64", "4 x 64 x 32", "4 x 256 x 64", "4 x 64 x 128"),
    ]
    assert products[0].published == (2000, 4000, 6000) and products[4].published == (1000, 2000, 3000)
    assert products[0].kernel == Kernel(2 * (4 * 64 + 64 * 128 + 4 * 128), Product(1, 4, 128, 64))
    assert [(point.name, point.published) for point in additions] == [("4 x 64", (10_000, 20_000, 30_000))]


def test_errors_are_root_mean_squares_of_logarithms() -> None:
    kernel = Kernel(1 << 20)
    model = bench.Point(kernel, "", ()).model(A100)
    points = [bench.Point(kernel, "", (model * math.e,)), bench.Point(kernel, "", (model / math.e**7,))]
    assert bench.error(points, 0) == pytest.approx(5)  # of -1 and 7
