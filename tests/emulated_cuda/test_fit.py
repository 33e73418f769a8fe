"""What `lowtide.fit` says that PyTorch reserves is what its real caching allocator does: never less, nor much more.

LOWTIDE_FULL=1 takes all models of the papers at small size, and three of them as they are published.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from bench import zoo
from bench.fit.emulated import compare, of_zoo

FULL = os.environ.get("LOWTIDE_FULL") == "1"
NEAR = 0.03
QUICK = ["alexnet", "transformer", "gpt2"]

pytestmark = pytest.mark.usefixtures("bytes_stay")


def check(allocated, reserved):
    assert abs(allocated["predicted"] / allocated["measured"] - 1) <= NEAR / 10, allocated
    assert reserved["measured"] <= reserved["predicted"] <= (1 + NEAR) * reserved["measured"], reserved


@pytest.mark.parametrize("name", zoo.names() if FULL else QUICK)
def test_small_models(name):
    check(*map(asdict, compare(of_zoo(name))))


class Wide(nn.Module):
    """So wide that it has segments of many sizes."""

    def __init__(self, dtype, recomputed=False):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(700, 700, dtype=dtype) for _ in range(6))
        self.head = nn.Linear(700, 10, dtype=dtype)
        self.recomputed = recomputed

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(self.one, block, x, use_reentrant=False) if self.recomputed else self.one(block, x)
        return self.head(x)

    def one(self, block, x):
        return x + F.gelu(block(x), approximate="tanh").square()


def wide(dtype, **options):
    def train_step(model, optimizer):
        def step(batch):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batch["x"]), batch["y"])
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    def make(fake):
        batch = {"x": torch.randn(600, 700, dtype=dtype), "y": torch.randint(10, (600,))}
        return Wide(dtype, **options), train_step, batch

    return make


@pytest.mark.parametrize("recomputed", [False, True], ids=["as_it_is", "recomputed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_wide_model(dtype, recomputed):
    check(*map(asdict, compare(wide(dtype, recomputed=recomputed))))


@pytest.mark.skipif(not FULL, reason="LOWTIDE_FULL=1: two minutes")
@pytest.mark.parametrize(
    ("name", "batch", "attention"),
    [
        ("bert_base", 4, "eager"),
        ("bert_base", 8, "sdpa"),
        ("gpt2", 2, "eager"),
        ("gpt2", 4, "sdpa"),
        ("resnet50", 8, "eager"),
        ("resnet50", 32, "eager"),
    ],
)
def test_full_models(name, batch, attention):
    """In a process without values: requests are the same, and nothing is computed."""
    options = [name, "--size", "paper", "--batch", str(batch), "--attention", attention]
    command = [sys.executable, "-m", "bench", "run", "fit_emulated", *options, "--json"]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    (row,) = json.loads(made.stdout)["figures"]
    check(row["allocated"], row["reserved"])
