"""The values of tensors that a captured step makes of constants alone, such as a mask that a library keeps."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from .._base.schemas import positional
from .recorder import Call, Recording, Ref, refs_in, written_buffers

_ONLY_THE_RECORDING = 3  # references to a root: the recorded buffer's, a variable's and that of the call that counts


def constant_values(recording: Recording, windows: Sequence[Ref]) -> list[torch.Tensor] | None:
    """Real tensors with what these windows hold at the end of the step; windows on one buffer share their memory.

    None where that depends on more than constants: on parameters, arguments or random numbers, or on a tensor that
    nobody but the recording holds any more, because the step has put another in its place.
    """
    calls = _makers(recording, {ref.buffer for ref in windows})
    if calls is None:
        return None
    try:
        with torch.no_grad(), torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            return _Values(recording).after(calls, windows)
    except Exception:  # whatever does not compute like this is not a plain constant
        return None


def is_constant(recording: Recording, windows: Sequence[Ref]) -> bool:
    """Whether nothing but constants decides what these windows hold."""
    return _makers(recording, {ref.buffer for ref in windows}) is not None


def _makers(recording: Recording, wanted: set[int]) -> list[Call] | None:
    """The calls that decide what the buffers hold, in order, if they take nothing but constants."""
    found: list[Call] = []
    written: set[int] = set()
    for call in reversed(recording.calls):
        writes = set(written_buffers(call.target, positional(call.target, call.args, call.kwargs)))
        made = {ref.buffer for ref in call.results if ref is not None}
        if wanted.isdisjoint(writes | made):
            continue
        if torch.Tag.nondeterministic_seeded in call.target.tags or call.target.namespace not in ("aten", "prims"):
            return None
        found.append(call)
        written |= writes
        wanted |= {ref.buffer for ref in refs_in((call.args, call.kwargs))}
    for index in wanted:
        buffer = recording.buffers[index]
        if buffer.role not in ("activation", "constant"):
            return None
        if buffer.root is not None:
            root = buffer.root
            if index in written or root.requires_grad or sys.getrefcount(root) <= _ONLY_THE_RECORDING:
                return None
    return found[::-1]


class _Values:
    """Runs recorded calls on real memory."""

    def __init__(self, recording: Recording) -> None:
        self._storages = {
            index: buffer.root.untyped_storage()
            for index, buffer in enumerate(recording.buffers)
            if buffer.root is not None
        }

    def after(self, calls: Sequence[Call], windows: Sequence[Ref]) -> list[torch.Tensor]:
        for call in calls:
            out = call.target(*self._real(call.args), **self._real(call.kwargs))
            results = [leaf for leaf in _flat(out) if isinstance(leaf, torch.Tensor)]
            for ref, tensor in zip([ref for ref in call.results if ref is not None], results, strict=True):
                if ref.buffer not in self._storages:
                    tensor = tensor.clone() if call.target is torch.ops.aten.lift_fresh.default else tensor
                    self._storages[ref.buffer] = tensor.untyped_storage()
                found = (tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.device)
                if found != ref[1:]:
                    raise ValueError("another form than its capture says")
        return [self._window(ref) for ref in windows]

    def _window(self, ref: Ref) -> torch.Tensor:
        made = torch.empty(0, dtype=ref.dtype, device=ref.device)
        return made.set_(self._storages[ref.buffer], ref.offset, ref.sizes, ref.strides)

    def _real(self, tree: Any) -> Any:
        if isinstance(tree, Ref):
            return self._window(tree)
        if isinstance(tree, dict):
            return {key: self._real(item) for key, item in tree.items()}
        if isinstance(tree, (list, tuple)):
            return [self._real(item) for item in tree]
        return tree


def _flat(tree: Any) -> list[Any]:
    return [leaf for item in tree for leaf in _flat(item)] if isinstance(tree, (list, tuple)) else [tree]
