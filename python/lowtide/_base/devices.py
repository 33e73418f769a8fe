"""Devices whose memory is planned: the CPU, and CUDA devices where Lowtide was built for them."""

from __future__ import annotations

import functools

import torch

from .. import _core, _torch

CPU = torch.device("cpu")
_CUDA_ALIGNMENT = 512  # bytes: of every block that PyTorch's caching allocator gives


def numbered(device: torch.device) -> torch.device:
    """The same device, with its number: that of the current one if it has none."""
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", torch.cuda.current_device())


@functools.cache
def why_not_planned(device: torch.device) -> str:
    """Why memory on this device cannot be planned or counted; "" if it can be, from now on."""
    if device.type == "cpu":
        return ""
    if device.type != "cuda":
        return "only cpu and cuda"
    try:
        from .. import _torch_cuda
    except ImportError as error:
        return f"Lowtide has no part for CUDA here: {error}"
    if torch.__version__.split("+")[0] != _torch_cuda.BUILT_FOR:
        return f"Lowtide's part for CUDA was built for PyTorch {_torch_cuda.BUILT_FOR}, not for {torch.__version__}"
    _torch_cuda.enable(_torch.runtime(), device.index or 0)
    return ""


def alignment_on(device: torch.device) -> int:
    """Bytes that every planned place on the device is a multiple of."""
    return _core.ALIGNMENT if device.type == "cpu" else _CUDA_ALIGNMENT
