"""`lowtide.adapt` for Lightning: one callback.

from lowtide.integrations.lightning import AdaptCallback

trainer = lightning.Trainer(callbacks=[AdaptCallback("6GiB")])
trainer.fit(module, loader)
"""

from __future__ import annotations

from typing import Any

from .._base.tensors import tensors_in
from ._callback import HoldsAdapter

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback


class AdaptCallback(HoldsAdapter, Callback):  # type: ignore[misc,unused-ignore]  # Any, without Lightning
    """Adapts the module while it is fitted. Options are those of `lowtide.adapt`; `adapter` has the figures."""

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Adapts the module, and counts the state of its optimizer if there is one."""
        self._open(pl_module, trainer.optimizers[0] if len(trainer.optimizers) == 1 else None)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A batch is known by its tensors, whatever parts of the module it goes through."""
        if self.adapter is not None:
            self.adapter.begin(*tensors_in(batch))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Ends the batch."""
        self._end_batch()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Gives the module back as it was."""
        self.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Gives the module back as it was."""
        self.close()
