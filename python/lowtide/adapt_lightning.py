"""`lowtide.adapt` for Lightning: one callback.

from lowtide.adapt_lightning import AdaptCallback

trainer = lightning.Trainer(callbacks=[AdaptCallback("6GiB")])
trainer.fit(module, loader)
"""

from __future__ import annotations

from typing import Any

from .adapt_blocks import tensors_in
from .adapting import Adapter, adapt

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback


class AdaptCallback(Callback):  # type: ignore[misc,unused-ignore]  # Any, where Lightning is not installed
    """Adapts the module while it is fitted. Options are those of `lowtide.adapt`; `adapter` has the figures."""

    def __init__(self, memory_budget: int | str, **options: Any) -> None:
        self._memory_budget = memory_budget
        self._options = options
        self.adapter: Adapter | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Adapts the module, and counts the state of its optimizer if there is one."""
        self.close()
        optimizer = trainer.optimizers[0] if len(trainer.optimizers) == 1 else None
        self.adapter = adapt(pl_module, memory_budget=self._memory_budget, optimizer=optimizer, **self._options)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A batch is known by its tensors, whatever parts of the module it goes through."""
        if self.adapter is not None:
            self.adapter.begin(*tensors_in(batch))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """The update is done."""
        if self.adapter is not None:
            self.adapter.end()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Gives the module back as it was."""
        self.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Gives the module back as it was."""
        self.close()

    def close(self) -> None:
        """Gives the module back as it was."""
        if self.adapter is not None:
            self.adapter.close()
