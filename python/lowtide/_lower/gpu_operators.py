"""Operators that PyTorch takes on a GPU and not on a CPU: fused attention, fused dropout, updates of all parameters.

Which operators a function is made of depends on the device of its tensors, and tensors that are on CUDA can only be
differentiated by a PyTorch that was built for it. So fake tensors stay on the CPU, and what PyTorch would choose on
CUDA is chosen here, for those operators whose choice decides what is held until the backward pass or at the update.
Everything else, shapes and strides of results included, is PyTorch's own.

On an H100 PyTorch may prefer cuDNN's attention to flash attention: what it saves has the same size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._guards import active_fake_mode
from torch.nn import functional

from .gpus import Device

_aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)
_FLASH_HEAD = 256  # the widest head of flash attention
_LITTLE_SHARED = ((8, 6), (8, 9))  # capabilities with less memory for a block: wide heads are not differentiated there
_FLASH_MULTIPLE = 8  # its heads are padded to a multiple of this
_MASK_MULTIPLE = 16  # rows of a mask are padded to a multiple of this, and begin at one
_VECTOR_BYTES = 16  # heads of efficient attention are whole vectors


@contextmanager
def gpu_operators(optimizers: Sequence[torch.optim.Optimizer], device: Device) -> Iterator[None]:
    """What is captured here takes operators as on that GPU; what other threads compute meanwhile is as ever."""
    undecided = [group for optimizer in optimizers for group in optimizer.param_groups if _takes_lists(group)]
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("dropout", _dropout, "AutogradCPU")
        library.impl("scaled_dot_product_attention", partial(_attention, device), "AutogradCPU")
        try:
            for group in undecided:
                group["foreach"] = True
            yield
        finally:
            for group in undecided:
                group["foreach"] = None


def _takes_lists(group: dict[str, Any]) -> bool:
    """Whether parameters are updated together although nobody said so: not if `fused` is said, be it that it is not."""
    unsaid = all(group.get(name) is None for name in ("foreach", "fused")) and "foreach" in group
    number = not isinstance(group.get("lr"), Tensor) or group.get("capturable", True)
    return unsaid and number and not group.get("differentiable")


def _dropout(x: Tensor, p: float, train: bool) -> Tensor:
    if active_fake_mode() is None or not (train and 0 < p < 1 and x.numel()):
        plain: Tensor = _aten.dropout.default.decompose(x, p, train)
        return plain
    dropped: Tensor = _aten.native_dropout(x, p, train)[0]
    return dropped


def _attention(
    device: Device,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if active_fake_mode() is None:
        plain: Tensor = _aten.scaled_dot_product_attention.default.decompose(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
        return plain
    result: Tensor
    differentiated = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value))
    runs_flash = not differentiated or _differentiates_flash(device, query.shape[-1], dropout_p)
    if runs_flash and _takes_flash(query, key, value, attn_mask, is_causal, enable_gqa):
        width = query.shape[-1]
        missing = -width % _FLASH_MULTIPLE
        if missing:
            query, key, value = (functional.pad(tensor, (0, missing)) for tensor in (query, key, value))
        scale = 1 / math.sqrt(width) if scale is None else scale
        result = _aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[
            0
        ]
        return result[..., :width] if missing else result
    takes_efficient = _takes_efficient(query, key, value, attn_mask)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        shown, hidden = (torch.scalar_tensor(number, dtype=query.dtype) for number in (0.0, -math.inf))
        attn_mask = torch.where(attn_mask, shown, hidden)
    if takes_efficient:
        mask = None if attn_mask is None else _aligned(attn_mask, query, key)
        result = _aten._scaled_dot_product_efficient_attention(
            query, key, value, mask, differentiated, dropout_p, is_causal, scale=scale
        )[0]
        return result
    result = _aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )[0]
    return result


def _differentiates_flash(device: Device, width: int, dropout: float) -> bool:
    lowest, highest = _LITTLE_SHARED
    return not lowest <= device.capability <= highest or width <= 192 or (width > 224 and not dropout)


def _takes_flash(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, grouped: bool
) -> bool:
    widths = {tensor.shape[-1] for tensor in (query, key, value)}
    return (
        torch.backends.cuda.flash_sdp_enabled()  # type: ignore[no-untyped-call]
        and mask is None
        and query.dtype in _HALF
        and _are_batches_of_heads(query, key, value, grouped)
        and len(widths) == 1
        and max(widths) <= _FLASH_HEAD
        and (not is_causal or query.shape[-2] == key.shape[-2])
    )


def _takes_efficient(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    return (
        torch.backends.cuda.mem_efficient_sdp_enabled()  # type: ignore[no-untyped-call]
        and query.dtype in (*_HALF, torch.float32)
        and _are_batches_of_heads(query, key, value, grouped=False)
        and (mask is None or mask.stride(-1) == 1)
        and all(tensor.shape[-1] * tensor.itemsize % _VECTOR_BYTES == 0 for tensor in (query, value))
    )


def _are_batches_of_heads(query: Tensor, key: Tensor, value: Tensor, grouped: bool) -> bool:
    """What every fused kernel asks for; with `grouped` several heads of the query may share one of the others."""
    tensors = (query, key, value)
    if any(tensor.dim() != 4 or tensor.stride(-1) != 1 or not tensor.numel() for tensor in tensors):
        return False
    same_heads = query.shape[1] % key.shape[1] == 0 if grouped else query.shape[1] == key.shape[1]
    return query.shape[0] == key.shape[0] == value.shape[0] and key.shape[1] == value.shape[1] and same_heads


def _aligned(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The mask as efficient attention reads it: one number for each score, in rows of whole vectors."""
    length = key.shape[-2]
    mask = mask.expand(*query.shape[:3], length)
    missing = -length % _MASK_MULTIPLE
    if missing:
        return functional.pad(mask, (0, missing))[..., :length]
    return mask.contiguous() if any(stride % _MASK_MULTIPLE for stride in mask.stride()[:3]) else mask
