"""Small models for `torch.compile(backend="lowtide")`, and how one is trained beside its eager twin."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lowtide._backend import entry, sized
from lowtide._backend.sized import _learn
from lowtide._backend.together import Together


class Perceptron(nn.Module):
    def __init__(self, width: int = 32, dropout: float = 0.1) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, width), nn.Linear(width, width)
        self.last, self.dropout = nn.Linear(width, 8), dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.dropout(F.gelu(self.first(x)), self.dropout, self.training)
        return self.last(torch.tanh(self.second(x)) * x)


class Block(nn.Module):
    def __init__(self, width: int = 16, dropout: float = 0.1) -> None:
        super().__init__()
        self.norm, self.attend, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.attend(self.norm(x)).chunk(3, -1)
        dropout = self.dropout if self.training else 0.0
        return x + self.out(F.scaled_dot_product_attention(query, key, value, dropout_p=dropout))


class Language(nn.Module):
    """Two blocks with tied weights, checkpointed or with a graph break after each if that is asked for."""

    def __init__(self, *, checkpoint: bool = False, breaks: bool = False) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 16), nn.Linear(16, 20, bias=False)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head.weight = self.embed.weight
        self.checkpoint, self.breaks = checkpoint, breaks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(x)
        for block in self.blocks:
            if self.checkpoint:
                hidden = torch.utils.checkpoint.checkpoint(block, hidden, use_reentrant=False)
            else:
                hidden = block(hidden)
            if self.breaks:
                torch._dynamo.graph_break()
        return self.head(hidden)


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3, stride=2),
            nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout2d(0.2),
        )  # fmt: skip
        self.last = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.body(x).mean((2, 3)))


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 24), nn.Linear(24, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(F.relu(self.first(x)))


class Deep(nn.Sequential):
    """Mostly activations, which a plan can make again."""

    def __init__(self) -> None:
        layers = [(nn.Linear(16, 64), nn.GELU(), nn.Dropout(0.3), nn.Linear(64, 16), nn.Tanh()) for _ in range(4)]
        super().__init__(*[layer for block in layers for layer in block])


class Experts(nn.Module):
    """What an expert gets depends on data: the graph breaks there."""

    def __init__(self) -> None:
        super().__init__()
        self.route = nn.Linear(16, 2)
        self.experts = nn.ModuleList([Expert(), Expert()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.route(x).softmax(-1)
        chosen, out = weights.argmax(-1), torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().squeeze(-1)
            out = out.index_add(0, rows, expert(x[rows]) * weights[rows, number, None])
        return out


def words(rows: int = 4) -> torch.Tensor:
    return torch.randint(0, 20, (rows, 6))


def vectors(rows: int = 4) -> torch.Tensor:
    return torch.randn(rows, 16)


def pictures(rows: int = 4) -> torch.Tensor:
    return torch.randn(rows, 3, 12, 12)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[..., torch.Tensor]]] = {
    "perceptron": (Perceptron, vectors),
    "language": (Language, words),
    "checkpointed": (lambda: Language(checkpoint=True), words),
    "broken": (lambda: Language(breaks=True), words),
    "convolutions": (Convolutions, pictures),
    "experts": (Experts, vectors),
}


class Pair:
    """A model, and its copy that is compiled; both do what a function of model and call does, and are compared."""

    def __init__(self, model: nn.Module, *, dynamic: bool | None = None, **options: Any) -> None:
        torch._dynamo.reset()
        self.eager, self.copy = model, copy.deepcopy(model)
        self.given = {"on_unsupported": "raise", **options}  # what is not planned is an error, unless that is allowed
        self.compiled = torch.compile(self.copy, backend="lowtide", options=self.given, dynamic=dynamic)
        self.optimizers = [torch.optim.AdamW(m.parameters(), 1e-2) for m in (self.eager, self.copy)]
        self.seed = 0

    def both(self, do: Callable[[nn.Module, Callable[..., Any], torch.optim.Optimizer], Any]) -> Any:
        """Does it in eager and compiled; every bit must be the same. Gives what it gives compiled."""
        self.seed += 1
        found = []
        for model, call, optimizer in ((self.eager, self.eager, self.optimizers[0]),
                                       (self.copy, self.compiled, self.optimizers[1])):  # fmt: skip
            torch.manual_seed(self.seed)
            given = do(model, call, optimizer)
            gradients = [parameter.grad for parameter in model.parameters()]
            state = [given, list(model.state_dict().values()), gradients, torch.get_rng_state()]
            found.append((given, bits(state)))
        assert found[0][1] == found[1][1]
        return found[1][0]

    def together(self) -> Together:
        """The regions of the compiled one."""
        return entry._together[id(self.given)]


def bits(value: Any) -> Any:
    """What it is now, bit for bit."""
    if isinstance(value, torch.Tensor):
        plain = value.detach().contiguous().reshape(-1)
        return str(value.dtype), tuple(value.shape), plain.view(torch.uint8).numpy().tobytes()
    return [bits(item) for item in value] if isinstance(value, (list, tuple)) else value


def step(make: Callable[[], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A step of training on a batch that is made anew."""

    def do(_model: nn.Module, call: Callable[..., Any], optimizer: torch.optim.Optimizer) -> torch.Tensor:
        optimizer.zero_grad()
        loss = call(make()).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return do


def take_equal_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans as if each operator took a microsecond: which ones run again does not depend on the machine."""

    def learn(*given: Any) -> Any:
        recorded, lowered, profiles, signatures = _learn(*given)
        return recorded, lowered, [replace(profile, time_ns=1000) for profile in profiles], signatures

    monkeypatch.setattr(sized, "_learn", learn)


@contextmanager
def nothing_said() -> Iterator[None]:
    """No warning of Lowtide's comes in this block."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert [str(warning.message) for warning in caught if "lowtide" in str(warning.message)] == []
