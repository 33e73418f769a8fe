"""`lowtide.adapt` for Hugging Face's Trainer: one callback.

from lowtide.adapt_trainer import AdaptCallback

trainer = Trainer(model, args, train_dataset=data, callbacks=[AdaptCallback("6GiB")])
trainer.train()
"""

from __future__ import annotations

from typing import Any

import transformers

from .adapting import Adapter, adapt


class AdaptCallback(transformers.TrainerCallback):
    """Adapts the model while it is trained. Options are those of `lowtide.adapt`; `adapter` has the figures."""

    def __init__(self, memory_budget: int | str, **options: Any) -> None:
        self._memory_budget = memory_budget
        self._options = options
        self.adapter: Adapter | None = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **kwargs: Any
    ) -> None:
        """Adapts the model."""
        self.close()
        optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate has one around it
        self.adapter = adapt(model, memory_budget=self._memory_budget, optimizer=optimizer, **self._options)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The update is done."""
        if self.adapter is not None:
            self.adapter.end()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Gives the model back as it was."""
        self.close()

    def close(self) -> None:
        """Gives the model back as it was, if training ended with an error."""
        if self.adapter is not None:
            self.adapter.close()
