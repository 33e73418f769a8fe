"""Fake tensors where PyTorch chooses operators on lists: as for the plain tensors that they stand for.

Optimizers and the clipping of gradients use such operators for tensors of some classes, on some devices. On the CPU
they compute the same one by one; on a GPU they have kernels of their own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import _foreach_supported_types as _by_optimizers
from torch.utils._foreach_utils import _foreach_supported_types as _by_clipping

_LISTS: tuple[list[Any], ...] = (_by_optimizers, _by_clipping)


def take_fakes_for_tensors() -> bool:
    """From now on, where a GPU is in use. Whether `leave_fakes_alone` is to be called, once."""
    if not torch.cuda._initialized:
        return False
    for classes in _LISTS:
        classes.append(FakeTensor)
    return True


def leave_fakes_alone() -> None:
    """The reverse."""
    for classes in _LISTS:
        classes.remove(FakeTensor)
