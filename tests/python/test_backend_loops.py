"""Loops of other libraries, whose model one line compiles: the weights of eager, in less memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import lowtide
from backend_models import Deep, bits, take_equal_times

ROWS, BATCH, STEPS = 2048, 512, 3


class WithLoss(nn.Module):
    """As Trainer calls a model."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Deep()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": (self.body(x) - y).square().mean()}


def rows() -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [{name: torch.randn(16, generator=generator) for name in ("x", "y")} for _ in range(ROWS)]


def by_trainer(model: nn.Module, folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    arguments = transformers.TrainingArguments(
        str(folder), max_steps=STEPS, per_device_train_batch_size=BATCH, report_to=[], save_strategy="no", use_cpu=True,
        disable_tqdm=True, label_names=["y"],
    )  # fmt: skip
    transformers.Trainer(model, arguments, train_dataset=rows()).train()


def by_accelerate(model: nn.Module, _: Path) -> None:
    accelerator = pytest.importorskip("accelerate").Accelerator(cpu=True)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, batches = accelerator.prepare(model, optimizer, DataLoader(rows(), BATCH, shuffle=True))
    for _, batch in zip(range(STEPS), batches, strict=False):
        optimizer.zero_grad()
        accelerator.backward(model(**batch)["loss"])
        optimizer.step()


def by_lightning(model: nn.Module, _: Path) -> None:
    lightning = pytest.importorskip("pytorch_lightning")

    class Net(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            return self.model(**batch)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    trainer = lightning.Trainer(
        max_steps=STEPS, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu"
    )
    trainer.fit(Net(), DataLoader(rows(), BATCH, shuffle=True))


def trained(loop: Callable[[nn.Module, Path], None], folder: Path, **compiled: Any) -> tuple[Any, int]:
    """The bits of the weights that a loop leaves, and the most bytes that it had."""
    torch.manual_seed(0)
    model = WithLoss()
    if compiled:
        model.compile(**compiled)
    torch.manual_seed(1)
    with lowtide.measure() as used:
        loop(model, folder)
    found, weight = bits(list(model.state_dict().values())), weakref.ref(next(model.parameters()))
    del model
    torch._dynamo.reset()
    gc.collect()
    assert weight() is None, "later tests look at all tensors there are"
    return found, used.peak_bytes


@pytest.mark.filterwarnings("ignore")  # of these libraries
@pytest.mark.parametrize("loop", [by_trainer, by_accelerate, by_lightning])
def test_one_line_gives_the_weights_of_eager_in_less_memory(loop, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    take_equal_times(monkeypatch)
    expected, eager_peak = trained(loop, tmp_path)
    options = {"memory_budget": 0.5, "on_unsupported": "raise"}
    found, peak = trained(loop, tmp_path, backend="lowtide", options=options)
    assert found == expected
    assert peak < 0.8 * eager_peak, f"{peak} of {eager_peak}"
