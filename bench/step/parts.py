"""Steps whose largest operators are the peak, planned in parts and eager: peak, time and numbers, by one yardstick.

Each side trains in a process of its own under `lowtide.measure()`, on one thread, in turns: eager, planned, eager and
so on. Peaks and times are those of all steps but the first, which finds out what operators and their parts need and
may take more for that. Planned steps have a share of what eager needs.
With sums in parts the last bits of what is summed differ: the greatest relative difference of weights is told.

    python -m bench run step_parts [STEP ...]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import lowtide
from bench.lib.apart import ROOT, command_of
from bench.lib.markdown import header, line
from bench.lib.progress import each
from bench.page.step_parts import COLUMNS, cells

SIDES = ("eager", "exact", "any")  # the last two: planned, with parts that have the bits of whole operators, and all
SHARE = 0.35  # of eager, for planned steps; for exact parts it rises until it is feasible
TURNS = 3
STEPS = 4


class Head(nn.Module):
    """The end of a causal language model: a vocabulary of 50,257."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50257, 128)
        self.body = nn.Linear(128, 128)
        self.head = nn.Linear(128, 50257, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.head(functional.gelu(self.body(self.embedding(tokens))))
        return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


class Attention(nn.Module):
    """Attention written out, at length 2,048."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(256, 3 * 256)
        self.out = nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / 8
        mixed = scores.softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width)).square().mean()


class Level(nn.Module):
    """One level of a U-Net: two convolutions, and two behind the skip."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())
        self.up = nn.Sequential(nn.Conv2d(64, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 3, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skip = self.down(x)
        inner = functional.interpolate(functional.max_pool2d(skip, 2), scale_factor=2.0)
        return self.up(torch.cat((skip, inner), 1)).square().mean()


class Mlp(nn.Module):
    """The MLP of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(256)
        self.mlp = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + self.mlp(self.norm(x))).square().mean()


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "language head": (Head, lambda: torch.randint(50257, (8, 128))),
    "attention": (Attention, lambda: torch.randn(2, 2048, 256)),
    "U-Net level": (Level, lambda: torch.randn(8, 3, 160, 160)),
    "MLP": (Mlp, lambda: torch.randn(16, 512, 256)),
}


def train(name: str, side: str, share: float) -> dict[str, Any]:
    """Peak, seconds of each step, how much runs in parts, and the weights in the end."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    make_model, make_batch = MODELS[name]
    with lowtide.measure() as used:
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        batch = make_batch()

        def step(batch: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(batch)
            loss.backward()
            optimizer.step()
            return loss.detach()

        run: Callable[[torch.Tensor], torch.Tensor] = step
        if side != "eager":
            run = lowtide.compile(
                step, model=model, optimizer=optimizer, memory_budget=share, keep_grads=False,
                allow_inexact=side == "any", on_unsupported="raise",
            )  # fmt: skip
        run(batch)
        there = used.current_bytes - used.arena_bytes
        seconds = []
        with lowtide.measure() as in_steps:
            for _ in range(STEPS):
                begin = time.perf_counter()
                run(batch)
                seconds.append(time.perf_counter() - begin)
    result: dict[str, Any] = {
        "peak_bytes": there + in_steps.peak_bytes, "first_peak_bytes": used.peak_bytes, "seconds": seconds,
    }  # fmt: skip
    if side != "eager":
        stats = run.stats()  # type: ignore[attr-defined]
        result |= {"operators_in_parts": stats["operators_in_parts"], "exact": stats["exact_in_parts"]}
    path = os.environ["LOWTIDE_BENCH_WEIGHTS"]
    torch.save([parameter.detach() for parameter in model.parameters()], f"{path}/{side}.pt")
    return result


def train_apart(name: str, side: str, share: float) -> dict[str, Any] | None:
    """The same in a new process: arena and allocator start empty. None if the budget is infeasible."""
    command = command_of("bench.step.parts", name, side, str(share))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    if "InfeasibleError" in done.stderr:
        return None
    raise RuntimeError(done.stderr)


def difference(folder: str, side: str) -> float:
    """The greatest relative difference of a weight from eager's; 0 only if all bits are equal."""
    pairs = zip(*(torch.load(f"{folder}/{one}.pt") for one in ("eager", side)), strict=True)
    return max(float((a - b).abs().max() / a.abs().max()) for a, b in pairs)


def measured(name: str, folder: str) -> list[dict[str, Any]]:
    """A row for each side."""
    shares = {"eager": 1.0, "exact": SHARE, "any": SHARE}
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(TURNS):
        for side in SIDES:
            one = train_apart(name, side, shares[side])
            while one is None:
                shares[side] = round(shares[side] + 0.05, 2)
                one = train_apart(name, side, shares[side])
            found.setdefault(side, []).append(one)
    rows = []
    for side, runs in found.items():
        times = [seconds for run in runs for seconds in run["seconds"]]
        rows.append({**runs[0], "step": name, "side": side, "share": shares[side], "seconds": statistics.median(times),
                     "difference": difference(folder, side)})  # fmt: skip
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"some of {', '.join(MODELS)}; all if none")


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the table; gives its rows."""
    print(header(COLUMNS))
    rows: list[dict[str, Any]] = []
    for name in each(options.steps or MODELS, "steps"):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["LOWTIDE_CACHE_DIR"] = os.environ["LOWTIDE_BENCH_WEIGHTS"] = folder
            found = measured(name, folder)
        for shown in cells(found):
            print(line(shown), flush=True)
        rows += found
    return rows


if __name__ == "__main__":
    print(json.dumps(train(sys.argv[1], sys.argv[2], float(sys.argv[3]))))
