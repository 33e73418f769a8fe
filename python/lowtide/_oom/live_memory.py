"""What tensors hold: the memory behind them, and behind the autograd graphs that made them.

Nothing is computed, allocated on a device or unpacked: it can be asked when memory has run out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import Node


@dataclass(frozen=True, slots=True)
class Memory:
    """A storage, by its address; `what` describes the first tensor through which it was seen."""

    key: int
    nbytes: int = field(compare=False)
    device: str = field(compare=False)
    what: str = field(compare=False)


def describe(tensor: torch.Tensor) -> str:
    """Dtype and shape: `float32 [64, 4096]`."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def memory_of(tensor: torch.Tensor) -> Memory | None:
    """The storage behind a tensor; None if it has none of its own, as fake and sparse tensors have not."""
    try:
        storage = tensor.untyped_storage()
        if storage.device.type == "meta" or storage.nbytes() == 0:
            return None
        return Memory(storage._cdata, storage.nbytes(), str(storage.device), describe(tensor))
    except (NotImplementedError, RuntimeError, ValueError):  # the last of parameters that have no shape yet
        return None


@dataclass(slots=True)
class HeldByGraph:
    """What an autograd graph keeps for its backward pass."""

    saved: dict[Memory, str] = field(default_factory=dict)  # and the node that saved it
    nodes: int = 0
    most_uses: int = 0  # of one parameter

    @property
    def nbytes(self) -> int:
        """All of it."""
        return sum(memory.nbytes for memory in self.saved)


def held_by_graphs(tensors: Iterable[torch.Tensor]) -> HeldByGraph:
    """What the graphs that made these tensors keep, each storage once."""
    held = HeldByGraph()
    uses: Counter[Node] = Counter()
    open_nodes = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    seen: set[Node] = set()
    while open_nodes:
        node = open_nodes.pop()
        if node in seen:
            continue
        seen.add(node)
        for tensor in _saved_by(node):
            memory = memory_of(tensor)
            if memory is not None:
                held.saved.setdefault(memory, node.name())
        for successor, _ in node.next_functions:
            if successor is not None:
                if hasattr(successor, "variable"):  # where a parameter's gradient ends up
                    uses[successor] += 1
                else:
                    open_nodes.append(successor)
    held.nodes = len(seen)
    held.most_uses = max(uses.values(), default=0)
    return held


_saved_names: dict[type, list[str]] = {}


def _saved_by(node: Node) -> Iterator[torch.Tensor]:
    kind = type(node)
    if kind not in _saved_names:
        _saved_names[kind] = [name for name in dir(node) if name.startswith("_raw_saved")]
    for name in _saved_names[kind]:
        try:
            saved = getattr(node, name)
        except RuntimeError:  # lists of tensors say so when they were freed
            continue
        for one in saved if isinstance(saved, (list, tuple)) else (saved,):
            yield from _tensors_in(getattr(one, "data", None))
    yield from _tensors_in(list(getattr(node, "__dict__", {}).values()))  # of a Function: what its context has


def _tensors_in(packed: Any) -> Iterator[torch.Tensor]:
    """A tensor, or those in what a hook packed it into; None if it is freed."""
    if isinstance(packed, torch.Tensor):
        yield packed
    elif isinstance(packed, (list, tuple)):
        for item in packed:
            if isinstance(item, torch.Tensor):
                yield item
