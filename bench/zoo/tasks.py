"""What models learn: random batches of the right shapes, the loss on one, and the step that users write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .detection import anchors_of

Batch = dict[str, torch.Tensor]
StepMaker = Callable[[nn.Module, torch.optim.Optimizer], Callable[..., Any]]

IGNORED = -100  # a label that does not count


@dataclass(frozen=True)
class Task:
    """`make_batch(random, batch, extent, classes)`: `extent` is an image's side or a sequence's length."""

    make_batch: Callable[[torch.Generator, int, int, int], Batch]
    loss: Callable[[nn.Module, Batch], torch.Tensor]


def train_step(loss: Callable[[nn.Module, Any], torch.Tensor]) -> StepMaker:
    """Makes the plainest step from a model and its optimizer."""

    def make(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
        def step(batch: Batch) -> torch.Tensor:
            optimizer.zero_grad()
            found = loss(model, batch)
            found.backward()
            optimizer.step()
            return found.detach()

        return step

    return make


def _images(random: torch.Generator, batch: int, side: int, classes: int) -> Batch:
    return {
        "x": torch.randn(batch, 3, side, side, generator=random),
        "y": torch.randint(classes, (batch,), generator=random),
    }


def _videos(random: torch.Generator, batch: int, side: int, classes: int) -> Batch:
    """A quarter of a side's worth of frames, but at most 16."""
    return {
        "x": torch.randn(batch, 3, min(16, side // 4), side, side, generator=random),
        "y": torch.randint(classes, (batch,), generator=random),
    }


def _scenes(random: torch.Generator, batch: int, side: int, classes: int) -> Batch:
    """Images in landscape, as COCO's are after resizing and padding; for each anchor: is it an object, and where."""
    long_side = -(-side * 5 // (3 * 32)) * 32
    anchors = anchors_of(side, long_side)
    return {
        "x": torch.randn(batch, 3, side, long_side, generator=random),
        "object": (torch.rand(batch, anchors, generator=random) < 0.1).float(),
        "box": torch.randn(batch, anchors, 4, generator=random),
    }


def _masks(random: torch.Generator, batch: int, side: int, classes: int) -> Batch:
    return {
        "x": torch.randn(batch, 3, side, side, generator=random),
        "y": torch.randint(classes, (batch, side, side), generator=random),
    }


def _tokens(random: torch.Generator, batch: int, length: int, classes: int) -> torch.Tensor:
    return torch.randint(2, classes, (batch, length), generator=random)


def _padding(random: torch.Generator, tokens: torch.Tensor) -> torch.Tensor:
    """True behind the end of each sequence; all but the first end early, in their last quarter."""
    batch, length = tokens.shape
    ends = length - torch.randint(length // 4 + 1, (batch, 1), generator=random)
    ends[0] = length
    return torch.arange(length) >= ends


def _masked_text(random: torch.Generator, batch: int, length: int, classes: int) -> Batch:
    tokens = _tokens(random, batch, length, classes)
    guessed = torch.rand(tokens.shape, generator=random) < 0.15
    return {
        "input_ids": tokens,
        "attention_mask": (~_padding(random, tokens)).long(),
        "labels": torch.where(guessed, tokens, IGNORED),
    }


def _text(random: torch.Generator, batch: int, length: int, classes: int) -> Batch:
    tokens = _tokens(random, batch, length, classes)
    return {"input_ids": tokens, "labels": tokens.clone()}


def _text_pairs(random: torch.Generator, batch: int, length: int, classes: int) -> Batch:
    source, target = _tokens(random, batch, length, classes), _tokens(random, batch, length, classes)
    labels = torch.where(_padding(random, target), IGNORED, target)
    return {"input_ids": source, "attention_mask": (~_padding(random, source)).long(), "labels": labels}


def _translations(random: torch.Generator, batch: int, length: int, classes: int) -> Batch:
    """The target begins with one token and ends, as labels, with another."""
    source, target = _tokens(random, batch, length, classes), _tokens(random, batch, length + 1, classes)
    labels = torch.where(_padding(random, target), IGNORED, target)
    return {
        "source": source,
        "padding": _padding(random, source),
        "target": target[:, :-1].contiguous(),
        "labels": labels[:, 1:].contiguous(),
    }


def _class_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return F.cross_entropy(model(batch["x"]), batch["y"])


def _configured_class_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return F.cross_entropy(model(pixel_values=batch["x"]).logits, batch["y"])


def _class_loss_with_helpers(model: nn.Module, batch: Batch) -> torch.Tensor:
    logits, *helpers = model(batch["x"])
    return F.cross_entropy(logits, batch["y"]) + 0.3 * sum(F.cross_entropy(h, batch["y"]) for h in helpers)


def _mask_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Binary cross-entropy and the Dice coefficient's complement, over all masks that the model gives."""
    truth = batch["y"].unsqueeze(1).float()
    losses = []
    for logits in model(batch["x"]):
        mask = logits.sigmoid()
        dice = 2 * (mask * truth).sum() / (mask.sum() + truth.sum())
        losses.append(0.5 * F.binary_cross_entropy_with_logits(logits, truth) + 1 - dice)
    return torch.stack(losses).mean()


def _proposal_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    scores, boxes = model(batch["x"])
    distance = F.smooth_l1_loss(boxes, batch["box"], beta=1 / 9, reduction="none").sum(-1)
    positive = batch["object"]
    return F.binary_cross_entropy_with_logits(scores, positive) + (distance * positive).sum() / positive.sum()


def _own_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return model(**batch).loss


def _token_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def _next_token_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return _token_loss(model(batch["input_ids"])[:, :-1], batch["labels"][:, 1:])


def _translation_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return _token_loss(model(batch["source"], batch["target"], batch["padding"]), batch["labels"])


def _recurrent_translation_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return _token_loss(model(batch["source"], batch["target"]), batch["labels"])


image_classes = Task(_images, _class_loss)
image_classes_with_helpers = Task(_images, _class_loss_with_helpers)
configured_image_classes = Task(_images, _configured_class_loss)
video_classes = Task(_videos, _class_loss)
pixel_classes = Task(_masks, _class_loss)
binary_masks = Task(_masks, _mask_loss)
proposals = Task(_scenes, _proposal_loss)
masked_language = Task(_masked_text, _own_loss)
causal_language = Task(_text, _own_loss)
next_token = Task(_text, _next_token_loss)
text_to_text = Task(_text_pairs, _own_loss)
translation = Task(_translations, _translation_loss)
recurrent_translation = Task(_translations, _recurrent_translation_loss)
