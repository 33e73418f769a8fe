"""Networks of modules with parallel branches."""

from __future__ import annotations

import torch
from torch import nn


class Branches(nn.ModuleList):
    """Runs all on the same input and concatenates the channels."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self], dim=1)


class GoogLeNet(nn.Module):
    """Szegedy et al. 2015, with local response normalisation and, while training, two auxiliary classifiers.

    All channel counts are those of the paper divided by `narrow`. `side` is the image's: it sizes the classifiers.
    """

    def __init__(self, classes: int, side: int = 224, narrow: int = 1) -> None:
        super().__init__()

        def conv(channels: int, out: int, kernel: int, stride: int = 1) -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(channels, out, kernel, stride, kernel // 2), nn.ReLU(inplace=True))

        def module(channels: int, one: int, *rest: int) -> tuple[Branches, int]:
            channels, one, three_in, three, five_in, five, pooled = (n // narrow for n in (channels, one, *rest))
            branches = Branches([
                conv(channels, one, 1),
                nn.Sequential(conv(channels, three_in, 1), conv(three_in, three, 3)),
                nn.Sequential(conv(channels, five_in, 1), conv(five_in, five, 5)),
                nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), conv(channels, pooled, 1)),
            ])  # fmt: skip
            return branches, narrow * (one + three + five + pooled)

        def modules(channels: int, *rows: tuple[int, ...]) -> nn.Sequential:
            made = []
            for row in rows:
                branches, channels = module(channels, *row)
                made.append(branches)
            return nn.Sequential(*made)

        def classifier(channels: int) -> nn.Sequential:
            pooled = (side // 16 - 5) // 3 + 1
            return nn.Sequential(
                nn.AvgPool2d(5, stride=3), conv(channels // narrow, 128 // narrow, 1), nn.Flatten(),
                nn.Linear(128 // narrow * pooled**2, 1024 // narrow), nn.ReLU(inplace=True), nn.Dropout(0.7),
                nn.Linear(1024 // narrow, classes),
            )  # fmt: skip

        def shrink() -> nn.MaxPool2d:
            return nn.MaxPool2d(3, stride=2, ceil_mode=True)

        self.to_4a = nn.Sequential(
            conv(3, 64 // narrow, 7, 2), shrink(), nn.LocalResponseNorm(5),
            conv(64 // narrow, 64 // narrow, 1), conv(64 // narrow, 192 // narrow, 3),
            nn.LocalResponseNorm(5), shrink(),
            modules(192, (64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)), shrink(),
            modules(480, (192, 96, 208, 16, 48, 64)),
        )  # fmt: skip
        self.to_4d = modules(512, (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64), (112, 144, 288, 32, 64, 64))
        self.to_end = nn.Sequential(
            modules(528, (256, 160, 320, 32, 128, 128)), shrink(),
            modules(832, (256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.4), nn.Linear(1024 // narrow, classes),
        )  # fmt: skip
        self.early, self.late = classifier(512), classifier(528)

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        middle = self.to_4a(x)
        deep = self.to_4d(middle)
        logits = self.to_end(deep)
        return (logits, self.early(middle), self.late(deep)) if self.training else logits


class InceptionResNetV2(nn.Sequential):
    """Szegedy et al. 2017. Channel counts are divided by `narrow`; `repeats` are those of the three kinds of blocks."""

    def __init__(self, classes: int, narrow: int = 1, repeats: tuple[int, int, int] = (10, 20, 9)) -> None:
        def conv(
            channels: int, out: int, kernel: int | tuple[int, int], stride: int = 1, pad: bool = True
        ) -> nn.Module:
            rows, columns = (kernel, kernel) if isinstance(kernel, int) else kernel
            padding = (rows // 2, columns // 2) if pad else 0
            return nn.Sequential(
                nn.Conv2d(-(-channels // narrow), out // narrow, kernel, stride, padding, bias=False),
                nn.BatchNorm2d(out // narrow, eps=1e-3, momentum=0.003), nn.ReLU(inplace=True),
            )  # fmt: skip

        def shrink(channels: int, out: int) -> nn.Module:
            return conv(channels, out, 3, 2, pad=False)

        def block(channels: int, scale: float, branches: list[nn.Module], out: int, *, last: bool = False) -> nn.Module:
            merge = nn.Conv2d(out // narrow, channels // narrow, 1)
            return _ScaledResidual(nn.Sequential(Branches(branches), merge), scale, last)

        def block35() -> nn.Module:
            three = nn.Sequential(conv(320, 32, 1), conv(32, 32, 3))
            twice = nn.Sequential(conv(320, 32, 1), conv(32, 48, 3), conv(48, 64, 3))
            return block(320, 0.17, [conv(320, 32, 1), three, twice], 128)

        def block17() -> nn.Module:
            seven = nn.Sequential(conv(1088, 128, 1), conv(128, 160, (1, 7)), conv(160, 192, (7, 1)))
            return block(1088, 0.10, [conv(1088, 192, 1), seven], 384)

        def block8(scale: float = 0.20, *, last: bool = False) -> nn.Module:
            three = nn.Sequential(conv(2080, 192, 1), conv(192, 224, (1, 3)), conv(224, 256, (3, 1)))
            return block(2080, scale, [conv(2080, 192, 1), three], 448, last=last)

        super().__init__(
            conv(3 * narrow, 32, 3, 2, pad=False), conv(32, 32, 3, pad=False), conv(32, 64, 3), nn.MaxPool2d(3, 2),
            conv(64, 80, 1), conv(80, 192, 3, pad=False), nn.MaxPool2d(3, 2),
            Branches([
                conv(192, 96, 1),
                nn.Sequential(conv(192, 48, 1), conv(48, 64, 5)),
                nn.Sequential(conv(192, 64, 1), conv(64, 96, 3), conv(96, 96, 3)),
                nn.Sequential(nn.AvgPool2d(3, 1, padding=1, count_include_pad=False), conv(192, 64, 1)),
            ]),
            *[block35() for _ in range(repeats[0])],
            Branches([
                shrink(320, 384),
                nn.Sequential(conv(320, 256, 1), conv(256, 256, 3), shrink(256, 384)),
                nn.MaxPool2d(3, 2),
            ]),
            *[block17() for _ in range(repeats[1])],
            Branches([
                nn.Sequential(conv(1088, 256, 1), shrink(256, 384)),
                nn.Sequential(conv(1088, 256, 1), shrink(256, 288)),
                nn.Sequential(conv(1088, 256, 1), conv(256, 288, 3), shrink(288, 320)),
                nn.MaxPool2d(3, 2),
            ]),
            *[block8() for _ in range(repeats[2])], block8(1.0, last=True),
            conv(2080, 1536, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2),
            nn.Linear(1536 // narrow, classes),
        )  # fmt: skip


class _ScaledResidual(nn.Module):
    def __init__(self, residual: nn.Module, scale: float, last: bool) -> None:
        super().__init__()
        self.residual, self.scale, self.last = residual, scale, last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.scale * self.residual(x)
        return x if self.last else nn.functional.relu(x, inplace=True)
