"""What PyTorch's caching allocator has of a GPU on which memory ran out.

Statistics are read, and nothing is allocated or given back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from .. import _core

_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes of one device. What is allocated is part of what is reserved."""

    device: str
    total_bytes: int
    limit_bytes: int  # that this process may reserve
    allocated_bytes: int
    reserved_bytes: int
    others_bytes: int  # neither free nor reserved by PyTorch: contexts, libraries, other programs
    requested_bytes: int  # by what ran out, as the message has it; 0 if it does not say

    @property
    def unallocated_bytes(self) -> int:
        """Reserved, and in no tensor."""
        return self.reserved_bytes - self.allocated_bytes

    @property
    def is_fragmented(self) -> bool:
        """Whether what was asked for is there, in pieces that are too small."""
        return 0 < self.requested_bytes <= self.unallocated_bytes

    def __str__(self) -> str:
        size = _core.format_bytes
        limit = f", {size(self.limit_bytes)} of it for this process" if self.limit_bytes < self.total_bytes else ""
        return (
            f"{self.device} has {size(self.total_bytes)}{limit}: {size(self.allocated_bytes)} allocated, "
            f"{size(self.unallocated_bytes)} reserved beyond that, {size(self.others_bytes)} not PyTorch's"
        )


def device_of(error: BaseException | None) -> str:
    """The GPU that ran out of memory, "cuda" if there is no telling which; "" if it was none."""
    if error is None or "CUDA out of memory" not in str(error):
        return ""
    number = re.search(r"GPU (\d+)", str(error))
    return f"cuda:{number[1]}" if number is not None else "cuda"


def memory_on(device: str, error: BaseException | None) -> DeviceMemory | None:
    """None if nothing is known of the device."""
    if not device or not torch.cuda.is_available():
        return None
    where = torch.device(device)
    try:
        free, total = torch.cuda.mem_get_info(where)
        reserved = torch.cuda.memory_reserved(where)
        share = torch.cuda.get_per_process_memory_fraction(where)
        allocated = torch.cuda.memory_allocated(where)
    except RuntimeError:  # a device that answers nothing any more
        return None
    others = max(total - free - reserved, 0)
    return DeviceMemory(device, total, int(share * total), allocated, reserved, others, _requested(error))


def _requested(error: BaseException | None) -> int:
    said = re.search(r"Tried to allocate ([\d.]+) (bytes|KiB|MiB|GiB)", str(error))
    return int(float(said[1]) * _UNITS[said[2]]) if said is not None else 0
