"""Whether two tensors hold the same bits."""

from __future__ import annotations

import torch


def same_bits(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    """Whether both have one shape and the same bits, NaN and signs of zero included; they are of one dtype."""
    if other is None or one.shape != other.shape:
        return False
    with torch.no_grad():
        return torch.equal(_bytes_of(one), _bytes_of(other))


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8) if tensor.dim() else tensor.reshape(1).view(torch.uint8)
