"""Operators that make their result in the bytes of an operand give the same bits as with bytes of their own.

Each row of the table of operators that says so (src/ops) is run in several dtypes and memory formats against eager.
"""

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide import _core
from lowtide._lower import lowering
from step_models import pair_of, run_both, same

FLOATS = [torch.float32, torch.float64, torch.bfloat16]
aten = torch.ops.aten


def floats(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64).to(dtype)


def formats(dtype: torch.dtype) -> list[Tensor]:
    """Tensors that lie in memory in different ways; the larger ones are shared among threads."""
    return [
        floats(3, 5, dtype=dtype),
        floats(129, 1031, dtype=dtype),
        floats(2, 8, 9, 11, dtype=dtype),
        floats(2, 8, 9, 11, dtype=dtype).to(memory_format=torch.channels_last),
        floats(64, 96, dtype=dtype).t(),
    ]


def rows(dtype: torch.dtype) -> list[Tensor]:
    return [tensor for tensor in formats(dtype) if tensor.is_contiguous()]


def images(dtype: torch.dtype) -> list[Tensor]:
    return [tensor for tensor in formats(dtype) if tensor.dim() == 4]


class Case(NamedTuple):
    """A function, which of its operands can give their bytes, and all operands made from the first."""

    function: Callable[..., Tensor]
    over: tuple[int, ...] = (0,)
    operands: Callable[[Tensor], list[Tensor]] = lambda x: [x]
    tensors: Callable[[torch.dtype], list[Tensor]] = formats


def another(x: Tensor) -> Tensor:
    return x.flip(0).add(0.25)


def two(function: Callable[..., Tensor], tensors: Callable[[torch.dtype], list[Tensor]] = formats) -> Case:
    return Case(function, (0, 1), lambda x: [x, another(x)], tensors)


def channels(x: Tensor, count: int) -> list[Tensor]:
    return [another(x)[0, :, 0, 0].contiguous() * (i + 1) for i in range(count)]


def batch_norm_backward(g: Tensor, x: Tensor, w: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    everything = [True, True, True]
    return aten.native_batch_norm_backward(g, x, w, None, None, mean, scale, True, 1e-5, everything)[0]


def layer_norm_backward(g: Tensor, x: Tensor) -> Tensor:
    width = x.shape[-1:]
    weight = x.new_full(width, 1.5)
    _, mean, scale = aten.native_layer_norm(x, width, weight, weight, 1e-5)
    return aten.native_layer_norm_backward(g, x, width, mean, scale, weight, weight, [True, True, True])[0]


def group_norm_backward(g: Tensor, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    weight = x.new_full((c,), 1.5)
    _, mean, scale = aten.native_group_norm(x, weight, weight, n, c, h * w, 4, 1e-5)
    return aten.native_group_norm_backward(g, x, mean, scale, weight, n, c, h * w, 4, [True, True, True])[0]


def group_norm(x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    return aten.native_group_norm(x, x.new_full((c,), 1.5), x.new_ones((c,)), n, c, h * w, 4, 1e-5)[0]


def layer_norm(x: Tensor) -> Tensor:
    return aten.native_layer_norm(x, x.shape[-1:], x.new_full(x.shape[-1:], 1.5), x.new_ones(x.shape[-1:]), 1e-5)[0]


ELEMENTWISE = """abs acos asin atan ceil clone cos cosh elu erf erfc exp exp2 expm1 floor frac gelu hardsigmoid
hardswish hardtanh leaky_relu log log10 log1p log2 logit mish neg reciprocal relu round rsqrt sgn sigmoid sign silu sin
sinh softplus sqrt square tan tanh trunc"""
ELEMENTWISE_OF_TWO = """add atan2 div gelu_backward hardsigmoid_backward hardswish_backward maximum minimum
mish_backward mul rsub sigmoid_backward silu_backward sub tanh_backward"""


def softmax(function: Callable[..., Tensor]) -> list[Case]:
    return [Case(lambda x, d=dim: function(x, d, False), tensors=rows) for dim in (0, 1, -1)]


def softmax_backward(function: Callable[..., Tensor]) -> list[Case]:
    return [two(lambda g, y, d=dim: function(g, y, d, g.dtype), rows) for dim in (0, 1, -1)]


CASES: dict[str, list[Case]] = {
    **{name: [Case(getattr(aten, name))] for name in ELEMENTWISE.split()},
    **{name: [two(getattr(aten, name))] for name in ELEMENTWISE_OF_TWO.split()},
    "addcdiv": [Case(aten.addcdiv, (0, 1, 2), lambda x: [x, another(x), x.abs() + 1])],
    "addcmul": [Case(aten.addcmul, (0, 1, 2), lambda x: [x, another(x), x.abs() + 1])],
    "bernoulli": [
        Case(lambda x: aten.bernoulli(x, 0.3)),
        Case(lambda x: aten.bernoulli(x), operands=lambda x: [x.sigmoid()]),
    ],
    "clamp": [Case(lambda x: aten.clamp(x, -0.5, 0.5))],
    "clamp_max": [Case(lambda x: aten.clamp_max(x, 0.1))],
    "clamp_min": [Case(lambda x: aten.clamp_min(x, 0.1))],
    "elu_backward": [two(lambda g, x: aten.elu_backward(g, 1.0, 1, 1, False, x))],
    "hardtanh_backward": [two(lambda g, x: aten.hardtanh_backward(g, x, -1, 1))],
    "leaky_relu_backward": [two(lambda g, x: aten.leaky_relu_backward(g, x, 0.1, False))],
    "lerp": [two(lambda x, y: aten.lerp(x, y, 0.3))],
    "logical_not": [Case(aten.logical_not, operands=lambda x: [x > 0])],
    "masked_fill": [Case(lambda x, mask: aten.masked_fill(x, mask, 2.0), operands=lambda x: [x, x > 0.3])],
    "mul": [two(aten.mul), Case(lambda x: aten.mul(x, 1.5)), Case(lambda x: aten.mul(x, x))],
    "native_batch_norm": [
        Case(
            lambda x, w, b, m, v: aten.native_batch_norm(x, w, b, m, v, True, 0.1, 1e-5)[0],
            operands=lambda x: [x, *channels(x, 4)],
            tensors=images,
        )
    ],
    "native_batch_norm_backward": [
        Case(batch_norm_backward, (1,), lambda x: [x, another(x), *channels(x, 3)], images),
    ],
    "native_group_norm": [Case(group_norm, tensors=images)],
    "native_group_norm_backward": [two(group_norm_backward, images)],
    "native_layer_norm": [Case(layer_norm, tensors=rows)],
    "native_layer_norm_backward": [two(layer_norm_backward, rows)],
    "pow": [Case(lambda x: aten.pow(x, 3)), Case(lambda x: aten.pow(x, 0.7))],
    "softplus_backward": [two(lambda g, x: aten.softplus_backward(g, x, 1, 20))],
    "threshold": [Case(lambda x: aten.threshold(x, 0.1, 0.0))],
    "threshold_backward": [two(lambda g, x: aten.threshold_backward(g, x, 0))],
    "where": [Case(lambda x, y, which: aten.where(which, x, y), (0, 1), lambda x: [x, another(x), x > 0.2])],
    "_softmax": softmax(aten._softmax),
    "_log_softmax": softmax(aten._log_softmax),
    "_softmax_backward_data": softmax_backward(aten._softmax_backward_data),
    "_log_softmax_backward_data": softmax_backward(aten._log_softmax_backward_data),
}


class Piece(NamedTuple):
    """What a function is run on: its operands, and which one of them is copied into the arena before."""

    operands: list[Tensor]
    copied: int
    where: str


class Ran(NamedTuple):
    """A result in eager and planned, and whether it was made in the bytes of the operand that was in the arena."""

    expected: Tensor
    found: Tensor
    reused: bool


def run_over(function: Callable[..., Tensor], pieces: Sequence[Piece]) -> list[Ran]:
    """All pieces in one step, one after the other: compiling a step for each takes much longer than running it."""
    copies = [piece.copied for piece in pieces]

    def step(given: list[list[Tensor]]) -> list[Tensor]:
        results = []
        for operands, copied in zip(given, copies, strict=True):
            inside = [tensor.clone() if i == copied else tensor for i, tensor in enumerate(operands)]
            results.append(function(*inside).clone())
        return results

    def given() -> list[list[Tensor]]:
        return [copy.deepcopy(piece.operands) for piece in pieces]

    with torch.no_grad():
        torch.manual_seed(0)
        expected = step(given())
        planned = lowtide.compile(step, model=torch.nn.Identity(), on_unsupported="raise")
        torch.manual_seed(0)
        found = planned(given())
        graph, plan = planned.graph, planned.plan
        planned.close()
    return [Ran(*each) for each in zip(expected, found, results_over_copies(graph, plan), strict=True)]


def results_over_copies(graph: lowtide.Graph, plan: lowtide.Plan) -> list[bool]:
    """For each piece of a step, whether its result lies where the copied operand lies that is read to make it.

    A piece begins with the operator that makes the copy and ends with the one that makes an output of the result.
    """
    step_of = {op: step for step, op in enumerate(plan.order)}
    offsets, begins, ends = plan.offsets(), plan.begins(), plan.ends()
    found, copied = [], None
    for op in range(graph.num_ops):
        first, *_, last = plan.step_blocks(step_of[op])
        if copied is None:
            copied = last
        elif offsets[last] < 0:
            assert begins[copied] < begins[first] < ends[copied], "the copy lives until there is a result"
            found.append(offsets[first] == offsets[copied])
            copied = None
    return found


def same_bits(a: Tensor, b: Tensor) -> bool:
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a.view(integers), b.view(integers))


def test_every_row_of_the_table_is_tried() -> None:
    assert sorted(row.name for row in _core.op_rows() if row.result_over) == sorted(f"aten::{name}" for name in CASES)


def pieces_of(case: Case, threads: int) -> Iterator[Piece]:
    for dtype in FLOATS:
        for tensor in case.tensors(dtype):
            if threads > 1 and (tensor.numel() < 100_000 or dtype is not torch.float32):
                continue
            for copied in case.over:
                form = f"{tensor.dtype}, {tuple(tensor.shape)} by {tensor.stride()}"
                yield Piece(case.operands(tensor), copied, f"{form}, over operand {copied}, {threads} threads")


@pytest.mark.parametrize("name", CASES)
def test_the_same_bits_over_an_operand(name: str) -> None:
    for case, threads in itertools.product(CASES[name], (1, 2)):
        torch.set_num_threads(threads)
        pieces = list(pieces_of(case, threads))
        for piece, ran in zip(pieces, run_over(case.function, pieces) if pieces else [], strict=True):
            assert ran.reused == (ran.expected.stride() == piece.operands[piece.copied].stride()), piece.where
            assert same_bits(ran.expected, ran.found), piece.where


def seen_through_another(tensor: Tensor, by: str) -> Tensor:
    """The same values, as a part of a larger tensor or with other strides."""
    if by == "part":
        return torch.cat([tensor, tensor], dim=1)[:, : tensor.shape[1]]
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


OF_SEVERAL = [
    name
    for name, cases in CASES.items()
    if len(cases[0].operands(floats(2, 8, 9, 11, dtype=FLOATS[0]))) > 1
    and name != "native_group_norm_backward"  # refuses operands of different forms
]


def pieces_of_views(case: Case) -> Iterator[Piece]:
    for tensor, copied, by in itertools.product(case.tensors(torch.float32), case.over, ("part", "strides")):
        views = [
            seen_through_another(each, by) if i != copied and each.shape == tensor.shape else each
            for i, each in enumerate(case.operands(tensor))
        ]
        where = f"{tuple(tensor.shape)} by {tensor.stride()}, over operand {copied}, others {by}"
        yield Piece(views, copied, where)


def run_those_that_can(function: Callable[..., Tensor], pieces: Sequence[Piece]) -> Iterator[tuple[Piece, Ran]]:
    """All but the pieces whose fake results have other strides than the real ones."""
    try:
        yield from zip(pieces, run_over(function, pieces), strict=True)
    except RuntimeError as error:
        assert "its capture said" in str(error), pieces[0].where
        if len(pieces) > 1:
            for half in (pieces[: len(pieces) // 2], pieces[len(pieces) // 2 :]):
                yield from run_those_that_can(function, half)


@pytest.mark.parametrize("name", OF_SEVERAL)
def test_the_same_bits_where_the_others_are_views(name: str) -> None:
    """Operators go other ways where their operands lie in memory in different ways."""
    for case in CASES[name]:
        for piece, ran in run_those_that_can(case.function, list(pieces_of_views(case))):
            assert same_bits(ran.expected, ran.found), piece.where


def only_reuse(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """As if the table said of these operators alone that they make their result over their first argument."""
    real = lowering._core.op_row

    def row(name: str) -> SimpleNamespace:
        fields = {field: getattr(real(name), field) for field in dir(real(name)) if not field.startswith("_")}
        return SimpleNamespace(**fields | {"result_over": [0] if name in names else []})

    monkeypatch.setattr(lowering._core, "op_row", row)


def test_an_operator_that_cannot_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the table held an operator that reads what it has written over, the tests above would see it."""
    only_reuse(monkeypatch, "aten::flip")
    pieces = [Piece([floats(64, 64, dtype=dtype)], 0, "") for dtype in FLOATS]
    for ran in run_over(lambda x: aten.flip(x, [0]), pieces):
        assert ran.reused
        assert not same_bits(ran.expected, ran.found)


def test_an_operator_that_makes_bytes_of_its_own_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the table were not looked at, the tests above would see it."""
    only_reuse(monkeypatch)
    pieces = [Piece([floats(64, 64, dtype=dtype)], 0, "") for dtype in FLOATS]
    assert not any(ran.reused for ran in run_over(aten.tanh, pieces))


def test_a_batch_norm_of_half_the_channels() -> None:
    """Its backward gets a gradient that lies in memory in another way than its input."""

    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.last = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            left, right = self.first(x).chunk(2, 1)
            return self.last(torch.tanh(self.norm(left))).sum() + right.mean()

    def make(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[Tensor], Tensor]:
        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = model(x)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    torch.manual_seed(0)
    eager, planned = pair_of(Halves(), lambda parameters: torch.optim.SGD(parameters, 0.01), make)
    for index in range(3):
        expected, found = run_both(eager, planned, index, torch.randn(4, 3, 12, 12))
        assert same(expected, found)
        assert same(eager.model.state_dict(), planned.model.state_dict())
