"""Lightning with texts of any length within one memory budget: a callback.

pip install pytorch-lightning
python examples/adapt_lightning.py
"""

import pytorch_lightning
import torch
from torch import nn

from lowtide.integrations.lightning import AdaptCallback


class Classifier(pytorch_lightning.LightningModule):
    """A small transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 64)
        layers = (nn.TransformerEncoderLayer(64, 4, 256, batch_first=True) for _ in range(6))
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(64, 2)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:  # noqa: D102
        tokens, labels = batch
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return nn.functional.cross_entropy(self.head(x.mean(1)), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:  # noqa: D102
        return torch.optim.AdamW(self.parameters())


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Texts of random length."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(20, 129, (40,), generator=generator).tolist()
    return [(torch.randint(1000, (8, length), generator=generator), torch.randint(2, (8,))) for length in lengths]


def main() -> AdaptCallback:
    """Trains for an epoch."""
    torch.manual_seed(0)
    callback = AdaptCallback("24MiB")
    trainer = pytorch_lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), torch.utils.data.DataLoader(batches(), batch_size=None))
    assert callback.adapter is not None
    print(callback.adapter.history.records[-1].line())
    print(callback.adapter.stats())
    return callback


if __name__ == "__main__":
    main()
