"""Graphs that PyTorch's compiler makes with another formula than eager's: they are left to eager.

See `_capture/formulas.py`. AOTAutograd has chosen before Lowtide sees the graph, so its calls are looked at, not
autograd's nodes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from .._capture.formulas import loss_without_data
from ..errors import CaptureError

_aten = torch.ops.aten
_CHOOSE_BY_DATA: dict[Any, str] = {
    _aten.prod.default: "torch.prod",
    _aten.prod.dim_int: "torch.prod",
    _aten.cumprod.default: "torch.cumprod",
    _aten.masked_fill.Tensor: "masked_fill with a value that needs one (torch.where can be planned)",
    _aten.max.default: "torch.max of all elements (amax can be planned)",
    _aten.min.default: "torch.min of all elements (amin can be planned)",
    _aten.median.default: "torch.median of all elements",
    _aten.nanmedian.default: "torch.nanmedian of all elements",
}


def refuse_other_formulas(joint: fx.GraphModule) -> None:
    """Raises `CaptureError` for a graph with gradients that may have other last bits than eager's."""
    calls: list[Any] = [node for node in joint.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    for place, node in enumerate(calls):
        found = _CHOOSE_BY_DATA.get(node.target)
        value = node.meta.get("val")
        if found and isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
            raise CaptureError(f"the gradient of {found} has another formula in PyTorch's graph than in eager")
        loss = loss_without_data(calls[: place + 1])
        if loss:
            raise CaptureError(f"{loss} has another formula in PyTorch's graph than in eager")
