"""What PyTorch's caching allocator has of a CUDA device: more than what is allocated.

Its segments are larger than the blocks in them, and one with a block in it stays. What else the process has there
counts too: other models, workspaces. A memory budget in bytes is over all of that.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .. import _torch

_ROUNDED_TO = 2 << 20  # bytes: what a segment for an arena is a multiple of
_SMALL = 1 << 20  # up to here, tensors share segments of 2 MiB
_LARGE = 10 << 20  # from here on each has a segment of its own
_SHARED_SEGMENT = 20 << 20  # what those in between share


def reserved_bytes(device: torch.device) -> int:
    """All that the allocator has now; 0 where memory is not reserved."""
    return torch.cuda.memory_reserved(device) if device.type == "cuda" else 0


def keep_reserved_below(device: torch.device, limit: int) -> None:
    """Gives back what the allocator only keeps for later, if it has more than that."""
    if reserved_bytes(device) > limit:
        torch.cuda.empty_cache()


def reserved_beside(device: torch.device, there: int, coming: Iterable[torch.Tensor] = ()) -> int:
    """What it has beyond the arena and the bytes of a step that are `there` and does not give back; 0 on the CPU.

    For tensors that are still `coming`, what their segments may have beyond them is counted too.
    """
    if device.type != "cuda":
        return 0
    keep_reserved_below(device, there)
    beside = max(0, reserved_bytes(device) - _torch.arena_usable_bytes(device) - there) + _ROUNDED_TO
    sizes = [tensor.nbytes for tensor in coming]
    small, large = any(n <= _SMALL for n in sizes), sum(n >= _LARGE for n in sizes)
    middle = any(_SMALL < n < _LARGE for n in sizes)
    return beside + _ROUNDED_TO * (small + large) + _SHARED_SEGMENT * middle
