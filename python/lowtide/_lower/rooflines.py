"""Rooflines: how long an operator would take on a device that is not here, from the device's published peaks.

    time of an operator = max(operations / peak of its dtype, bytes moved / bandwidth) + launch

It is what the device cannot beat, plus the launch: real kernels reach less than the peaks, some far less. So times of
two operators compare, and a step's total is a bound rather than a forecast. Floating point operations come from
PyTorch's own table of formulas (`torch.utils.flop_counter`), by shapes alone; what is not in it moves bytes only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from .. import _core
from .._base.schemas import DEFAULT
from .._capture.recorder import Ref, refs_in
from .gpus import Device
from .lowering import Operator

_aten = torch.ops.aten


def time_ns(operator: Operator, device: Device) -> int:
    """How long the device takes at least: whole nanoseconds, 0 for what neither computes nor moves bytes."""
    work, moved = operations(operator), bytes_moved(operator)
    if not work and not moved:
        return 0
    return max(_nanos(work, _peak(operator, device)), _nanos(moved, device.bytes_per_second)) + device.launch_ns


def move_ns(moved: int, device: Device) -> int:
    """How long a kernel takes that only moves bytes."""
    return _nanos(moved, device.bytes_per_second) + device.launch_ns


def _nanos(amount: int, per_second: int) -> int:
    return -(-amount * 10**9 // per_second)


def _peak(operator: Operator, device: Device) -> int:
    """Operations per second in the dtype of its operands. Dtypes without a peak of their own count as float32."""
    dtype = next((str(ref.dtype)[6:] for ref in operator.reads()), "")
    if dtype == "float32":
        # As PyTorch would on such a device: convolutions in TF32 unless told not to, the rest only if told to.
        convolution = "convolution" in operator.target._schema.name
        settings = torch.backends.cudnn.conv if convolution else torch.backends.cuda.matmul  # type: ignore[attr-defined]
        dtype = "tf32" if settings.fp32_precision == "tf32" else dtype
    return device.operations_per_second.get(dtype, device.operations_per_second["float32"])


def bytes_moved(operator: Operator) -> int:
    """Bytes of the windows that it reads and of those that it writes, each once; a repeated row or column is one."""
    row = _core.op_row(operator.target._schema.name)
    if row.moves_no_bytes:
        return 0
    read = dict.fromkeys(operator.reads())
    made = list(operator.new_results())
    written = [ref for ref in read if ref.buffer in operator.writes] + list(dict.fromkeys(made))
    moved = {ref: _bytes(ref) for ref in read}
    if row.reads_what_it_picks:
        table = next(refs_in(operator.arguments))
        moved[table] = min(moved[table], sum(map(_bytes, made)))
    return sum(moved.values()) + sum(map(_bytes, written))


def _bytes(ref: Ref) -> int:
    distinct = (size for size, stride in zip(ref.sizes, ref.strides, strict=True) if stride or not size)
    return math.prod(distinct) * ref.dtype.itemsize


def operations(operator: Operator) -> int:
    """Its floating point operations (a multiplication and an addition are two), 0 if there is no formula."""
    packet = operator.target.overloadpacket
    formula = _FORMULAS.get(packet) or flop_registry.get(packet)
    if formula is None:
        return 0
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for schema, argument in zip(operator.target._schema.arguments, operator.arguments, strict=True):
        value = schema.default_value if argument is DEFAULT else _shaped(argument)
        if schema.kwarg_only:
            named[schema.name] = value
        else:
            positional.append(value)
    results = [_shaped(ref) for ref in operator.results]
    return int(formula(*positional, **named, out_val=results[0] if len(results) == 1 else results))


def _shaped(tree: Any) -> Any:
    """Refs as tensors without content, for formulas that look at shapes."""
    if isinstance(tree, Ref):
        return torch.empty_strided(tree.sizes, tree.strides, dtype=tree.dtype, device="meta")
    if isinstance(tree, (list, tuple)):
        return [_shaped(item) for item in tree]
    return tree


def _convolution_backward(
    gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *rest: Any, out_val: Any
) -> int:
    # Either gradient costs what the convolution does. PyTorch's formula forgets groups in that of the weight.
    _, stride, padding, dilation, transposed, output_padding, groups, wanted = rest
    forward = flop_registry[_aten.convolution](
        x, weight, None, stride, padding, dilation, transposed, output_padding, groups, out_val=gradient
    )
    return int(forward) * sum(map(bool, wanted[:2]))


def _rnn(x: torch.Tensor, *rest: torch.Tensor, out_val: Any) -> int:
    # Each row of each time step is multiplied by both matrices of weights.
    rows: int = x.numel() // x.shape[-1]
    return 2 * rows * sum(weight.numel() for weight in rest[:2])


def _rnn_backward(x: torch.Tensor, *rest: torch.Tensor, out_val: Any) -> int:
    return 2 * _rnn(x, *rest, out_val=out_val)


# What PyTorch's table does not know, because it is made for another device, or has wrong.
_FORMULAS: dict[Any, Callable[..., int]] = {
    _aten._scaled_dot_product_flash_attention_for_cpu: flop_registry[_aten._scaled_dot_product_flash_attention],
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: flop_registry[
        _aten._scaled_dot_product_flash_attention_backward
    ],
    _aten.convolution_backward: _convolution_backward,
    _aten.mkldnn_rnn_layer: _rnn,
    _aten.mkldnn_rnn_layer_backward: _rnn_backward,
}
