"""`GradScaler`: bit-equal and planned over steps some of which are skipped for an inf."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from step_models import same

STEPS = 20
BAD = (5, 11)  # steps with an inf


@dataclass
class Run:
    losses: list[torch.Tensor]
    scales: list[float]
    state: list[Any]
    step: Any
    warnings: list[str]


def train(*, compiled: bool, inside: bool, clip: bool, enabled: bool = True, fused: bool = False) -> Run:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3, enabled=enabled)

    def update() -> None:
        if clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    def function(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu"):
            loss = model(x).square().mean()
        scaler.scale(loss).backward()
        if inside:
            update()
        return loss.detach()

    step: Any = lowtide.compile(function, model=model, optimizer=optimizer) if compiled else function
    losses, scales = [], []
    source = torch.Generator().manual_seed(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for index in range(STEPS):
            x = torch.randn(6, 8, generator=source)
            if index in BAD and enabled:
                x[0, 0] = float("inf")
            losses.append(step(x).nan_to_num(-1.0))
            if not inside:
                update()
            scales.append(scaler.get_scale())
    state = [
        dict(model.state_dict()),
        optimizer.state_dict(),
        scaler.state_dict(),
        [p.grad for p in model.parameters()],
    ]
    return Run(losses, scales, state, step, [str(w.message) for w in caught if "lowtide" in str(w.message)])


def check(**how: Any) -> Run:
    eager, planned = train(compiled=False, **how), train(compiled=True, **how)
    assert same(eager.losses, planned.losses)
    assert eager.scales == planned.scales
    nans = [[gradient.nan_to_num(-1.0) for gradient in run.state.pop()] for run in (eager, planned)]
    assert same(*nans)
    assert same(eager.state, planned.state)
    if how.get("enabled", True):
        assert len(set(eager.scales)) > 2, "the scale neither grew nor shrank"
    return planned


@pytest.mark.parametrize("clip", [False, True])
def test_a_scaler_outside_the_function_is_planned(clip):
    run = check(inside=False, clip=clip)
    stats = run.step.stats()
    # The scaler makes its scale in the first call, which is recorded apart.
    assert (stats["calls"], stats["eager_calls"], stats["captures"]) == (STEPS, 0, 2), run.step.explain_guards()
    assert not run.warnings


@pytest.mark.parametrize("clip", [False, True])
def test_a_scaler_that_decides_inside_the_function_is_planned(clip):
    run = check(inside=True, clip=clip)
    stats = run.step.stats()
    assert (stats["calls"], stats["eager_calls"]) == (STEPS, 0), run.step.explain_guards()
    assert not run.warnings


@pytest.mark.parametrize("clip", [False, True])
def test_a_fused_optimizer_that_is_given_the_scale_inside_the_function(clip):
    run = check(inside=True, clip=clip, fused=True)
    stats = run.step.stats()
    assert stats["calls"] + stats["eager_calls"] == STEPS


@pytest.mark.parametrize("inside", [False, True])
def test_a_disabled_scaler_changes_nothing(inside):
    run = check(inside=inside, clip=False, enabled=False)
    assert run.step.stats()["calls"] == STEPS and not run.warnings


def test_the_methods_of_the_scaler_are_its_own_again():
    own = [torch.amp.GradScaler.step, torch.amp.GradScaler.update, torch.amp.GradScaler.unscale_]
    check(inside=True, clip=True)
    assert own == [torch.amp.GradScaler.step, torch.amp.GradScaler.update, torch.amp.GradScaler.unscale_]
