"""Bytes that code on fake tensors holds, and the most it has held at once."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .._capture.recorder import ITEM


class Living(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes that calls have made and that are still held; refuses to write to anything real."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.most = 0
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}

    @property
    def bytes(self) -> int:
        """Held now."""
        self._storages = {k: held for k, held in self._storages.items() if not held[0].expired()}  # type: ignore[no-untyped-call]
        return sum(size for _, size in self._storages.values())

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is ITEM:  # any number will do, but for conditions: those mostly ask whether something is wrong
            return torch.tensor(args[0].dtype is not torch.bool, dtype=args[0].dtype, device="cpu").item()
        given = [leaf for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, torch.Tensor)]
        if func._schema.is_mutable and not all(isinstance(tensor, FakeTensor) for tensor in given):
            raise RuntimeError(f"{func} would write to a tensor that is not the copy's")
        out = func(*args, **(kwargs or {}))
        known = {_key(tensor) for tensor in given}
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and _key(tensor) not in known:
                storage = tensor.untyped_storage()
                self._storages[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())  # type: ignore[no-untyped-call]
        self.most = max(self.most, self.bytes)
        return out


def _key(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
