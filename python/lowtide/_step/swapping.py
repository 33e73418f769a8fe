"""What of a step may leave memory for a tier, and the tensors that have their home there.

A tensor that is away keeps its storage, whose memory is a part of the tier: whoever reads or writes it between steps
finds its content. Steps load it to the arena and store what they change.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from .. import _core, _torch
from .._base.devices import CPU, alignment_on
from .._lower.lowering import Lowered
from ..errors import CaptureError

LEAST_BYTES = 64 << 10  # smaller tensors stay
_LEAVING = ("parameter", "optimizer_state", "gradient")  # roles of what the caller keeps


@dataclass(frozen=True, slots=True)
class Link:
    """How fast the way to a tier is: bytes a second, and nanoseconds for each transfer."""

    store_rate: int
    load_rate: int
    latency_ns: int = 0
    duplex: bool = False


class SwapTier:
    """A memory behind a link that steps on one device may swap to."""

    alignment: int  # of places in the arena

    def __init__(self, name: str, device: torch.device, slow: _torch.SlowTier, link: Link) -> None:
        self.name = name
        self.device = device
        self.slow = slow
        self.link = link

    def offer(self, may_leave: Sequence[int]) -> _core.Swap:
        """What a plan is told: these resident buffers may leave, and all planned ones."""
        link = self.link
        return _core.Swap(
            self.name, store_rate=link.store_rate, load_rate=link.load_rate, latency_ns=link.latency_ns,
            duplex=link.duplex, may_leave=may_leave, least_bytes=LEAST_BYTES,
        )  # fmt: skip

    def put_away(self, tensors: Iterable[torch.Tensor]) -> None:
        """Gives these tensors their home in the tier, if they have none and their memory can be exchanged."""
        for tensor in movable(t for t in tensors if not _torch.is_in(t, self.slow) and is_whole(t, t.nbytes)):
            _torch.put_away(tensor, self.slow)

    def bring_back(self, tensors: Iterable[torch.Tensor]) -> None:
        """Gives those of these tensors that are away ordinary memory again, if their memory can be exchanged."""
        for tensor in movable(t for t in tensors if _torch.is_in(t, self.slow)):
            _torch.bring_back(tensor, self.slow)

    @contextmanager
    def gathered(self, tensors: Iterable[torch.Tensor]) -> Iterator[int]:
        """Those of the tensors that are away are in memory, verified, while the block runs.

        Gives how many are not: arrays of NumPy or of other libraries show their memory.
        """
        away = [tensor for tensor in tensors if _torch.is_in(tensor, self.slow)]
        try:
            self.bring_back(away)
            yield sum(_torch.is_in(tensor, self.slow) for tensor in away)
        finally:
            self.put_away(away)

    def compact(self, tensors: Iterable[torch.Tensor]) -> None:
        """Moves these tensors together, so that what others have left between them can be given back."""


class FolderTier(SwapTier):
    """A folder on disk, for steps on the CPU."""

    alignment = 4096  # for direct I/O

    def __init__(self, file: _torch.TierFile, link: Link) -> None:
        super().__init__(file.folder, CPU, _torch.file_tier(file), link)
        self.file = file


class HostTier(SwapTier):
    """Pinned memory of the host, for steps on a CUDA device."""

    def __init__(self, device: torch.device, link: Link) -> None:
        slow = _torch.host_tier(device)
        assert slow is not None, "memory on this device is planned"
        super().__init__("host", device, slow, link)
        self.alignment = alignment_on(device)

    def compact(self, tensors: Iterable[torch.Tensor]) -> None:
        """A segment of PyTorch's allocator stays for as long as one tensor lies in it."""
        whole = [t.untyped_storage() for t in movable(tensors) if t.device == self.device and is_whole(t, t.nbytes)]
        copies = [storage.cpu() for storage in whole]  # type: ignore[no-untyped-call]
        for storage in whole:
            storage.resize_(0)
        torch.cuda.empty_cache()
        for storage, copy in zip(whole, copies, strict=True):
            storage.resize_(copy.nbytes())
            storage.copy_(copy)


def is_away(tensor: torch.Tensor) -> bool:
    """Whether its memory is a part of a tier."""
    return _torch.is_away(tensor)


def may_leave(lowered: Lowered, bound: dict[int, torch.Tensor], tier: SwapTier) -> list[int]:
    """The buffers of parameters, state and gradients that are one whole storage each; `bound` has those by buffer."""
    if lowered.device != tier.device:
        raise CaptureError(f"the step is on {lowered.device}, and swaps from {tier.device} to {tier.name}")
    shared = {buffer for buffer, *_ in lowered.shared}
    leaving = [
        index
        for index in _worth_moving(lowered)
        if index not in shared
        and (
            lowered.buffers[index].kind == "made"
            or (index in bound and is_whole(bound[index], lowered.buffers[index].nbytes))
        )
    ]
    there = [bound[index] for index in leaving if index in bound and not is_away(bound[index])]
    fixed = {id(tensor) for tensor in there} - {id(tensor) for tensor in movable(there)}
    return [index for index in leaving if id(bound.get(index)) not in fixed]


def cannot_leave(lowered: Lowered, leaving: Sequence[int]) -> list[str]:
    """The names of those that are large enough, and yet not among the buffers that may leave."""
    return [lowered.buffers[index].name for index in _worth_moving(lowered) if index not in set(leaving)]


def _worth_moving(lowered: Lowered) -> list[int]:
    return [
        index
        for index, buffer in enumerate(lowered.buffers)
        if buffer.role in _LEAVING and buffer.device == lowered.device and buffer.nbytes >= LEAST_BYTES
    ]


def is_whole(tensor: torch.Tensor, nbytes: int) -> bool:
    """Whether it is all there is in its storage, which is this process's own."""
    if tensor.layout is not torch.strided:
        return False
    storage = tensor.untyped_storage()
    shared = tensor.device.type == "cpu" and storage.is_shared()
    return storage.nbytes() == tensor.nbytes == nbytes and not shared and not tensor.is_inference()


def movable(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Those whose memory can be exchanged for other: who refers to it is a tensor, and none has its address alone.

    An array of NumPy marks the storage that it shows. If it shows a tensor that needs no gradient, that very tensor may
    be all that it holds. What else has an address (DLPack) holds a tensor that Python does not know.
    """
    own = [tensor for tensor in tensors if _torch.has_own_memory(tensor)]
    uses = [_torch.storage_uses(tensor) for tensor in own]
    known = _torch.count_tensors(own, gc.get_objects()) if any(count > 1 for count in uses) else uses

    def can_move(tensor: torch.Tensor, uses: int, known: int) -> bool:
        if _torch.was_shown_as_array(tensor):
            return uses == 1 and tensor.requires_grad
        return uses == known or uses == 1

    return [tensor for tensor, *counts in zip(own, uses, known, strict=True) if can_move(tensor, *counts)]
