"""Every optimizer of the zoo through `lowtide.compile`: 20 steps, two groups, a schedule and clipping, bit for bit."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn, optim

import lowtide
from optimizer_zoo import SETTINGS, Net, Setting, two_groups
from step_models import same

STEPS = 20


def train(setting: Setting, compiled: bool) -> tuple[list[Any], Any]:
    torch.manual_seed(0)
    model = Net()
    optimizer = setting.make(model)
    schedule = setting.schedule_for(optimizer)

    def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        if setting.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), setting.clip)
        optimizer.step()
        return loss.detach()

    run: Any = step
    if compiled:
        run = lowtide.compile(step, model=model, optimizer=optimizer, on_unsupported="raise")
    log = []
    for index in range(STEPS):
        torch.manual_seed(1000 + index)
        result = run(torch.randn(4, 3, 8, 8), torch.randint(10, (4,)))
        schedule.step()
        kept = result, dict(model.state_dict()), optimizer.state_dict(), schedule.state_dict()
        log.append(copy.deepcopy(kept))
    return log, run


def check_equal(setting: Setting) -> Any:
    expected, _ = train(setting, compiled=False)
    got, run = train(setting, compiled=True)
    for index, (a, b) in enumerate(zip(expected, got, strict=True)):
        for part, x, y in zip(("loss", "model", "optimizer", "schedule"), a, b, strict=True):
            assert same(x, y), f"{part} after step {index}"
    stats = run.stats()
    assert (stats["calls"], stats["eager_calls"], stats["captures"]) == (STEPS, 0, 1), run.explain_guards()
    return run


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_planned_and_equal(setting: Setting) -> None:
    run = check_equal(setting)
    assert "runs eagerly" not in run.explain_guards() and "by the rule itself" not in run.explain_guards()


def test_adafactor_steps_eagerly_after_the_program() -> None:
    run = check_equal(Setting("adafactor", lambda model: optim.Adafactor(two_groups(model, 1e-2))))
    assert "optimizer.step() runs eagerly: Adafactor" in run.explain_guards()
