"""PyTorch's switches as they are now: a block that runs again computes with the same ones.

A loop may have them around its forward pass only, as `with sdpa_kernel(SDPBackend.MATH): loss = model(batch)`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from .._base.engine_switches import SWITCH_NAMES, read_switches

_C: Any = torch._C
_set_precision: Any = _C._set_fp32_precision_setter


def _set_deterministic(value: bool) -> None:
    torch.use_deterministic_algorithms(value, warn_only=torch.is_deterministic_algorithms_warn_only_enabled())


def _set_only_warns(value: bool) -> None:
    torch.use_deterministic_algorithms(torch.are_deterministic_algorithms_enabled(), warn_only=value)


def _set_matmul_precision(value: str) -> None:
    """The older switch; it sets some of the newer ones, which are put back after it."""
    if value in ("highest", "high", "medium"):
        torch.set_float32_matmul_precision(value)


_WRITERS: dict[str, Callable[[Any], object]] = {
    "float32 matmul precision": _set_matmul_precision,
    "threads": torch.set_num_threads,
    "default dtype": torch.set_default_dtype,
    "deterministic algorithms": _set_deterministic,
    "deterministic algorithms only warn": _set_only_warns,
    "uninitialized memory is filled": _C._set_deterministic_fill_uninitialized_memory,
    "mkldnn": _C._set_mkldnn_enabled,
    "mkldnn deterministic": _C._set_mkldnn_deterministic,
    "float32 precision": partial(_set_precision, "generic", "all"),
    "mkldnn float32 precision": partial(_set_precision, "mkldnn", "all"),
    "mkldnn float32 matmul precision": partial(_set_precision, "mkldnn", "matmul"),
    "mkldnn float32 conv precision": partial(_set_precision, "mkldnn", "conv"),
    "mkldnn float32 rnn precision": partial(_set_precision, "mkldnn", "rnn"),
    "float16 reduced precision reduction": _C._set_cpu_allow_fp16_reduced_precision_reduction,
    "nnpack": _C._set_nnpack_enabled,
    "quantized engine": _C._set_qengine,
    "flash attention": _C._set_sdp_use_flash,
    "memory-efficient attention": _C._set_sdp_use_mem_efficient,
    "math attention": _C._set_sdp_use_math,
    "math attention reduced precision": _C._set_math_sdp_allow_fp16_bf16_reduction,
    "overrideable attention": _C._set_sdp_use_overrideable,
    "attention priority": lambda order: _C._set_sdp_priority_order(list(order)),
}


class Switches:
    """The switches as they are now."""

    def __init__(self) -> None:
        self._values = read_switches()

    def restore(self) -> None:
        """Puts back those that are others by now, of which results in training depend."""
        now = read_switches()
        if now == self._values:
            return
        before = dict(zip(SWITCH_NAMES, self._values, strict=True))
        is_now = dict(zip(SWITCH_NAMES, now, strict=True))
        for name, write in _WRITERS.items():
            if is_now[name] != before[name]:
                write(before[name])
