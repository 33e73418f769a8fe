"""Operators in parts along their axes give what they give as a whole.

Each row of the table of operators (src/ops) that has axes is called with random tensors, in every number of parts.

LOWTIDE_FULL=1   10,000 runs in parts instead of some hundreds
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode, disable_fake_tensor_cache

from axis_cases import CASES, LISTS, Call, Maker
from lowtide import _core
from lowtide._base.schemas import DEFAULT, positional
from lowtide._capture.recorder import Ref, Where, written_buffers
from lowtide._lower import axes, axis_rules
from lowtide._lower.axes import Axis, axes_of
from lowtide._lower.axis_rules import parse_rules
from lowtide._lower.lowering import Buffer, Operator
from lowtide._lower.parts import part_of, periods

FULL = bool(os.environ.get("LOWTIDE_FULL"))
RUNS = 45 if FULL else 3  # of each operator, at least
ON_GPUS = {
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_backward",
}  # which are not tried


def over_tensors(tree: Any, function: Callable[[Tensor], Any]) -> Any:
    if isinstance(tree, Tensor):
        return function(tree)
    return [over_tensors(item, function) for item in tree] if isinstance(tree, (list, tuple)) else tree


def flat(results: Any) -> list[Tensor | None]:
    """The tensors among the results, and those that are not there."""
    results = results if isinstance(results, (list, tuple)) else [results]
    return [result for result in results if result is None or isinstance(result, Tensor)]


class Lowered:
    """A call on real tensors as the operator that lowering makes of it."""

    def __init__(self, call: Call) -> None:
        self.storages: list[torch.UntypedStorage] = []
        arguments = positional(call.target, call.arguments, call.named)
        refs = over_tensors(arguments, self.window)
        writes = written_buffers(call.target, refs)
        self.operator = Operator(call.target, refs, [], [], writes, Where("", ""))
        self.before = [storage.clone() for storage in self.storages]
        self.results = flat(self.run(refs, self.storages))
        known = len(self.storages)
        self.operator.results = [None if result is None else self.window(result) for result in self.results]
        self.operator.made = [ref is not None and ref.buffer >= known for ref in self.operator.results]
        self.buffers = [Buffer(storage.nbytes()) for storage in self.storages]

    def window(self, tensor: Tensor) -> Ref:
        storage = tensor.untyped_storage()
        known = [index for index, each in enumerate(self.storages) if each.data_ptr() == storage.data_ptr()]
        if not known or not storage.nbytes():
            self.storages.append(storage)
        index = known[0] if known and storage.nbytes() else len(self.storages) - 1
        return Ref(index, tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset())

    def run(self, arguments: list[Any], storages: list[torch.UntypedStorage]) -> Any:
        def tensor(tree: Any) -> Any:
            if isinstance(tree, Ref):
                empty = torch.empty(0, dtype=tree.dtype)
                return empty.set_(storages[tree.buffer], tree.offset, tree.sizes, tree.strides)
            return [tensor(item) for item in tree] if isinstance(tree, list) else tree

        schema = self.operator.target._schema.arguments
        given = [pair for pair in zip(schema, arguments, strict=True) if pair[1] is not DEFAULT]
        plain = [tensor(value) for argument, value in given if not argument.kwarg_only]
        named = {argument.name: tensor(value) for argument, value in given if argument.kwarg_only}
        return self.operator.target(*plain, **named)

    def in_parts(self, axis: Axis, count: int) -> tuple[list[Tensor | None], list[torch.UntypedStorage]]:
        """The results, put together, and all memory afterwards."""
        storages = [storage.clone() for storage in self.before]
        made: list[list[Tensor | None]] = []
        for index in range(count):
            part = part_of(self.operator, axis, index, count)
            results = flat(self.run(part.arguments, storages))
            for ref, result in zip(part.results, results, strict=True):
                assert (ref is None) == (result is None)
                assert ref is None or result is None or ref.sizes == tuple(result.shape)
            made.append(results)
        return [
            merged(list(each), dim) for each, dim in zip(zip(*made, strict=True), axis.results, strict=True)
        ], storages


def merged(parts: list[Tensor | None], dim: int | None) -> Tensor | None:
    there = [part for part in parts if part is not None]
    if not there:
        return None
    return torch.cat(there, dim) if dim is not None else torch.stack(there).sum(0, dtype=there[0].dtype)


def close(expected: Tensor | None, found: Tensor | None) -> bool:
    if expected is None or found is None:
        return expected is found
    if expected.dtype != found.dtype or expected.shape != found.shape:
        return False
    if not expected.is_floating_point():
        return torch.equal(expected, found)
    return torch.allclose(expected, found, rtol=1e-10, atol=1e-11, equal_nan=True)


def same_memory(first: torch.UntypedStorage, second: torch.UntypedStorage) -> bool:
    if first.nbytes() % 8:
        return bytes(first) == bytes(second)
    views = [torch.empty(0, dtype=torch.float64).set_(storage) for storage in (first, second)]
    return torch.equal(*(view.view(torch.int64) for view in views)) or close(*views)


def counts_of(axis: Axis) -> Iterator[int]:
    return (count for count in range(2, axis.extent + 1) if axis.extent % count == 0)


def check(lowered: Lowered, axis: Axis) -> int:
    """In every number of parts; how many there are."""
    number = 0
    for count in counts_of(axis):
        results, storages = lowered.in_parts(axis, count)
        told = f"{lowered.operator.target} {lowered.operator.arguments} in {count} parts along {axis}"
        if not _core.op_row(lowered.operator.target._schema.name).moves_no_bytes:
            assert all(map(close, lowered.results, results)), told
        for buffer in lowered.operator.writes:
            assert same_memory(lowered.storages[buffer], storages[buffer]), told
        check_periods(lowered, axis, count)
        number += 1
    return number


def bytes_of(ref: Ref) -> set[int]:
    """First bytes of all elements."""
    found = {ref.offset}
    for size, stride in zip(ref.sizes, ref.strides, strict=True):
        found = {place + step * stride for place in found for step in range(size)}
    return {place * ref.dtype.itemsize for place in found}


def check_periods(lowered: Lowered, axis: Axis, count: int) -> None:
    """Every part keeps to its own bytes of what is cut."""
    operator = lowered.operator
    said = periods(operator, axis, lowered.buffers)
    if said is None:
        return
    windows = list(dict.fromkeys(operator.reads()))
    written = [*operator.writes, *(ref.buffer for ref in operator.new_results())]
    assert len(said.reads) == len(windows) and len(said.writes) == len(written)
    period_of_window = dict(zip(windows, said.reads, strict=True))
    period_of = dict(zip(written, said.writes, strict=True))
    for index in range(count):
        part = part_of(operator, axis, index, count)
        for whole, ref in pairs_in(operator.arguments, part.arguments):
            assert lies_in(ref, period_of_window[whole], index, count)
        for ref in part.results:
            if ref is not None:
                assert lies_in(ref, period_of[ref.buffer], index, count)


def pairs_in(whole: list[Any], part: list[Any]) -> Iterator[tuple[Ref, Ref]]:
    for first, second in zip(whole, part, strict=True):
        if isinstance(first, Ref) and isinstance(second, Ref):
            yield first, second
        elif isinstance(first, list):
            yield from pairs_in(first, second)


def lies_in(ref: Ref, period: int, index: int, count: int) -> bool:
    return not period or all(byte % period // (period // count) == index for byte in bytes_of(ref))


def lines_with_axes(lowered: Lowered) -> Iterator[int]:
    """Which lines of the operator's notation give it axes."""
    for line, rule in enumerate(axis_rules.rules_of(lowered.operator.target)):
        if list(axes._Match(rule, lowered.operator).axes()):
            yield line


def results_of(call: Call) -> list[Tensor | None]:
    results = call.target(*call.arguments, **call.named)
    return [results] if isinstance(results, Tensor) else list(results or [])


def forms(results: Any) -> list[Any]:
    """What is known of fake results, and which of them lie in one memory."""
    storages: dict[int, int] = {}
    return [
        leaf if leaf is None else
        (leaf.shape, leaf.stride(), leaf.dtype, storages.setdefault(leaf.untyped_storage()._cdata, len(storages)))
        for leaf in results
    ]  # fmt: skip


@pytest.mark.parametrize("name", [*CASES, *LISTS])
def test_parts_make_the_whole(name: str) -> None:
    notation = _core.op_row(f"aten::{name}").axes
    lines = Counter({line: 0 for line in range(len(parse_rules(notation)))})
    tried, seed = 0, 0
    while tried < RUNS or 0 in lines.values():
        lowered = Lowered((CASES | LISTS)[name](Maker(seed)))
        lines.update(lines_with_axes(lowered))
        for axis in axes_of(lowered.operator):
            tried += check(lowered, axis)
        seed += 1
        assert seed < 500 + RUNS, f"too few axes of {name}: {tried} parts, lines {lines}"


def test_every_row_of_the_table_is_tried() -> None:
    rows = {row.name.removeprefix("aten::") for row in _core.op_rows() if row.axes}
    assert rows == set(CASES) | ON_GPUS


@pytest.mark.parametrize("name", [name for name in CASES if len(results_of(CASES[name](Maker(0)))) > 1])
def test_results_are_apart_and_fakes_come_from_the_cache(name: str) -> None:
    mode, hits = FakeTensorMode(), FakeTensorMode.cache_hits
    for seed in range(RUNS):
        call = CASES[name](Maker(seed))
        real = [leaf for leaf in results_of(call) if leaf is not None and leaf.numel()]
        assert len({leaf.untyped_storage().data_ptr() for leaf in real}) == len(real)
        with mode:
            fake = pytree.tree_map_only(Tensor, mode.from_tensor, tuple(call[1:]))
            first, second = (call.target(*fake[0], **fake[1]) for _ in range(2))
            with disable_fake_tensor_cache(mode):
                third = call.target(*fake[0], **fake[1])
        assert forms(first) == forms(second) == forms(third)
    assert FakeTensorMode.cache_hits >= hits + RUNS


WRONG = {
    "_fused_adam_": "...,...,...,...,...,*,*,*->; strict",
    "_scaled_dot_product_flash_attention_for_cpu": "__q_,*,*,__q_->__q_,__q",
    "_softmax": "...->...",
    "addmm": "mn,mk,kn->mn",
    "amax": "...->...; sums dim keepdim",
    "constant_pad_nd": "...->...",
    "convolution": "nc*,oc*,o->no*",
    "convolution_backward": "groups=1 transposed=False: *,_c*,_c*->_c*,_c*,*",
    "cumsum": "...->...",
    "embedding_dense_backward": "..._,...->*",
    "flip": "...->...",
    "mean": "...->...; sums dim keepdim",
    "mm": "mk,kn->mk",
    "mse_loss": "...,...->",
    "native_batch_norm": "nc*,c,c,c,c->nc*,c,c",
    "native_layer_norm": "...,*,*->...,*,*; last normalized_shape",
    "native_layer_norm_backward": "...,...,...,...,*,*->...,*,*; last normalized_shape",
    "nll_loss_forward": "n_,n,_->,",
    "scatter": "...,...,...->...; whole dim | ...,...->...; whole dim",
    "slice_backward": "...->...; whole dim",
    "sort": "...->...,...",
    "tril": "...->...",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(axes, "rules_of", lambda target: parse_rules(WRONG[name]))
    with pytest.raises((AssertionError, RuntimeError)):
        for seed in range(500):
            lowered = Lowered(CASES[name](Maker(seed)))
            for axis in axes_of(lowered.operator):
                check(lowered, axis)


def axes_along(call: Call) -> list[Axis]:
    return axes_of(Lowered(call).operator)


aten = torch.ops.aten


def test_a_product_has_three_axes() -> None:
    found = axes_along(Call(aten.mm.default, (torch.ones(4, 6), torch.ones(6, 2))))
    assert found == [Axis(4, {0: 0}, (0,), {}), Axis(6, {0: 1, 1: 0}, (None,), {}), Axis(2, {1: 1}, (1,), {})]


def test_sizes_are_divided_and_a_bias_is_added_once() -> None:
    (rows,) = axes_along(Call(aten.new_zeros.default, (torch.ones(3), [4, 1])))
    assert rows == Axis(4, {}, (0,), {(1, 0): "size"})
    lowered = Lowered(Call(aten.addmm.default, (torch.ones(1), torch.ones(1, 6), torch.ones(6, 1))))
    (inner,) = axes_of(lowered.operator)
    assert inner == Axis(6, {1: 1, 2: 0}, (None,), {3: "once"})
    assert [part_of(lowered.operator, inner, k, 2).arguments[3] for k in range(2)] == [DEFAULT, 0]


@pytest.mark.parametrize(
    "call",
    [
        Call(aten.bernoulli_.float, (torch.ones(4), 0.5)),
        Call(aten.native_dropout.default, (torch.ones(4), 0.5, True)),
        Call(aten.linalg_inv_ex.default, (torch.eye(4),)),
        Call(aten.max.default, (torch.ones(4),)),
        Call(aten._foreach_max.default, ([torch.ones(4)],)),
    ],
)
def test_others_run_whole(call: Call) -> None:
    assert axes_along(call) == []


def periods_along(call: Call) -> list[Any]:
    lowered = Lowered(call)
    return [periods(lowered.operator, axis, lowered.buffers) for axis in axes_of(lowered.operator)]


def test_periods_are_those_of_buffers() -> None:
    """The queries of 2 x 3 tokens in a buffer with keys and values of the same width, 4."""
    keys = torch.ones(2, 3, 12, dtype=torch.float32)[..., 4:8]
    assert periods_along(Call(aten.relu.default, (keys,))) == [((288,), (96,)), ((144,), (48,)), ((16,), (16,))]
    columns = torch.ones(6, 4).t()
    assert periods_along(Call(aten.relu.default, (columns,))) == [((16,), (16,)), ((96,), (96,))]


def test_what_every_part_reads_is_whole() -> None:
    x, row = torch.ones(2, 4), torch.ones(4)
    assert periods_along(Call(aten.add.Tensor, (x, row.expand(2, 4)))) == [((32, 0), (32,)), ((16, 16), (16,))]
    assert periods_along(Call(aten.mul.Tensor, (x, x))) == [((32,), (32,)), ((16,), (16,))]
    overlapping = torch.ones(5).as_strided((2, 4), (1, 1))
    assert [each.reads for each in periods_along(Call(aten.relu.default, (overlapping,)))] == [(0,), (0,)]


def test_in_place_all_windows_on_a_buffer_are_cut_alike() -> None:
    square = torch.ones(4, 4)
    assert periods_along(Call(aten.add_.Tensor, (square, square))) == [((64,), (64,)), ((16,), (16,))]
    lowered = Lowered(Call(aten.add_.Tensor, (square, torch.ones(4, 4))))
    rows, columns = axes_of(lowered.operator)
    lowered.operator.arguments[1] = lowered.operator.arguments[0]._replace(strides=(1, 4))
    assert periods(lowered.operator, rows, lowered.buffers) is None
    assert periods(lowered.operator, columns, lowered.buffers) is None
    part = torch.ones(5, 3)[:4]
    assert periods_along(Call(aten.relu_.default, (part,))) == [None, ((12,), (12,))]


def test_results_in_one_buffer_have_no_parts() -> None:
    lowered = Lowered(Call(aten.sort.default, (torch.ones(4, 2), 1)))
    (rows,) = axes_of(lowered.operator)
    assert periods(lowered.operator, rows, lowered.buffers) == ((32,), (32, 64))
    values, indices = lowered.operator.results
    assert values is not None and indices is not None
    lowered.operator.results[1] = indices._replace(buffer=values.buffer)
    assert periods(lowered.operator, rows, lowered.buffers) is None


def test_what_is_held_is_whole() -> None:
    lowered = Lowered(Call(aten.relu.default, (torch.ones(4),)))
    lowered.operator.held.append(Ref(0, torch.uint8, (16,), (1,), 0))
    (axis,) = axes_of(lowered.operator)
    assert periods(lowered.operator, axis, lowered.buffers) == ((16, 0), (16,))
