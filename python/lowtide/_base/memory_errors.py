"""Which errors say that memory ran out."""

from __future__ import annotations

import errno
import sys

# PyTorch has a class of its own for accelerators only. Everything else is a RuntimeError that says so.
_SAYINGS = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "out of memory",
    "std::bad_alloc",
    "STATUS_ALLOC_FAILED",  # cuBLAS and cuDNN
    "unable to allocate shared memory",
    "Cannot allocate memory",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that memory ran out, on an accelerator or on the CPU.

    On a GPU PyTorch raises torch.OutOfMemoryError, on the CPU a plain RuntimeError, and NumPy and Python a MemoryError.

        try:
            train(model, batches)
        except (RuntimeError, MemoryError) as error:
            if lowtide.is_out_of_memory(error):
                print(lowtide.explain_oom())
            raise
    """
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(saying in str(error) for saying in _SAYINGS)
