"""Emulated CUDA for tests: import it before anything runs on the device, with the stub libraries in LD_LIBRARY_PATH.

Importing it initializes CUDA, turns cuDNN off and gives every operator its values.
"""

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator

import torch

os.environ["USE_PYTORCH_KERNEL_CACHE"] = "0"  # kernels compiled here are empty: a GPU must not find them
torch.backends.cudnn.enabled = False
torch.backends.cuda.enable_cudnn_sdp(False)
torch.cuda.init()

_runtime = ctypes.CDLL("libcudart.so.13")
_runtime.emulated_cuda_shadow_distance.restype = ctypes.c_ssize_t
_runtime.emulated_cuda_host_seconds.restype = ctypes.c_double
_runtime.emulated_cuda_launches.restype = ctypes.c_uint64
_runtime.emulated_cuda_declare.restype = ctypes.c_double
_runtime.emulated_cuda_declare.argtypes = [ctypes.c_char_p, ctypes.c_double]
_runtime.emulated_cuda_poison.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
operators = ctypes.CDLL("libemulated_cuda_values.so").emulated_cuda_install_values()  # how many have values


@contextlib.contextmanager
def declared(**figures: float) -> Iterator[None]:
    """Declare `late`, `poison`, `link`, `bandwidth` or `tflops` for a while. Waits for the device at both ends."""
    before = {name: _runtime.emulated_cuda_declare(name.encode(), value) for name, value in figures.items()}
    try:
        yield
    finally:
        for name, value in before.items():
            _runtime.emulated_cuda_declare(name.encode(), value)


def host_seconds() -> float:
    """The host's time on the virtual clock."""
    return _runtime.emulated_cuda_host_seconds()


def milliseconds(program: Callable[[], object]) -> float:
    """What it takes on the current stream, by the virtual clock."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    program()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def launches() -> int:
    """Kernels launched so far."""
    return _runtime.emulated_cuda_launches()


def poison(tensor: torch.Tensor) -> None:
    """Queue bytes of 0xFF for the whole storage of a device tensor on the current stream."""
    storage = tensor.untyped_storage()
    _runtime.emulated_cuda_poison(torch.cuda.current_stream().cuda_stream, storage.data_ptr(), storage.nbytes())


def device_bytes(tensor: torch.Tensor) -> bytes:
    """The bytes that a contiguous device tensor has now, without any wait."""
    assert tensor.is_cuda and tensor.is_contiguous()
    return ctypes.string_at(tensor.data_ptr() + _runtime.emulated_cuda_shadow_distance(), tensor.nbytes)
