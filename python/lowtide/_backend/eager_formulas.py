"""PyTorch's compiler traces some functions by other formulas than eager's; here it traces them by eager's own.

Dropout is one: eager multiplies with noise that is scaled, the compiler's Python version scales what it has
multiplied, and the last bits differ. While a graph is traced, the operators below go by their C++ formulas alone. Those
that eager runs as they are but that cannot be traced so keep their Python version, and have the same bits by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import DispatchKey

_aten = torch.ops.aten
_KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
_NAMES = (
    "dropout", "gru", "lstm", "rnn_relu", "rnn_tanh", "hardshrink", "softshrink", "multi_margin_loss",
    "multilabel_margin_loss_forward", "_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa", "_upsample_lanczos2d_aa",
    "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_bicubic2d",
    "upsample_bilinear2d", "upsample_linear1d", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
    "upsample_trilinear3d",
)  # fmt: skip


def _operators() -> Iterator[Any]:
    for name in _NAMES:
        packet = getattr(_aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            yield getattr(packet, overload)


@contextmanager
def eager_formulas() -> Iterator[None]:
    """While open, graphs are traced by the formulas that eager has."""
    taken = [
        (operator, key, operator.py_kernels.pop(key))
        for operator in _operators()
        for key in _KEYS
        if key in operator.py_kernels
    ]
    for operator, _, _ in taken:
        operator._dispatch_cache.clear()
    try:
        yield
    finally:
        for operator, key, kernel in taken:
            operator.py_kernels[key] = kernel
            operator._dispatch_cache.clear()
