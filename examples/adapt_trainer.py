"""Hugging Face's Trainer with texts of any length within one memory budget: a callback.

pip install transformers accelerate
python examples/adapt_trainer.py
"""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from lowtide.integrations.trainer import AdaptCallback


class Texts(torch.utils.data.Dataset):
    """Generated texts of 20 to 128 tokens."""

    def __len__(self) -> int:
        return 160

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        length = 20 + index * 37 % 109
        return {"input_ids": torch.full((length,), index % 500), "labels": torch.tensor(index % 2)}


def padded(samples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """One batch, as long as its longest text."""
    tokens = torch.nn.utils.rnn.pad_sequence([sample["input_ids"] for sample in samples], batch_first=True)
    return {"input_ids": tokens, "labels": torch.stack([sample["labels"] for sample in samples])}


def main() -> AdaptCallback:
    """Trains for an epoch."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=500, hidden_size=64, num_hidden_layers=6, num_attention_heads=4, intermediate_size=256, num_labels=2
    )
    callback = AdaptCallback("20MiB")
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=4, num_train_epochs=1, report_to=[], disable_tqdm=True, use_cpu=True
        )
        model = BertForSequenceClassification(config)
        Trainer(model, arguments, data_collator=padded, train_dataset=Texts(), callbacks=[callback]).train()
    assert callback.adapter is not None
    print(callback.adapter.history.records[-1].line())
    print(callback.adapter.stats())
    return callback


if __name__ == "__main__":
    main()
