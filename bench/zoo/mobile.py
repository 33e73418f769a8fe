"""Networks for phones, of depthwise convolutions: one written here, two configured from transformers."""

from __future__ import annotations

import torch
import transformers
from torch import nn


class MnasNet(nn.Sequential):
    """Tan et al. 2019, MnasNet-B1. `width` scales all but the last layer's channels; at most `repeats` equal blocks."""

    STAGES = (  # channels, kernel, stride, expansion, blocks
        (24, 3, 2, 3, 3), (40, 5, 2, 3, 3), (80, 5, 2, 6, 3), (96, 3, 1, 6, 2), (192, 5, 2, 6, 4), (320, 3, 1, 6, 1),
    )  # fmt: skip

    def __init__(self, classes: int, width: float = 1.0, last: int = 1280, repeats: int = 4) -> None:
        def scaled(channels: int) -> int:
            return round(channels * width)

        channels = scaled(16)
        blocks: list[nn.Module] = []
        for out, kernel, stride, expansion, count in self.STAGES:
            for index in range(min(count, repeats)):
                blocks.append(_InvertedResidual(channels, scaled(out), kernel, 1 if index else stride, expansion))
                channels = scaled(out)
        super().__init__(
            _conv(3, scaled(32), 3, stride=2), nn.ReLU(inplace=True),
            _conv(scaled(32), scaled(32), 3, groups=scaled(32)), nn.ReLU(inplace=True),
            _conv(scaled(32), scaled(16), 1),
            *blocks,
            _conv(channels, last, 1), nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(last, classes),
        )  # fmt: skip


def _conv(channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(out)
    )


class _InvertedResidual(nn.Module):
    def __init__(self, channels: int, out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = channels * expansion
        self.has_shortcut = stride == 1 and channels == out
        self.layers = nn.Sequential(
            _conv(channels, wide, 1), nn.ReLU(inplace=True),
            _conv(wide, wide, kernel, stride, groups=wide), nn.ReLU(inplace=True),
            _conv(wide, out, 1),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.has_shortcut else self.layers(x)


def mobilenet_v2(classes: int, **changes: object) -> nn.Module:
    return transformers.MobileNetV2ForImageClassification(
        transformers.MobileNetV2Config(num_labels=classes, classifier_dropout_prob=0.2, **changes)
    )


def efficientnet_b0(classes: int, **changes: object) -> nn.Module:
    config = {"width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280, "dropout_rate": 0.2, **changes}
    return transformers.EfficientNetForImageClassification(
        transformers.EfficientNetConfig(num_labels=classes, image_size=224, **config)
    )
