"""The five models that are trained within budgets, with the blocks that one would checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from bench import zoo
from bench.lib import models
from bench.zoo import configured, segmentation


@dataclass(frozen=True)
class Subject:
    """A model, its batches, and where its blocks are."""

    build: Callable[[], nn.Module]
    batch: Callable[[], dict[str, torch.Tensor]]
    blocks: Callable[[Any], Iterable[nn.Module]]


def _images(batch: int, extent: int, classes: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(batch, 3, extent, extent), "labels": torch.randint(classes, (batch,))}


def _masks(batch: int, extent: int) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(batch, 3, extent, extent), "y": torch.randint(2, (batch, extent, extent))}


def _vit_small() -> nn.Module:
    return configured.vit_base(
        100, "sdpa", hidden_size=256, num_hidden_layers=6, num_attention_heads=4, intermediate_size=1024, image_size=96,
        patch_size=8,
    )  # fmt: skip


SUBJECTS = {
    "BERT 4 x 256, 8 x 128": Subject(models.bert, models.tokens, lambda m: m.bert.encoder.layer),
    "GPT2 4 x 256, 8 x 256": Subject(models.gpt2, lambda: models.tokens(8, 256), lambda m: m.transformer.h),
    "ResNet-50, 4 x 96 px": Subject(
        lambda: zoo.build("resnet50", "paper", use=zoo.Use("", (4,), 96)).model,
        lambda: _images(4, 96, 1000),
        lambda m: [layer for stage in m.resnet.encoder.stages for layer in stage.layers],
    ),
    "ViT 6 x 256, 8 x 96 px": Subject(_vit_small, lambda: _images(8, 96, 100), lambda m: m.vit.layers),
    "U-Net 16, 4 x 96 px": Subject(
        lambda: segmentation.UNet(2, width=16), lambda: _masks(4, 96), lambda m: [*m.down, *m.up]
    ),
}


def checkpoint_blocks(subject: Subject, model: nn.Module) -> nn.Module:
    """The same model; each block is run again in the backward pass, as PyTorch's own way of saving memory."""
    for block in subject.blocks(model):
        block.forward = _again_in_backward(block.forward)
    return model


def _again_in_backward(forward: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: checkpoint(forward, *args, use_reentrant=False, **kwargs)
