"""torch.compile(backend="lowtide"): noise of tensors that are not contiguous is drawn as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from backend_models import Pair, nothing_said, step


class Drawing(nn.Module):
    """Draws for what a layer makes."""

    def __init__(self, draw: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layer, self.draw = nn.Linear(8, 8), draw

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.draw(self.layer(x))


def like(hidden: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(hidden.transpose(0, 1))


DRAWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dropout": lambda hidden: F.dropout(hidden.transpose(0, 1), 0.3),
    "dropout of images": lambda hidden: F.dropout(hidden.view(4, 6, 4, 2).to(memory_format=torch.channels_last), 0.3),
    "dropout in place": lambda hidden: F.dropout((2 * hidden).transpose(1, 2), 0.3, inplace=True),
    "alpha dropout": lambda hidden: F.alpha_dropout(hidden.transpose(1, 2), 0.3, True),
    "dropout of channels": lambda hidden: F.dropout1d(hidden.transpose(1, 2), 0.3),
    "uniform": lambda hidden: hidden * like(hidden).uniform_().transpose(0, 1),
    "exponential": lambda hidden: hidden * like(hidden).exponential_().transpose(0, 1),
    "bernoulli of probabilities": lambda hidden: (
        hidden * torch.bernoulli(hidden.detach().sigmoid().transpose(0, 1)).mT.sum()
    ),
    "gumbel": lambda hidden: F.gumbel_softmax(hidden.transpose(1, 2), dim=1),
}


def batch() -> torch.Tensor:
    return torch.randn(4, 6, 8)


@pytest.mark.parametrize("name", DRAWS)
def test_noise_has_the_order_of_eager(name: str) -> None:
    pair = Pair(Drawing(DRAWS[name]))
    with nothing_said():
        for _ in range(2):
            pair.both(step(batch))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_transformer_layer_with_dropout(dynamic: bool) -> None:
    pair = Pair(
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True), dynamic=dynamic, memory_budget="90%"
    )
    with nothing_said():
        for _ in range(3):
            pair.both(step(batch))


@pytest.mark.parametrize(
    "draw", [lambda of: torch.bernoulli(of, 0.5), lambda of: of.clone().bernoulli_(0.5)], ids=["function", "in place"]
)
def test_bernoulli_in_place_or_not_cannot_be_told_from_the_graph(draw: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def masked(hidden: torch.Tensor) -> Any:
        return hidden * draw(hidden.detach().transpose(0, 1)).transpose(0, 1)

    pair = Pair(Drawing(masked), on_unsupported="eager")
    with pytest.warns(
        RuntimeWarning, match="does not tell bernoulli_ from bernoulli of a tensor that is not contiguous"
    ):
        pair.both(step(batch))
    pair.both(step(batch))
