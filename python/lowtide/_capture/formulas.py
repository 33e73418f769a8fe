"""Where a recording has another formula than eager's.

Some functions of PyTorch choose by their data: `prod` by whether there are zeros, `masked_fill` by how many elements
are filled. Where somebody watches, or a tensor stands in for another, they take a formula that needs no data. Its last
bits are others, so a recording that has one is not to be run.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

import torch

from ..errors import CaptureError

if TYPE_CHECKING:
    from .recorder import Call, Recording

_NODES = {
    "CumprodBackward0": "torch.cumprod",
    "MaskedFillBackward1": "masked_fill with a value that needs one (torch.where can be planned)",
    "ProdBackward0": "torch.prod",
    "ProdBackward1": "torch.prod",
}  # autograd's, on every device
_NODES_ON_CPUS = {
    "MaxBackward1": "torch.max of all elements (amax can be planned)",
    "MedianBackward0": "torch.median of all elements",
    "MinBackward1": "torch.min of all elements (amin can be planned)",
    "NanmedianBackward0": "torch.nanmedian of all elements",
}
_GATHER = torch.ops.aten.gather.default
_WEIGHTS_OF_TARGETS = (
    _GATHER,
    torch.ops.aten.masked_fill.Scalar,
    torch.ops.aten.masked_fill_.Scalar,
    torch.ops.aten.eq.Scalar,
)  # the last first


def formula_without_data(node: torch.autograd.graph.Node, device: torch.device) -> str | None:
    """What autograd's node computes by another formula than eager's, if it does."""
    name = node.name()
    found = _NODES.get(name) or (_NODES_ON_CPUS.get(name) if device.type == "cpu" else None)
    return found and f"the gradient of {found}"


def loss_without_data(calls: Sequence[Call]) -> str | None:
    """What the last call is a part of, if that is a loss with another formula than eager's.

    PyTorch sums the weights of the classes that are not ignored: those of all, but for zeros, instead of the others.
    """
    if calls[-1].target is not _GATHER:
        return None
    before = (call.target for call in reversed(calls) if not call.target.is_view)
    is_one = tuple(islice(before, len(_WEIGHTS_OF_TARGETS))) == _WEIGHTS_OF_TARGETS
    return "cross_entropy with class weights and label smoothing" if is_one else None


def refuse_formulas(recording: Recording) -> None:
    """Raises `CaptureError` if the recording has any."""
    for what, source in recording.formulas.items():
        raise CaptureError(f"eager looks at data to choose its formula for {what} ({source})")
