"""The seven tasks of `table.py`: reduced models, and batches with generated extents in the ranges of Mimose's."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Task:
    """A model to train and the batches that it is trained on."""

    name: str
    images: bool
    make: Callable[[], nn.Module]
    batch: Callable[[tuple[int, ...]], dict[str, torch.Tensor]]
    extents: Callable[[random.Random], tuple[int, ...]]
    longest: tuple[int, ...]


def length_between(low: int, median: int, high: int) -> Callable[[random.Random], int]:
    """Lengths of padded batches: few are long. Log-normal, cut off at both ends."""

    def draw(chance: random.Random) -> int:
        while True:
            length = round(median * chance.lognormvariate(0.0, 0.45))
            if low <= length <= high:
                return length

    return draw


def tokens(*shape: int) -> torch.Tensor:
    """Random tokens."""
    return torch.randint(1000, shape)


def _encoder(family: str, task: str, layers: int, width: int) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        config = getattr(transformers, f"{family}Config")(
            vocab_size=1000,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            intermediate_size=4 * width,
            max_position_embeddings=640,
        )
        return getattr(transformers, family + task)(config)

    return make


def _t5(layers: int, width: int) -> nn.Module:
    import transformers

    config = transformers.T5Config(
        vocab_size=1000,
        d_model=width,
        d_kv=width // 4,
        d_ff=4 * width,
        num_layers=layers,
        num_heads=4,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config)


def _gpt2(layers: int, width: int) -> nn.Module:
    import transformers

    config = transformers.GPT2Config(vocab_size=1000, n_positions=640, n_embd=width, n_layer=layers, n_head=4)
    return transformers.GPT2LMHeadModel(config)


class Bottleneck(nn.Module):
    """The block of ResNet-50 and ResNet-101."""

    def __init__(self, channels: int, inner: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(inplace=True),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(inplace=True),
            nn.Conv2d(inner, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class Detector(nn.Module):
    """A ResNet with a feature pyramid, and a loss over every place of it."""

    def __init__(self, depths: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1)
        channels = width
        stages = []
        outs = []
        for i, depth in enumerate(depths):
            inner = width * 2**i
            blocks = []
            for j in range(depth):
                blocks.append(Bottleneck(channels, inner, 4 * inner, 2 if i and not j else 1))
                channels = 4 * inner
            stages.append(nn.Sequential(*blocks))
            outs.append(channels)
        self.stages = nn.ModuleList(stages)
        self.lateral = nn.ModuleList(nn.Conv2d(out, 32, 1) for out in outs)
        self.head = nn.Conv2d(32, 8, 3, padding=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.stem(images))
        features = []
        for stage, lateral in zip(self.stages, self.lateral, strict=True):
            x = stage(x)
            features.append(lateral(x))
        total = torch.zeros(())
        above = None
        for feature in reversed(features):
            if above is not None:
                feature = feature + nn.functional.interpolate(above, feature.shape[2:])
            above = feature
            total = total + self.head(feature).square().mean()
        return total


def _texts(samples: int) -> Callable[[tuple[int, ...]], dict[str, torch.Tensor]]:
    return lambda extents: {"input_ids": tokens(samples, extents[0])}


def _size(chance: random.Random) -> tuple[int, ...]:
    """Shorter side 96 to 160, longer side up to 266: a fifth of 480 to 800 and 1333, as Mimose resizes."""
    short = chance.randrange(96, 161)
    long = min(266, round(short * chance.uniform(1.0, 1.8)))
    return (short, long) if chance.random() < 0.5 else (long, short)


def tasks(scale: float = 1.0) -> dict[str, Task]:
    """All of them. `scale` makes lengths and image sizes smaller, for trials."""

    def least(length: int) -> int:
        return max(8, round(length * scale))

    def lengths(low: int, median: int, high: int) -> tuple[Callable[[random.Random], tuple[int, ...]], tuple[int, ...]]:
        draw = length_between(least(low), least(median), least(high))
        return lambda chance: (draw(chance),), (least(high),)

    def with_labels(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {**batch, "labels": torch.randint(2, (len(batch["input_ids"]),))}

    def qa(extents: tuple[int, ...]) -> dict[str, torch.Tensor]:
        batch = _texts(4)(extents)
        places = torch.randint(extents[0], (2, 4))
        return {**batch, "start_positions": places[0], "end_positions": places[1]}

    def lm(extents: tuple[int, ...]) -> dict[str, torch.Tensor]:
        batch = _texts(4)(extents)
        return {**batch, "labels": batch["input_ids"]}

    swag, swag_longest = lengths(35, 70, 141)
    squad, squad_longest = lengths(153, 230, 512)
    qqp, qqp_longest = lengths(30, 70, 332)
    un_pc, _ = lengths(17, 120, 460)
    found = [
        Task(
            "mc_roberta",
            False,
            _encoder("Roberta", "ForMultipleChoice", 6, 96),
            lambda e: {"input_ids": tokens(4, 4, e[0]), "labels": torch.randint(4, (4,))},
            swag,
            swag_longest,
        ),
        Task(
            "tr_t5",
            False,
            lambda: _t5(4, 96),
            lambda e: {"input_ids": tokens(4, e[0]), "labels": tokens(4, e[1])},
            lambda chance: (un_pc(chance)[0], un_pc(chance)[0]),
            (least(460), least(460)),
        ),
        Task("qa_bert", False, _encoder("Bert", "ForQuestionAnswering", 6, 96), qa, squad, squad_longest),
        Task(
            "tc_bert",
            False,
            _encoder("Bert", "ForSequenceClassification", 6, 96),
            lambda e: with_labels(_texts(8)(e)),
            qqp,
            qqp_longest,
        ),
        Task("lm_gpt2", False, lambda: _gpt2(6, 96), lm, lambda chance: (un_pc(chance)[0],), (least(460),)),
    ]
    for name, depths in (("od_r50", (3, 4, 6, 3)), ("od_r101", (3, 4, 23, 3))):

        def image_size(chance: random.Random) -> tuple[int, ...]:
            return tuple(least(side) for side in _size(chance))

        found.append(
            Task(
                name,
                True,
                lambda depths=depths: Detector(depths, 8),  # type: ignore[misc]
                lambda e: {"images": torch.rand(2, 3, *e)},
                image_size,
                (least(160), least(266)),
            )
        )
    return {task.name: task for task in found}


def loss_of(result: Any) -> torch.Tensor:
    """The loss, which models of transformers have among their results."""
    return result if isinstance(result, torch.Tensor) else result.loss
