"""Arguments that share memory with each other or with what the step keeps, where the step writes it.

A step is captured as if each argument had memory of its own, which is true of nearly all batches and lets them lie
anywhere. Where it is not, the capture is made again for that sharing: which arguments share with what, and how many
bytes apart they begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch


class Share(NamedTuple):
    """An argument, what it shares memory with, and how many bytes behind the argument that begins."""

    leaf: int
    other: str
    other_leaf: int  # -1 if that is no argument
    behind: int


Sharing = tuple[Share, ...]


class Seen(NamedTuple):
    """A tensor that a step works with."""

    name: str
    tensor: torch.Tensor
    written: bool
    leaf: int = -1  # which argument it is; -1 for none


def sharing_of(seen: Sequence[Seen]) -> Sharing:
    """Which arguments share memory that is written."""
    found: list[Share] = []
    for one in seen:
        if one.leaf < 0:
            continue
        begin, end = reach(one.tensor)
        for other in seen:
            other_begin, other_end = reach(other.tensor)
            if other is not one and (one.written or other.written) and begin < other_end and other_begin < end:
                found.append(Share(one.leaf, other.name, other.leaf, other_begin - begin))
    return tuple(found)


def sharing_leaves(sharing: Sharing) -> frozenset[int]:
    """The arguments that take part."""
    return frozenset(leaf for share in sharing for leaf in (share.leaf, share.other_leaf) if leaf >= 0)


def show_sharing(sharing: Sharing, names: Sequence[str]) -> str:
    """In words: "x shares memory with 0.weight"."""
    if not sharing:
        return "shared memory: none"
    said = [
        f"{names[share.leaf]} with {share.other if share.other_leaf < 0 else names[share.other_leaf]}"
        for share in sharing
    ]
    return f"shared memory: {', '.join(said[:4])}{' and more' if len(said) > 4 else ''}"


def reach(tensor: torch.Tensor) -> tuple[int, int]:
    """Where the memory begins and ends that a tensor shows."""
    begin = tensor.data_ptr()
    if tensor.numel() == 0:
        return begin, begin
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (last + 1) * tensor.itemsize
