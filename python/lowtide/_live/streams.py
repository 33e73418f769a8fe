"""The CUDA stream that a program's work is queued on: the one that was current at its first call."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

_C: Any = torch._C


class OwnStream:
    """The stream that is current now. Nothing, before CUDA is in use."""

    def __init__(self) -> None:
        self._stream = torch.cuda.current_stream() if torch.cuda._initialized else None
        self._handle = None if self._stream is None else _current()

    def is_current(self) -> bool:
        """Whether work is still queued there."""
        return self._handle is None or self._handle == _current()

    def entered(self) -> AbstractContextManager[Any]:
        """While open, work is queued there."""
        return nullcontext() if self.is_current() else torch.cuda.stream(self._stream)


def _current() -> tuple[int, int]:
    device = _C._cuda_getDevice()
    return device, _C._cuda_getCurrentRawStream(device)
