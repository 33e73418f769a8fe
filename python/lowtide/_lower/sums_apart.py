"""Means as a sum and a division: a sum can run in parts, a mean cannot.

PyTorch's kernels for the CPU do the same in one operator: they sum, and then divide what they have summed. So the two
have its bits (`tests/python/test_sums_apart.py`). Elsewhere, and of narrow numbers, means stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from .._base.schemas import DEFAULT
from .._capture.recorder import Ref
from .lowering import Buffer, Lowered, Operator

_aten = torch.ops.aten
_MEAN, _SUM = 1, 2  # as losses number their reductions
_WIDE = (torch.float32, torch.float64)


def with_sums_apart(lowered: Lowered) -> Lowered:
    """The same step, of which every mean is two operators. Buffers keep their numbers; new ones come behind."""
    apart = replace(lowered, operators=[], buffers=list(lowered.buffers), updates={}, pauses={})
    place: dict[int, int] = {}  # of each operator: where its last part is
    for index, operator in enumerate(lowered.operators):
        split = _SPLITS.get(operator.target)
        apart.operators += [operator] if split is None or not _is_wide(operator) else split(operator, apart)
        place[index] = len(apart.operators) - 1
    apart.updates = {place[index]: name for index, name in lowered.updates.items()}
    apart.pauses = {place[index]: mark for index, mark in lowered.pauses.items()}
    return apart


def _is_wide(operator: Operator) -> bool:
    refs = [*operator.reads(), *operator.new_results()]
    floats = [ref for ref in refs if ref.dtype.is_floating_point]
    return (
        all(operator.made)
        and all(ref.device.type == "cpu" for ref in refs)
        and all(ref.dtype in _WIDE and ref.dtype == floats[0].dtype for ref in floats)
    )


def _new_sum(operator: Operator, lowered: Lowered) -> Ref:
    """A buffer for what is summed, like the first result."""
    mean = operator.results[0]
    assert mean is not None
    lowered.buffers.append(Buffer(lowered.buffers[mean.buffer].nbytes, role="temporary", device=mean.device))
    return mean._replace(buffer=len(lowered.buffers) - 1, offset=0)


def _nll(operator: Operator, lowered: Lowered) -> Iterator[Operator]:
    """The sum is over weights, whose total is the second result."""
    if operator.arguments[3] not in (_MEAN, DEFAULT):
        yield operator
        return
    total = _new_sum(operator, lowered)
    arguments = [*operator.arguments[:3], _SUM, *operator.arguments[4:]]
    yield replace(operator, arguments=arguments, results=[total, operator.results[1]])
    divided = [total, operator.results[1]]
    yield replace(operator, target=_aten.div.Tensor, arguments=divided, results=operator.results[:1], made=[True])


def _mean(operator: Operator, lowered: Lowered) -> Iterator[Operator]:
    summed = operator.arguments[0]
    dims = list(range(len(summed.sizes)))
    keep = False
    if operator.target is _aten.mean.dim:
        given = operator.arguments[1]
        dims = [dim % max(1, len(summed.sizes)) for dim in given] if given not in (None, DEFAULT, []) else dims
        keep = operator.arguments[2] is True
    total = _new_sum(operator, lowered)
    count = math.prod(summed.sizes[dim] for dim in dims) if summed.sizes else 1
    yield replace(
        operator, target=_aten.sum.dim_IntList, arguments=[summed, dims, keep, None], results=[total], made=[True]
    )
    yield replace(operator, target=_aten.div.Scalar, arguments=[total, count], results=operator.results, made=[True])


_SPLITS: dict[torch._ops.OpOverload, Callable[[Operator, Lowered], Iterator[Operator]]] = {
    _aten.nll_loss_forward.default: _nll,
    _aten.nll_loss2d_forward.default: _nll,
    _aten.mean.default: _mean,
    _aten.mean.dim: _mean,
}
