"""Plain and residual convolutional networks for classes of images and videos."""

from __future__ import annotations

import torch
from torch import nn


class AlexNet(nn.Sequential):
    """Krizhevsky 2014: one tower, no local response normalisation. `width` is that of the first layer."""

    def __init__(self, classes: int, width: int = 64) -> None:
        hidden = 64 * width
        super().__init__(
            nn.Conv2d(3, width, 11, stride=4, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2),
            nn.Conv2d(width, 3 * width, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2),
            nn.Conv2d(3 * width, 6 * width, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(6 * width, 4 * width, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(4 * width, 4 * width, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2),
            nn.AdaptiveAvgPool2d(6), nn.Flatten(),
            nn.Dropout(), nn.Linear(36 * 4 * width, hidden), nn.ReLU(inplace=True),
            nn.Dropout(), nn.Linear(hidden, hidden), nn.ReLU(inplace=True),
            nn.Linear(hidden, classes),
        )  # fmt: skip


class VGG16(nn.Sequential):
    """Simonyan and Zisserman 2015, configuration D."""

    def __init__(self, classes: int, width: int = 64) -> None:
        layers: list[nn.Module] = []
        channels = 3
        for scale, convolutions in ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3)):
            for _ in range(convolutions):
                layers += nn.Conv2d(channels, scale * width, 3, padding=1), nn.ReLU(inplace=True)
                channels = scale * width
            layers.append(nn.MaxPool2d(2))
        hidden = 64 * width
        super().__init__(
            *layers, nn.AdaptiveAvgPool2d(7), nn.Flatten(),
            nn.Linear(49 * channels, hidden), nn.ReLU(inplace=True), nn.Dropout(),
            nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Dropout(),
            nn.Linear(hidden, classes),
        )  # fmt: skip


class ResNet3D18(nn.Sequential):
    """Tran et al. 2018: an 18-layer residual network whose convolutions also run over time (R3D)."""

    def __init__(self, classes: int, width: int = 64) -> None:
        super().__init__(
            nn.Conv3d(3, width, (3, 7, 7), stride=(1, 2, 2), padding=(1, 3, 3), bias=False),
            nn.BatchNorm3d(width), nn.ReLU(inplace=True),
            _Block3D(width, width, 1), _Block3D(width, width, 1),
            _Block3D(width, 2 * width, 2), _Block3D(2 * width, 2 * width, 1),
            _Block3D(2 * width, 4 * width, 2), _Block3D(4 * width, 4 * width, 1),
            _Block3D(4 * width, 8 * width, 2), _Block3D(8 * width, 8 * width, 1),
            nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8 * width, classes),
        )  # fmt: skip


class _Block3D(nn.Module):
    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv3d(channels, out, 3, stride, padding=1, bias=False), nn.BatchNorm3d(out), nn.ReLU(inplace=True),
            nn.Conv3d(out, out, 3, padding=1, bias=False), nn.BatchNorm3d(out),
        )  # fmt: skip
        self.shortcut = (
            nn.Identity()
            if stride == 1
            else nn.Sequential(nn.Conv3d(channels, out, 1, stride, bias=False), nn.BatchNorm3d(out))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.residual(x) + self.shortcut(x), inplace=True)
