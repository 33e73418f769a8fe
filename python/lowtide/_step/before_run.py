"""What a program finds when it begins, as far as it takes to undo a run that fails on the way.

Random numbers that were drawn can be drawn again. Of what the program writes and does not own (running statistics, the
batch), little enough is copied, and only before a variant's first run: what Lowtide itself gets wrong shows there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from .._base.random_states import read_random_states, set_random_states
from .._lower.lowering import Lowered, Operator, is_random
from .._optimizer.opaque import OPAQUE_UPDATE


class BeforeRun:
    """The random state, and copies of tensors by their buffer."""

    def __init__(self, kept: Mapping[int, torch.Tensor], *, draws: bool) -> None:
        self._random = read_random_states() if draws else None
        self._versions = {buffer: tensor._version for buffer, tensor in kept.items()}
        with torch.no_grad():
            self._kept = {buffer: (tensor, tensor.clone()) for buffer, tensor in kept.items()}

    def undo(self, lowered: Lowered, begun: Sequence[Operator]) -> bool:
        """After these operators have run or begun: whether everything is as it was before them, or is again."""
        written = {b for operator in begun for b in operator.writes if lowered.buffers[b].kind == "bound"}
        if not written <= self._kept.keys():
            return False
        with torch.no_grad():
            for buffer in written:
                tensor, content = self._kept[buffer]
                tensor.copy_(content)
                torch._C._autograd._unsafe_set_version_counter((tensor,), (self._versions[buffer],))
        if self._random is not None:
            set_random_states(self._random)
        return True


def draws(lowered: Lowered) -> bool:
    """Whether a run may draw random numbers."""
    return any(is_random(operator) or operator.target is OPAQUE_UPDATE for operator in lowered.operators)


def written_until(lowered: Lowered, begun: Sequence[Operator]) -> frozenset[int] | None:
    """The bound buffers that these operators write; None if copies of the bound tensors are not all that is in them."""
    written = {b for operator in begun for b in operator.writes if lowered.buffers[b].kind == "bound"}
    return frozenset(written) if written.isdisjoint(buffer for buffer, *_ in lowered.shared) else None


def worth_keeping(lowered: Lowered, tensors: Mapping[int, torch.Tensor], most_bytes: int) -> dict[int, torch.Tensor]:
    """Of the bound `tensors`, by buffer, those that are written on the way to the update, if they are few bytes."""
    written = {
        buffer
        for index, operator in enumerate(lowered.operators)
        for buffer in operator.writes
        if index not in lowered.updates
    }
    shared = {buffer for buffer, *_ in lowered.shared}
    found = {b: tensor for b, tensor in tensors.items() if b in written and b not in shared}
    if any(tensor.is_inference() for tensor in found.values()):
        return {}
    return found if sum(tensor.nbytes for tensor in found.values()) <= most_bytes else {}
