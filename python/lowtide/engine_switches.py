"""PyTorch's switches that decide how an operator computes and what it allocates, beyond its arguments.

A step is captured, profiled and run under one setting of them; another setting is another capture and other profiles.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

import torch
import torch.backends.mha
import torch.utils.deterministic

_precision = torch._C._get_fp32_precision_getter


def _matmul_precision() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # the newer switches below are set to what has no name here
        return "by backend"


# Read by the operators that a program calls, whenever they run.
_IN_OPERATORS: dict[str, Callable[[], Hashable]] = {
    "threads": torch.get_num_threads,
    "default dtype": torch.get_default_dtype,
    "deterministic algorithms": torch._C._get_deterministic_algorithms,
    "deterministic algorithms only warn": torch._C._get_deterministic_algorithms_warn_only,
    "uninitialized memory is filled": torch._C._get_deterministic_fill_uninitialized_memory,
    "mkldnn": torch._C._get_mkldnn_enabled,
    "mkldnn deterministic": torch._C._get_mkldnn_deterministic,
    "float32 precision": partial(_precision, "generic", "all"),
    "mkldnn float32 precision": partial(_precision, "mkldnn", "all"),
    "mkldnn float32 matmul precision": partial(_precision, "mkldnn", "matmul"),
    "mkldnn float32 conv precision": partial(_precision, "mkldnn", "conv"),
    "mkldnn float32 rnn precision": partial(_precision, "mkldnn", "rnn"),
    "float32 matmul precision": _matmul_precision,
    "float16 reduced precision reduction": torch._C._get_cpu_allow_fp16_reduced_precision_reduction,  # type: ignore[attr-defined]
    "nnpack": torch._C._get_nnpack_enabled,
    "quantized engine": torch._C._get_qengine,
    "sparse invariants are checked": torch._C._check_sparse_tensor_invariants,
}
# Read by what decides which operators are called: a function may set them for a part of its work.
_IN_CHOICES: dict[str, Callable[[], Hashable]] = {
    "flash attention": torch._C._get_flash_sdp_enabled,
    "memory-efficient attention": torch._C._get_mem_efficient_sdp_enabled,
    "math attention": torch._C._get_math_sdp_enabled,
    "math attention reduced precision": torch._C._get_math_sdp_allow_fp16_bf16_reduction,
    "overrideable attention": torch._C._get_overrideable_sdp_enabled,
    "attention priority": lambda: tuple(torch._C._get_sdp_priority_order()),
    "multi-head attention fast path": torch.backends.mha.get_fastpath_enabled,
}

SWITCH_NAMES = (*_IN_OPERATORS, *_IN_CHOICES)
_in_operators = tuple(_IN_OPERATORS.values())
_in_choices = tuple(_IN_CHOICES.values())


def read_switches() -> tuple[Hashable, ...]:
    """The switches as they are now, in the order of `SWITCH_NAMES`."""
    return (*read_operator_switches(), *[read() for read in _in_choices])


def read_operator_switches() -> tuple[Hashable, ...]:
    """Those that operators read when they run."""
    return tuple([read() for read in _in_operators])


def changed_since(before: tuple[Hashable, ...]) -> str:
    """The first of the operators' switches that is not as it was, and how it was and is; "" if all are."""
    now = read_operator_switches()
    if now == before:
        return ""
    named = zip(_IN_OPERATORS, before, now, strict=True)
    return next(f"{name} ({was} -> {value})" for name, was, value in named if was != value)
