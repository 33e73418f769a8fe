"""What the callbacks of training loops have in common: an adapter from the beginning of training to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import lowtide

if TYPE_CHECKING:
    from .._adapt.adapter import Adapter


class HoldsAdapter:
    """Options are those of `lowtide.adapt`. `adapter` has the figures, after training too."""

    def __init__(self, memory_budget: int | str, **options: Any) -> None:
        self._memory_budget = memory_budget
        self._options = options
        self.adapter: Adapter | None = None

    def close(self) -> None:
        """Gives the model back as it was; to be called if training ends in a way that the loop does not tell of."""
        if self.adapter is not None:
            self.adapter.close()

    def _open(self, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        self.close()
        self.adapter = lowtide.adapt(model, memory_budget=self._memory_budget, optimizer=optimizer, **self._options)

    def _end_batch(self) -> None:
        """The update is done."""
        if self.adapter is not None:
            self.adapter.end()
