"""Noise in the order in which eager draws it.

Eager's `bernoulli_` fills a tensor in the order of its memory. PyTorch's compiler makes a function of it, whose result
is contiguous: where the tensor is not, as dropout's behind a transpose, each element would get another number.

    empty_like (8, 4 transposed)  ->  bernoulli          becomes          permute  ->  bernoulli  ->  permute
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ..errors import CaptureError

_aten = torch.ops.aten
_UNWRITTEN = (
    _aten.empty.memory_format, _aten.empty_like.default, _aten.empty_strided.default, _aten.new_empty.default,
    _aten.new_empty_strided.default,
)  # fmt: skip


def draw_in_order(module: fx.GraphModule) -> None:
    """Lets the graph draw for the memory of each tensor, in order."""
    for node in module.graph.find_nodes(op="call_function", target=_aten.bernoulli.p):
        filled = node.args[0]
        value: torch.Tensor = filled.meta["val"]
        if value.is_contiguous():
            continue
        if filled.target not in _UNWRITTEN:
            raise CaptureError(
                "PyTorch's graph does not tell bernoulli_ from bernoulli of a tensor that is not contiguous"
            )
        order = sorted(range(value.dim()), key=value.stride, reverse=True)
        drawn: Any = value.permute(order)
        made = torch.empty_like(drawn, memory_format=torch.contiguous_format)
        back = [order.index(dim) for dim in range(value.dim())]
        with module.graph.inserting_before(node):
            memory = _call(node, _aten.permute.default, (filled, order), {}, drawn)
            noise = _call(node, node.target, (memory, *node.args[1:]), node.kwargs, made)
            result = _call(node, _aten.permute.default, (noise, back), {}, made.permute(back))
        node.replace_all_uses_with(result)
        module.graph.erase_node(node)
    module.recompile()


def _call(like: fx.Node, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], value: torch.Tensor) -> fx.Node:
    """A call in place of a part of `like`, whose line it has."""
    made = like.graph.call_function(target, args, kwargs)
    made.meta = {**like.meta, "val": value, "tensor_meta": None}
    return made
