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
from torch import Tensor

from axis_cases import CASES, Call, Maker
from lowtide import _core
from lowtide._base.schemas import DEFAULT, positional
from lowtide._capture.recorder import Ref, Where, written_buffers
from lowtide._lower import axes, axis_rules
from lowtide._lower.axes import Axis, axes_of
from lowtide._lower.axis_rules import parse_rules
from lowtide._lower.lowering import Buffer, Operator
from lowtide._lower.parts import part_of, periods

FULL = bool(os.environ.get("LOWTIDE_FULL"))
CALLS = 40 if FULL else 4  # of each operator
UNTRIED: set[str] = set()  # operators of GPUs


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


@pytest.mark.parametrize("name", CASES)
def test_parts_make_the_whole(name: str) -> None:
    notation = _core.op_row(f"aten::{name}").axes
    lines = Counter({line: 0 for line in range(len(parse_rules(notation)))})
    tried, seed = 0, 0
    while tried < CALLS or 0 in lines.values():
        lowered = Lowered(CASES[name](Maker(seed)))
        lines.update(lines_with_axes(lowered))
        for axis in axes_of(lowered.operator):
            tried += check(lowered, axis)
        seed += 1
        assert seed < 500 + CALLS, f"too few axes of {name}: {tried} parts, lines {lines}"


def test_every_row_of_the_table_is_tried() -> None:
    rows = {row.name.removeprefix("aten::") for row in _core.op_rows() if row.axes}
    assert rows == set(CASES) | UNTRIED
