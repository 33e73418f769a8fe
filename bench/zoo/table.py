"""The models of the papers: how each is made at full and at small size, and how each paper trains it.

A model learns what it was made for, also where a paper tunes it for something else (as Mimose does).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from . import btlm, configured, convnets, detection, inception, mobile, segmentation, tasks, translation


@dataclass(frozen=True)
class Use:
    """How a paper trains a model. `extent` is the image's side or the sequence's length."""

    paper: str
    batches: tuple[int, ...]
    extent: int
    dtype: str = "float32"
    assumed: bool = False  # the paper does not say the extent: this one is usual


@dataclass(frozen=True)
class Size:
    """One size of a model. `classes` counts what it tells apart, which may be tokens."""

    classes: int | None  # none: the model has no say in it
    changes: Mapping[str, Any] = field(default_factory=dict)  # from the size that the model's authors describe


@dataclass(frozen=True)
class Small(Size):
    """Trains a step in well under a second: narrow and short, with every kind of layer that the model has."""

    extent: int = 32


@dataclass(frozen=True)
class Row:
    """A model. `published` are its parameters at `full` size, in millions, as its authors or their code give them."""

    name: str
    make: Callable[..., nn.Module]
    task: tasks.Task
    published: float
    full: Size
    small: Small
    uses: tuple[Use, ...]
    attentions: tuple[str, ...] = ()  # which it knows, of "eager" and "sdpa"


def _convnet(*papers: str) -> tuple[Use, ...]:
    """MODeL and ROAM train at batch 1 and 32 and do not say on which images."""
    return tuple(Use(paper, (1, 32), 224, assumed=True) for paper in papers)


BOTH = ("eager", "sdpa")
IMAGENET = Size(1000)
CHAINER = (32, 64, 128)  # batches of Profile-guided's convolutional networks

_SMALL_TEXT = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 192}
_SMALL_RESNET = {"embedding_size": 8, "hidden_sizes": [16, 32, 64, 128]}

TABLE: tuple[Row, ...] = (
    Row(
        "alexnet", convnets.AlexNet, tasks.image_classes, 61.1, IMAGENET, Small(10, {"width": 4}, 64),
        (*_convnet("ROAM", "MODeL"), Use("Profile-guided", CHAINER, 224, assumed=True)),
    ),
    Row(
        "vgg16", convnets.VGG16, tasks.image_classes, 138.4, IMAGENET, Small(10, {"width": 4}, 32),
        _convnet("ROAM", "MODeL"),
    ),
    Row(
        "googlenet", inception.GoogLeNet, tasks.image_classes_with_helpers, 13.38, IMAGENET,
        Small(10, {"narrow": 8, "side": 80}, 80),
        (Use("Profile-guided", CHAINER, 224, assumed=True),),
    ),
    Row(
        "resnet50", configured.resnet50, tasks.configured_image_classes, 25.6, IMAGENET,
        Small(10, {**_SMALL_RESNET, "depths": [2, 2, 2, 2]}, 32),
        (
            Use("MAGIS", (64,), 224), *_convnet("MODeL"), Use("Profile-guided", CHAINER, 224, assumed=True),
            Use("Mimose", (8,), 800, assumed=True),  # under a detector
        ),
    ),
    Row(
        "resnet101_fpn", detection.PyramidProposals, tasks.proposals, 46.4, Size(None),
        Small(None, {**_SMALL_RESNET, "depths": [1, 1, 3, 1], "width": 16}, 32),
        (Use("Mimose", (6,), 800, assumed=True),),
    ),
    Row(
        "resnet3d_18", convnets.ResNet3D18, tasks.video_classes, 33.4, Size(400), Small(10, {"width": 4}, 32),
        (Use("MODeL", (1, 32), 112, assumed=True),),
    ),
    Row(
        "inception_resnet_v2", inception.InceptionResNetV2, tasks.image_classes, 55.8, IMAGENET,
        Small(10, {"narrow": 8, "repeats": (2, 2, 1)}, 75),
        (Use("Profile-guided", CHAINER, 299, assumed=True),),
    ),
    Row(
        "mobilenet_v2", mobile.mobilenet_v2, tasks.configured_image_classes, 3.5, IMAGENET,
        Small(10, {"depth_multiplier": 0.25}, 32),
        _convnet("ROAM", "MODeL"),
    ),
    Row(
        "mnasnet", mobile.MnasNet, tasks.image_classes, 4.4, IMAGENET,
        Small(10, {"width": 0.25, "last": 80, "repeats": 2}, 32),
        _convnet("ROAM", "MODeL"),
    ),
    Row(
        "efficientnet_b0", mobile.efficientnet_b0, tasks.configured_image_classes, 5.3, IMAGENET,
        Small(10, {"width_coefficient": 0.25, "hidden_dim": 320, "num_block_repeats": [1, 2, 1, 2, 1, 2, 1]}, 32),
        _convnet("ROAM"),
    ),
    Row(
        "vit_base", configured.vit_base, tasks.configured_image_classes, 86.6, IMAGENET,
        Small(10, {**_SMALL_TEXT, "image_size": 32, "patch_size": 8}, 32),
        (Use("MAGIS", (64,), 224), *_convnet("ROAM", "MODeL")), BOTH,
    ),
    Row(
        "unet", segmentation.UNet, tasks.pixel_classes, 31.0, Size(2), Small(2, {"width": 4}, 32),
        (Use("MAGIS", (32,), 256),),
    ),
    Row(
        "unet_plus_plus", segmentation.UNetPlusPlus, tasks.binary_masks, 9.04, Size(1),
        Small(1, {"width": 4, "levels": 4}, 16),
        (Use("MAGIS", (16,), 256),),
    ),
    Row(
        "transformer", translation.Translator, tasks.translation, 65, Size(37000),
        Small(500, {"width": 48, "heads": 4, "layers": 2}, 16),
        (Use("MODeL", (1, 32), 128, assumed=True),), ("sdpa",),
    ),
    Row(
        "bert_base", configured.bert_base, tasks.masked_language, 110, Size(30522), Small(500, _SMALL_TEXT, 16),
        (
            Use("MAGIS", (32,), 512), Use("ROAM", (1, 32), 512, assumed=True), Use("MODeL", (1, 32), 512, assumed=True),
            Use("Mimose", (12,), 512), Use("Mimose", (32,), 332),
        ), BOTH,
    ),
    Row(
        "roberta_base", configured.roberta_base, tasks.masked_language, 125, Size(50265), Small(500, _SMALL_TEXT, 16),
        (Use("Mimose", (16,), 141),), BOTH,
    ),
    Row(
        "xlm_r_base", configured.xlm_r_base, tasks.masked_language, 278, Size(250002), Small(500, _SMALL_TEXT, 16),
        (Use("MODeL", (1, 32), 512, assumed=True),), BOTH,
    ),
    Row(
        "t5_base", configured.t5_base, tasks.text_to_text, 223, Size(32128),
        Small(500, {"d_model": 48, "d_kv": 12, "d_ff": 192, "num_layers": 2, "num_heads": 4}, 16),
        (Use("Mimose", (8,), 460),), BOTH,
    ),
    Row(
        "lstm_seq2seq", translation.Seq2Seq, tasks.recurrent_translation, 173.3, Size(40000),
        Small(500, {"width": 48, "layers": 2}, 16),
        (Use("Profile-guided", (32, 64, 128, 256), 50, assumed=True),),
    ),
    Row(
        "gpt2", configured.gpt2, tasks.causal_language, 124, Size(50257),
        Small(500, {"n_embd": 48, "n_layer": 2, "n_head": 4}, 16),
        (Use("none, but it is a quick GPT2-XL", (1, 32), 1024, assumed=True),), BOTH,
    ),
    Row(
        "gpt2_xl", configured.gpt2, tasks.causal_language, 1558,
        Size(50257, {"n_embd": 1600, "n_layer": 48, "n_head": 25}),
        Small(500, {"n_embd": 40, "n_layer": 6, "n_head": 5}, 16),
        (Use("ROAM", (1, 2, 4), 1024, assumed=True),), BOTH,
    ),
    Row(
        "gpt_neo_1.3b", configured.gpt_neo, tasks.causal_language, 1316, Size(50257),
        Small(500, {
            "hidden_size": 48, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]],
            "window_size": 8, "max_position_embeddings": 64,
        }, 16),
        (Use("MAGIS", (32,), 512, "bfloat16"),), ("eager",),
    ),
    Row(
        "btlm_3b", btlm.BTLM, tasks.next_token, 2646, Size(50257),
        Small(500, {"width": 48, "layers": 2, "heads": 4, "inner": 128}, 16),
        (Use("MAGIS", (32,), 512, "bfloat16"),), BOTH,
    ),
)  # fmt: skip
