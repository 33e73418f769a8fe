"""Which iterations are alike: the inputs that an iteration begins with, and what it begins in."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from .._base.tensors import extents_of


class Signature(NamedTuple):
    """Iterations of one signature are expected to make the same requests.

    Those of one `kind` differ in the shapes of their inputs only: a smaller one may fit where a larger one did.
    """

    kind: tuple[object, ...]
    inputs: tuple[object, ...]

    def is_within(self, other: Signature) -> bool:
        """Whether each of its tensors has at most as many elements as that of the other one."""
        pairs = zip(self.inputs, other.inputs, strict=False)
        return len(self.inputs) == len(other.inputs) and all(_elements(a) <= _elements(b) for a, b in pairs)


def signature_of(ended_by: object, module: torch.nn.Module | None, inputs: object, device: torch.device) -> Signature:
    """Of an iteration after one that `ended_by` ended, which begins with a call of a module or with these inputs."""
    kind = (
        id(ended_by),
        id(module),
        module is not None and module.training,
        torch.is_grad_enabled(),
        torch.is_autocast_enabled(device.type),
    )
    return Signature(kind, tuple(_look_of(leaf) for leaf in tree_leaves(inputs)))


def _elements(look: object) -> int:
    """Of a tensor that looks like this; of anything else none are known."""
    extents = look[0] if isinstance(look, tuple) else None
    return math.prod(extents) if isinstance(extents, tuple) else 0


def _look_of(leaf: Any) -> object:
    if isinstance(leaf, torch.Tensor):
        extents = extents_of(leaf)
        known = all([type(extent) is int for extent in extents])  # not so of symbolic ones
        return (extents if known else leaf.dim(), leaf.layout, leaf.dtype)
    if leaf is None or isinstance(leaf, (bool, int, str)):
        return leaf
    return type(leaf)
