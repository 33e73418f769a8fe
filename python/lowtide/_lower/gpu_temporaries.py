"""What operators of PyTorch for CUDA request inside, beside their results, by shapes alone.

A row for each operator that was seen to request anything of weight, on PyTorch 2.13: tests hold every row against the
real operator. Requests are taken to last as long as the call. With cuDNN, convolutions have workspaces that only cuDNN
knows; they are not here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from .._capture.recorder import Ref
from .gpu_reductions import bytes_between_blocks
from .gpus import Device
from .lowering import Operator

_FLOAT_BYTES, _INDEX_BYTES = 4, 8
_TILE = 64  # rows and columns of a tile of efficient attention's backward
_TILE_BYTES = _FLOAT_BYTES * (_TILE * _TILE + 4)
_FLASH_ROWS, _FLASH_COLUMNS = 128, 32  # flash attention pads to their multiples
_FEW_INDICES = 3072  # up to which gradients of embeddings need no sorting
_ROWS_OF_A_PART = 10  # of one index, added up together
_WARP_COLUMNS = 32
_MANY_ROWS = 64 * 1024  # from which on layer norm adds up its gradients in parts, if the rows are short
_LAYER_NORM_ROWS = 32  # of each part


class Inside(NamedTuple):
    """Bytes of each request, in order."""

    before: tuple[int, ...] = ()  # the results
    between: tuple[int, ...] = ()  # the first result and the others
    after: tuple[int, ...] = ()  # the results
    last_result_first: bool = False


def requested_inside(operator: Operator, device: Device) -> Inside:
    """What a call requests beside its results."""
    row = _TABLE.get(operator.target._schema.name)
    return Inside() if row is None else row(operator, device)


def _bytes(ref: Ref) -> int:
    return math.prod(ref.sizes) * ref.dtype.itemsize


def _copied(*refs: Ref) -> tuple[int, ...]:
    """Of operands that must be contiguous, and are not."""
    return tuple(_bytes(ref) for ref in refs if ref.strides != _contiguous(ref.sizes))


def _contiguous(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(sizes[place + 1 :]) for place in range(len(sizes)))


def _padded(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _dropout(_operator: Operator, _device: Device) -> Inside:
    return Inside(last_result_first=True)  # the mask


def _reduction(operator: Operator, device: Device) -> Inside:
    x, *rest = operator.arguments
    over = rest[0] if rest and isinstance(rest[0], (list, tuple)) else None
    everything = range(len(x.sizes))
    return Inside(after=bytes_between_blocks(x, [d % len(x.sizes) for d in over] if over else everything, device))


def _softmax_backward(operator: Operator, _device: Device) -> Inside:
    return Inside(after=(_bytes(operator.arguments[0]),))  # gradient and result, multiplied


def _cross_entropy_of_logits(operator: Operator, device: Device) -> Inside:
    x = operator.arguments[0]
    return Inside(before=(_bytes(x), _bytes(x)), after=bytes_between_blocks(x, range(len(x.sizes)), device))


def _efficient_attention_backward(operator: Operator, _device: Device) -> Inside:
    gradient, query, key = operator.arguments[:3]
    batch, heads, rows, width = query.sizes
    is_float32 = query.dtype == torch.float32
    is_in_order = gradient.strides[-1] == 1 and gradient.strides[1] == width and gradient.strides[2] >= heads * width
    delta = batch * heads * rows * _FLOAT_BYTES
    tiles = _padded(rows, _TILE) * _padded(width, _TILE) // _TILE**2
    parts = batch * heads * tiles * _TILE_BYTES
    if not is_float32 and width > _TILE:  # gradients of keys and values are added up in float32 too
        parts += 2 * batch * heads * _padded(key.sizes[2], 2 * _TILE) * _padded(width, _TILE) * _FLOAT_BYTES
    product = (_bytes(query), delta) if is_float32 else ()
    return Inside(before=() if is_in_order else (_bytes(gradient),), after=(*product, delta, parts))


def _flash_attention_backward(operator: Operator, _device: Device) -> Inside:
    batch, heads, rows, width = operator.arguments[1].sizes
    padded = batch * heads * _padded(rows, _FLASH_ROWS) * _FLOAT_BYTES
    return Inside(after=(padded, padded * _padded(width, _FLASH_COLUMNS)))


def _embedding(operator: Operator, _device: Device) -> Inside:
    return Inside(before=_copied(operator.arguments[1]))


def _embedding_backward(operator: Operator, _device: Device) -> Inside:
    gradient, indices, rows = operator.arguments[:3]
    copies = _copied(gradient, indices)
    count = math.prod(indices.sizes)
    if count <= _FEW_INDICES:
        return Inside(before=copies)
    used = min(count, rows)  # at most
    parts = count // _ROWS_OF_A_PART + used
    order, ends = count * _INDEX_BYTES, used * _INDEX_BYTES
    sums = parts * _INDEX_BYTES, parts * gradient.sizes[-1] * _FLOAT_BYTES
    return Inside((*copies, order, order), (), (order, _INDEX_BYTES, ends, ends, _INDEX_BYTES, *sums))


def _layer_norm_backward(operator: Operator, device: Device) -> Inside:
    gradient, _, shape = operator.arguments[:3]
    width = math.prod(shape)
    rows = math.prod(gradient.sizes) // width
    if rows <= _MANY_ROWS or width // _WARP_COLUMNS >= device.multiprocessors // 2:
        return Inside(after=_copied(gradient))
    parts = -(-rows // _LAYER_NORM_ROWS)
    part = Ref(-1, torch.float32, (parts, width), (width, 1), 0)
    sums = bytes_between_blocks(part, [0], device)
    return Inside(after=(*_copied(gradient), *[_bytes(part)] * 2, *[width * _FLOAT_BYTES] * 2, *sums))


def _pool_backward(operator: Operator, _device: Device) -> Inside:
    return Inside(after=_copied(operator.arguments[0]))


def _convolution(operator: Operator, _device: Device) -> Inside:
    x, weight, _, stride, padding, dilation, transposed, _, groups = operator.arguments
    is_product = set(stride) == set(dilation) == set(weight.sizes[2:]) == {1} and set(padding) == {0}
    if torch.backends.cudnn.enabled or (is_product and not transposed):
        return Inside()
    result = operator.results[0]
    assert result is not None
    return Inside(after=_columns(x, result, weight, transposed, groups))


def _convolution_backward(operator: Operator, device: Device) -> Inside:
    gradient, x, weight, _, _, _, _, transposed, _, groups, (wants_input, _, wants_bias) = operator.arguments
    over = [d for d in range(len(gradient.sizes)) if d != 1]
    sums = bytes_between_blocks(gradient, over, device) if wants_bias else ()
    if torch.backends.cudnn.enabled:
        return Inside(after=sums)
    columns = _columns(x, gradient, weight, transposed, groups)
    if wants_input:
        return Inside(_copied(gradient), columns, sums)
    return Inside(before=_copied(gradient), after=(*sums, *columns))


def _columns(x: Ref, result: Ref, weight: Ref, transposed: bool, groups: int) -> tuple[int, ...]:
    """Of one image, laid out for a product of matrices; convolutions of single channels need none."""
    if groups > 1 and groups == x.sizes[1]:
        return ()
    wide, narrow = (result, x) if transposed else (x, result)
    places = math.prod(weight.sizes[2:]) * math.prod(narrow.sizes[2:])
    return (wide.sizes[1] // groups * places * x.dtype.itemsize,)


_TABLE: dict[str, Callable[[Operator, Device], Inside]] = {
    "aten::native_dropout": _dropout,
    "aten::sum": _reduction,
    "aten::mean": _reduction,
    "aten::_softmax_backward_data": _softmax_backward,
    "aten::binary_cross_entropy_with_logits": _cross_entropy_of_logits,
    "aten::_scaled_dot_product_efficient_attention_backward": _efficient_attention_backward,
    "aten::_scaled_dot_product_flash_attention_backward": _flash_attention_backward,
    "aten::embedding": _embedding,
    "aten::embedding_dense_backward": _embedding_backward,
    "aten::native_layer_norm_backward": _layer_norm_backward,
    "aten::max_pool2d_with_indices_backward": _pool_backward,
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
}
