"""`lowtide.adapt` for Hugging Face's Trainer: one callback.

from lowtide.integrations.trainer import AdaptCallback

trainer = Trainer(model, args, train_dataset=data, callbacks=[AdaptCallback("6GiB")])
trainer.train()
"""

from __future__ import annotations

from typing import Any

import transformers

from ._callback import HoldsAdapter


class AdaptCallback(HoldsAdapter, transformers.TrainerCallback):
    """Adapts the model while it is trained. Options are those of `lowtide.adapt`; `adapter` has the figures."""

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **kwargs: Any
    ) -> None:
        """Adapts the model."""
        self._open(model, getattr(optimizer, "optimizer", optimizer))  # accelerate has one around it

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ends the batch."""
        self._end_batch()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Gives the model back as it was."""
        self.close()
