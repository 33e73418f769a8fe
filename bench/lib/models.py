"""The models that tests and benchmarks train, their batches, and the plainest step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from bench.zoo import configured
from bench.zoo.tasks import train_step

VOCABULARY = 1000


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(4),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(512, 10),
    )  # fmt: skip


def bert(width: int = 256, layers: int = 4) -> nn.Module:
    shape = {"num_hidden_layers": layers, "num_attention_heads": 4, "intermediate_size": 4 * width}
    return configured.bert_base(VOCABULARY, "sdpa", hidden_size=width, **shape)


def gpt2(width: int = 256, layers: int = 4) -> nn.Module:
    return configured.gpt2(VOCABULARY, "sdpa", n_embd=width, n_layer=layers, n_head=4)


def images(batch: int = 8) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(batch, 3, 32, 32), "y": torch.randint(10, (batch,))}


def vectors(batch: int = 8) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(batch, 64), "y": torch.randint(10, (batch,))}


def tokens(batch: int = 8, length: int = 128) -> dict[str, torch.Tensor]:
    ids = torch.randint(VOCABULARY, (batch, length))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.randint(VOCABULARY, ids.shape)}


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[..., dict[str, torch.Tensor]]]] = {
    "mlp": (mlp, vectors),
    "cnn": (cnn, images),
    "bert": (bert, tokens),
    "gpt2": (gpt2, tokens),
}

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adam": lambda p: torch.optim.Adam(p),
    "adamw": lambda p: torch.optim.AdamW(p),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "adam_fused": lambda p: torch.optim.Adam(p, fused=True),
}


def loss_of(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    if "x" in batch:
        return nn.functional.cross_entropy(model(batch["x"]), batch["y"])
    return model(**batch).loss


plain_step = train_step(loss_of)
