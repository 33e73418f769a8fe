"""BTLM-3B-8K (Dey et al. 2023): like GPT, with SwiGLU, ALiBi instead of positions, and maximal-update scaling."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

EMBEDDING_SCALE = 14.6  # tuned on a small width, and kept by maximal-update scaling
OUTPUT_SCALE = 2.22
BASE_WIDTH = 256  # the width at which they were tuned


class BTLM(nn.Module):
    """The output embedding is the input embedding. `attention` is "eager" or "sdpa"."""

    def __init__(
        self,
        classes: int,
        attention: str,
        width: int = 2560,
        layers: int = 32,
        heads: int = 32,
        inner: int = 6826,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, width)
        nn.init.normal_(self.embedding.weight, std=0.073)
        self.blocks = nn.ModuleList(_Block(width, heads, inner, attention) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.output_scale = OUTPUT_SCALE * BASE_WIDTH / width
        slopes = 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)
        self.register_buffer("slopes", slopes, persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) * EMBEDDING_SCALE
        bias = self._attention_bias(tokens.shape[1])
        for block in self.blocks:
            x = block(x, bias)
        return self.norm(x) @ self.embedding.weight.T * self.output_scale

    def _attention_bias(self, length: int) -> torch.Tensor:
        """By head, what is added to a score: less the further back, nothing of the future."""
        position = torch.arange(length, device=self.slopes.device)
        distance = position[:, None] - position
        penalty = -self.slopes[:, None, None] * distance
        return penalty.masked_fill(distance < 0, float("-inf"))


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, inner: int, attention: str) -> None:
        super().__init__()
        self.heads, self.attention = heads, attention
        self.scale = heads / width  # one over the size of a head, not over its root
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.gate, self.value, self.down = nn.Linear(width, inner), nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        x = x + self.merge(self._attend(self.before_attention(x), bias))
        y = self.before_mlp(x)
        return x + self.down(F.silu(self.gate(y)) * self.value(y))

    def _attend(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if self.attention == "sdpa":
            attended = F.scaled_dot_product_attention(query, key, value, bias, scale=self.scale)
        else:
            attended = (query @ key.transpose(-1, -2) * self.scale + bias).softmax(-1) @ value
        return attended.transpose(1, 2).flatten(2)
