"""Live time: what a compiled step takes beside its planned programs, because the function's own Python runs.

A BERT of 4 layers on 8 x 128 tokens, and a small step whose function makes ten tensor calls itself. A row has medians
of calls, without those that audit; the live part is what a call takes outside of `CapturedStep.run`, and its limit.

    python -m bench run step_live [--quick]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import nn

import lowtide
from bench.lib.markdown import header, line
from bench.lib.models import bert, plain_step, tokens
from lowtide._step.captured_step import CapturedStep

SHARE_LIMIT = 0.02  # of a BERT step
TEN_CALLS_LIMIT_MS = 1.0
WARM_CALLS = 5


@dataclass(frozen=True)
class Live:
    """Medians."""

    call_ms: float
    live_ms: float

    @property
    def share(self) -> float:
        return self.live_ms / self.call_ms


def measure(step: Callable[..., Any], batch: Any, calls: int) -> Live:
    """Times calls of a compiled step."""
    own = CapturedStep.run
    planned = [0.0]

    def run(self: CapturedStep, *args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        try:
            return own(self, *args, **kwargs)
        finally:
            planned[0] += time.perf_counter() - begin

    taken: list[tuple[float, float]] = []
    CapturedStep.run = run  # type: ignore[method-assign]
    try:
        for _ in range(WARM_CALLS + calls):
            planned[0] = 0.0
            begin = time.perf_counter()
            step(batch)
            whole = time.perf_counter() - begin
            taken.append((1e3 * whole, 1e3 * (whole - planned[0])))
    finally:
        CapturedStep.run = own  # type: ignore[method-assign]
    return Live(*[median(times) for times in zip(*taken[WARM_CALLS:], strict=True)])


def bert_step() -> tuple[Callable[..., Any], Any]:
    """The large step, and its batch."""
    torch.manual_seed(0)
    model = bert(width=128)
    optimizer = torch.optim.Adam(model.parameters())
    return lowtide.compile(plain_step(model, optimizer), model=model, optimizer=optimizer), tokens(8, 128)


def ten_calls() -> tuple[Callable[..., Any], Any]:
    """The small step, and its batch: what its function calls is deferred one by one."""
    torch.manual_seed(0)
    model = nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def train(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        y = model(x)
        loss = (y - x).abs().mean() * 0.5 + y.pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return lowtide.compile(train, model=model, optimizer=optimizer), torch.randn(8, 16)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="few calls: does it run?")


def run(options: argparse.Namespace) -> dict[str, Live]:
    """Prints the table; gives its rows."""
    torch.set_num_threads(1)
    print(header(("step", "call ms", "live ms", "live / call", "limit")))
    rows = {}
    for name, make, calls, limit in (
        ("BERT 8 x 128", bert_step, 30, f"{SHARE_LIMIT:.0%} of the call"),
        ("ten calls", ten_calls, 1000, f"{TEN_CALLS_LIMIT_MS:.1f} ms"),
    ):
        found = rows[name] = measure(*make(), 5 if options.quick else calls)
        print(line((name, f"{found.call_ms:.2f}", f"{found.live_ms:.2f}", f"{found.share:.1%}", limit)), flush=True)
    return rows
