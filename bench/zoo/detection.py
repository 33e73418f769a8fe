"""A residual network under a feature pyramid: objects of every size are proposed on the level that suits them."""

from __future__ import annotations

import torch
import transformers
from torch import nn

ANCHORS = 3  # shapes of boxes tried at every position


class PyramidProposals(nn.Module):
    """ResNet, feature pyramid (Lin et al. 2017) and region proposal head (Ren et al. 2015), ResNet-101 unless changed.

    Gives, for every anchor of every level, the score of holding an object, and the four changes that make it its box.
    """

    def __init__(self, width: int = 256, **changes: object) -> None:
        super().__init__()
        config = transformers.ResNetConfig(
            out_features=["stage1", "stage2", "stage3", "stage4"], **{"depths": [3, 4, 23, 3], **changes}
        )
        self.backbone = transformers.ResNetBackbone(config)
        self.lateral = nn.ModuleList(nn.Conv2d(channels, width, 1) for channels in config.hidden_sizes)
        self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in config.hidden_sizes)
        self.shared = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(inplace=True))
        self.score = nn.Conv2d(width, ANCHORS, 1)
        self.box = nn.Conv2d(width, 4 * ANCHORS, 1)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        levels = [lateral(x) for lateral, x in zip(self.lateral, self.backbone(images).feature_maps, strict=True)]
        for fine in range(len(levels) - 2, -1, -1):
            above = nn.functional.interpolate(levels[fine + 1], size=levels[fine].shape[-2:])
            levels[fine] = levels[fine] + above
        levels = [smooth(x) for smooth, x in zip(self.smooth, levels, strict=True)]
        levels.append(nn.functional.max_pool2d(levels[-1], 1, stride=2))
        shared = [self.shared(x) for x in levels]
        scores = [self.score(x).permute(0, 2, 3, 1).flatten(1) for x in shared]
        boxes = [self.box(x).permute(0, 2, 3, 1).reshape(len(images), -1, 4) for x in shared]
        return torch.cat(scores, dim=1), torch.cat(boxes, dim=1)


def anchors_of(height: int, width: int) -> int:
    """How many anchors an image has: three at each position of strides 4 to 64."""
    return ANCHORS * sum(-(-height // stride) * -(-width // stride) for stride in (4, 8, 16, 32, 64))
