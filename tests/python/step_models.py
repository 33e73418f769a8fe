"""The four models that carry the step tests, their batches, and the harness that trains two copies side by side."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn

import lowtide

VOCABULARY = 1000


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(4),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(512, 10),
    )  # fmt: skip


def bert(width: int = 256) -> nn.Module:
    config = transformers.BertConfig(
        hidden_size=width, num_hidden_layers=4, num_attention_heads=4, intermediate_size=4 * width,
        vocab_size=VOCABULARY, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
    )  # fmt: skip
    return transformers.BertForMaskedLM(config)


def gpt2(width: int = 256) -> nn.Module:
    config = transformers.GPT2Config(
        n_embd=width, n_layer=4, n_head=4, vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0, use_cache=False
    )
    config.loss_type = "ForCausalLM"
    return transformers.GPT2LMHeadModel(config)  # its output embedding is its input embedding


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


def same(a: Any, b: Any) -> bool:
    """Equal bit for bit, dtypes and structure included."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


@dataclass
class Side:
    """One of the two copies: a model, its optimizer and its step."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: Any

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "gradients": [parameter.grad for parameter in self.model.parameters()],
        }


StepMaker = Callable[[nn.Module, torch.optim.Optimizer], Callable[..., Any]]


def plain_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def pair(
    model: str,
    optimizer: str | Callable[[Any], torch.optim.Optimizer] = "adam",
    make: StepMaker = plain_step,
    **options: Any,
) -> tuple[Side, Side]:
    """Two equal copies: one whose step is eager, one whose step is compiled."""
    torch.manual_seed(0)
    first = MODELS[model][0]()
    second = copy.deepcopy(first)
    make_optimizer = OPTIMIZERS[optimizer] if isinstance(optimizer, str) else optimizer
    sides = [Side(m, o, make(m, o)) for m, o in ((m, make_optimizer(m.parameters())) for m in (first, second))]
    options = {"on_unsupported": "raise", **options}
    sides[1].step = lowtide.compile(sides[1].step, model=second, optimizer=sides[1].optimizer, **options)
    return sides[0], sides[1]


def batches(model: str, count: int, *, batch: int = 8, length: int = 128) -> Iterator[dict[str, torch.Tensor]]:
    torch.manual_seed(1)
    size = {"batch": batch, "length": length} if MODELS[model][1] is tokens else {"batch": batch}
    return iter([MODELS[model][1](**size) for _ in range(count)])


def small_batches(model: str, count: int, batch: int = 2) -> Iterator[dict[str, torch.Tensor]]:
    return batches(model, count, batch=batch, length=16)


def run_both(eager: Side, planned: Side, index: int, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """One step on either side, from the same random state."""
    torch.manual_seed(100 + index)
    expected = eager.step(*args, **kwargs)
    after = torch.get_rng_state()
    torch.manual_seed(100 + index)
    got = planned.step(*args, **kwargs)
    assert torch.equal(torch.get_rng_state(), after), "the random state has moved differently"
    return expected, got
