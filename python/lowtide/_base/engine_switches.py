"""PyTorch's switches that decide how an operator computes and what it allocates, beyond its arguments.

A step is captured, profiled and run under one setting of them; another setting is another capture and other profiles.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.backends.mha
import torch.utils.deterministic

from .. import _torch


class Switch(NamedTuple):
    """One of them: how it is read, and how it is set."""

    read: Callable[[], Hashable]
    write: Callable[[Any], Any]
    sets_others: bool = False


def _precision(backend: str, operator: str) -> Switch:
    read, write = torch._C._get_fp32_precision_getter, torch._C._set_fp32_precision_setter
    return Switch(partial(read, backend, operator), partial(write, backend, operator))


def _older(read: Callable[[], Hashable], write: Callable[[Any], Any]) -> Switch:
    """One that has no answer where the newer ones, which it sets too, are set to what it has no name for."""

    def read_if_named() -> Hashable:
        try:
            return read()
        except RuntimeError:
            return "by backend"

    def write_if_named(value: Any) -> None:
        if value != "by backend":
            write(value)

    return Switch(read_if_named, write_if_named, sets_others=True)


def _set_only_warns(value: bool) -> None:
    torch._C._set_deterministic_algorithms(torch._C._get_deterministic_algorithms(), warn_only=value)


def _set_deterministic(value: bool) -> None:
    only_warns = torch._C._get_deterministic_algorithms_warn_only()
    torch._C._set_deterministic_algorithms(value, warn_only=only_warns)


_c: Any = torch._C
# The module behind `torch.backends.opt_einsum`, whose own attributes are properties that take longer than all others.
_einsum: dict[str, Any] = torch.backends.opt_einsum.m.__dict__  # type: ignore[attr-defined]
_get_fastpath_enabled = torch.backends.mha.get_fastpath_enabled

# Read by operators on a CUDA device, in PyTorch's build for one.
_IN_CUDA_OPERATORS: dict[str, Switch] = {
    "cudnn": Switch(_c._get_cudnn_enabled, _c._set_cudnn_enabled),
    "cudnn deterministic": Switch(_c._get_cudnn_deterministic, _c._set_cudnn_deterministic),
    "cudnn benchmark": Switch(_c._get_cudnn_benchmark, _c._set_cudnn_benchmark),
    "cudnn depthwise kernel": Switch(_c._get_cudnn_depthwise_kernel, _c._set_cudnn_depthwise_kernel),
    "cuda float32 precision": _precision("cuda", "all"),
    "cuda float32 matmul precision": _precision("cuda", "matmul"),
    "cuda float32 conv precision": _precision("cuda", "conv"),
    "cuda float32 rnn precision": _precision("cuda", "rnn"),
    "cudnn tf32": _older(_c._get_cudnn_allow_tf32, _c._set_cudnn_allow_tf32),
    "cublas float16 reduced precision reduction": Switch(
        _c._get_cublas_allow_fp16_reduced_precision_reduction,
        lambda value: _c._set_cublas_allow_fp16_reduced_precision_reduction(*value),
    ),
    "cublas bfloat16 reduced precision reduction": Switch(
        _c._get_cublas_allow_bf16_reduced_precision_reduction,
        lambda value: _c._set_cublas_allow_bf16_reduced_precision_reduction(*value),
    ),
    "cublas float16 accumulation": Switch(
        _c._get_cublas_allow_fp16_accumulation, _c._set_cublas_allow_fp16_accumulation
    ),
    "linear algebra library": Switch(_c._get_linalg_preferred_backend, _c._set_linalg_preferred_backend),
    "blas library": Switch(_c._get_blas_preferred_backend, _c._set_blas_preferred_backend),
    "multiprocessors left free": Switch(_c._get_sm_carveout_experimental, _c._set_sm_carveout_experimental),
}
# Read by the operators that a program calls, whenever they run.
_IN_OPERATORS: dict[str, Switch] = {
    "threads": Switch(torch.get_num_threads, torch.set_num_threads),
    "default dtype": Switch(torch.get_default_dtype, torch.set_default_dtype),
    "deterministic algorithms": Switch(_c._get_deterministic_algorithms, _set_deterministic),
    "deterministic algorithms only warn": Switch(_c._get_deterministic_algorithms_warn_only, _set_only_warns),
    "uninitialized memory is filled": Switch(
        _c._get_deterministic_fill_uninitialized_memory, _c._set_deterministic_fill_uninitialized_memory
    ),
    "mkldnn": Switch(_c._get_mkldnn_enabled, _c._set_mkldnn_enabled),
    "mkldnn deterministic": Switch(_c._get_mkldnn_deterministic, _c._set_mkldnn_deterministic),
    "float32 precision": _precision("generic", "all"),
    "mkldnn float32 precision": _precision("mkldnn", "all"),
    "mkldnn float32 matmul precision": _precision("mkldnn", "matmul"),
    "mkldnn float32 conv precision": _precision("mkldnn", "conv"),
    "mkldnn float32 rnn precision": _precision("mkldnn", "rnn"),
    "float32 matmul precision": _older(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "float16 reduced precision reduction": Switch(
        _c._get_cpu_allow_fp16_reduced_precision_reduction, _c._set_cpu_allow_fp16_reduced_precision_reduction
    ),
    "nnpack": Switch(_c._get_nnpack_enabled, _c._set_nnpack_enabled),
    "quantized engine": Switch(_c._get_qengine, _c._set_qengine),
    "sparse invariants are checked": Switch(_c._check_sparse_tensor_invariants, _c._set_check_sparse_tensor_invariants),
    **(_IN_CUDA_OPERATORS if _c._has_cuda else {}),
}
# Read by what decides which operators are called: a function may set them for a part of its work.
_IN_CHOICES: dict[str, Switch] = {
    "flash attention": Switch(_c._get_flash_sdp_enabled, _c._set_sdp_use_flash),
    "flash attention 3": Switch(_c._get_fa3_sdp_enabled, _c._set_sdp_use_fa3),
    "cudnn attention": Switch(_c._get_cudnn_sdp_enabled, _c._set_sdp_use_cudnn),
    "memory-efficient attention": Switch(_c._get_mem_efficient_sdp_enabled, _c._set_sdp_use_mem_efficient),
    "math attention": Switch(_c._get_math_sdp_enabled, _c._set_sdp_use_math),
    "math attention reduced precision": Switch(
        _c._get_math_sdp_allow_fp16_bf16_reduction, _c._set_math_sdp_allow_fp16_bf16_reduction
    ),
    "overrideable attention": Switch(_c._get_overrideable_sdp_enabled, _c._set_sdp_use_overrideable),
    "attention priority": Switch(
        lambda: tuple(_c._get_sdp_priority_order()), lambda value: _c._set_sdp_priority_order(list(value))
    ),
    "einsum paths": Switch(partial(_einsum.__getitem__, "enabled"), partial(_einsum.__setitem__, "enabled")),
    "einsum strategy": Switch(partial(_einsum.__getitem__, "strategy"), partial(_einsum.__setitem__, "strategy")),
    "multi-head attention fast path": Switch(_get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
}

SWITCH_NAMES = (*_IN_OPERATORS, *_IN_CHOICES)
_SWITCHES = (*_IN_OPERATORS.values(), *_IN_CHOICES.values())

Values = tuple[Hashable, ...]
_known: dict[Values, Values] = {}  # what was read under a word


def read_switches() -> Values:
    """The switches as they are now, in the order of `SWITCH_NAMES`. The same object where they are the same."""
    return _known.get(_word()) or read_anew(_known, _word, lambda: tuple([switch.read() for switch in _SWITCHES]))


def _word() -> Values:
    return (_torch.engine_word(), *read_pythons_own())


def read_pythons_own() -> Values:
    """The switches that the engine knows nothing of."""
    return _einsum["enabled"], _einsum["strategy"], _get_fastpath_enabled()


def read_anew(known: dict[Values, Values], word: Callable[[], Values], read: Callable[[], Values]) -> Values:
    """Reads values that are not known yet under the word of now, which is another one where they are others."""
    before = word()
    values = read()
    if word() == before:  # else another thread has set one of them meanwhile
        known[before] = values
    return values


def set_switches(values: Sequence[Hashable]) -> None:
    """Sets those that are others now than `read_switches` gave."""
    others_first = sorted(zip(_SWITCHES, values, strict=True), key=lambda pair: not pair[0].sets_others)
    for switch, value in others_first:
        if switch.read() != value:
            switch.write(value)


def read_operator_switches() -> tuple[Hashable, ...]:
    """Those that operators read when they run."""
    return read_switches()[: len(_IN_OPERATORS)]


def fills_new_memory() -> bool:
    """Whether memory is filled as soon as an operator asks for it, before it reads its operands."""
    return bool(_c._get_deterministic_algorithms() and _c._get_deterministic_fill_uninitialized_memory())


def changed_since(before: Sequence[Hashable]) -> str:
    """The first of the operators' switches that is not as it was, and how it was and is; "" if all are."""
    now = read_operator_switches()
    if now == before:
        return ""
    named = zip(_IN_OPERATORS, before, now, strict=True)
    return next(f"{name} ({was} -> {value})" for name, was, value in named if was != value)
