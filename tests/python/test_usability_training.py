"""Ways of training that people use beyond one model with one optimizer: each bit-equal to eager, planned."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import lowtide
from step_models import same

STEPS = 8


@dataclass
class Setup:
    """One of two equal copies of what a user has; `functions` are compiled on one side and called in turn."""

    model: nn.Module
    functions: list[Callable[..., Any]]
    optimizers: list[list[torch.optim.Optimizer]]  # of each function
    after: Callable[[int], None] = lambda index: None
    watched: list[Any] = field(default_factory=list)  # modules besides the model
    captures: int = 1  # at most, of each function


def state_of(setup: Setup) -> dict[str, Any]:
    optimizers = {id(o): o for several in setup.optimizers for o in several}.values()
    return {
        "model": dict(setup.model.state_dict()),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "gradients": [parameter.grad for parameter in setup.model.parameters()],
        "watched": [dict(module.state_dict()) for module in setup.watched],
    }


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))


def trainer(model: nn.Module, *optimizers: torch.optim.Optimizer) -> Callable[..., Any]:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.detach()

    return step


def simple(model: nn.Module, *optimizers: torch.optim.Optimizer) -> Setup:
    return Setup(model, [trainer(model, *optimizers)], [list(optimizers)])


SETUPS: dict[str, Callable[[], Setup]] = {}


def setup(make: Callable[[], Setup]) -> Callable[[], Setup]:
    SETUPS[make.__name__] = make
    return make


# -- some of the model -------------------------------------------------------------------------------------------------


@setup
def frozen_layers() -> Setup:
    model = mlp()
    model[0].requires_grad_(False)
    return simple(model, torch.optim.AdamW(model.parameters()))


@setup
def only_trainable_parameters_in_the_optimizer() -> Setup:
    model = mlp()
    model[0].requires_grad_(False)
    return simple(model, torch.optim.Adam([p for p in model.parameters() if p.requires_grad]))


@setup
def gradually_unfrozen() -> Setup:
    model = mlp()
    model[0].requires_grad_(False)
    one = simple(model, torch.optim.Adam(model.parameters()))

    def after(index: int) -> None:
        if index == 3:
            model[0].requires_grad_(True)

    one.after, one.captures = after, 2
    return one


class LowRank(nn.Module):
    """A frozen layer with a small trained correction."""

    def __init__(self, base: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.dropout = nn.Dropout(0.05)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + 2.0 * (self.dropout(x) @ self.a.T @ self.b.T)


@setup
def low_rank_adapters() -> Setup:
    model = mlp().requires_grad_(False)
    for index in (0, 4):
        model[index] = LowRank(model[index])
    return simple(model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01))


class AddsLowRank(nn.Module):
    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.randn(2, shape[1]) * 0.1)
        self.b = nn.Parameter(torch.zeros(shape[0], 2))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight + self.b @ self.a


@setup
def low_rank_as_a_parametrization() -> Setup:
    model = mlp()
    for index in (0, 4):
        model[index].requires_grad_(False)
        parametrize.register_parametrization(model[index], "weight", AddsLowRank(model[index].weight.shape))
    return simple(model, torch.optim.Adam([p for p in model.parameters() if p.requires_grad]))


@setup
def weight_norm() -> Setup:
    model = mlp()
    parametrizations.weight_norm(model[0])
    return simple(model, torch.optim.Adam(model.parameters()))


@setup
def spectral_norm() -> Setup:
    model = mlp()
    parametrizations.spectral_norm(model[4])
    return simple(model, torch.optim.SGD(model.parameters(), lr=0.1))


# -- several groups and optimizers -------------------------------------------------------------------------------------


@setup
def groups_with_rates_and_decay_of_their_own() -> Setup:
    model = mlp()
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [model[0].bias, model[4].bias], "lr": 0.05, "betas": (0.8, 0.9)},
        {"params": list(model[1].parameters()), "lr": 0.0, "weight_decay": 0.0, "amsgrad": True},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    one = simple(model, optimizer)

    def after(index: int) -> None:
        optimizer.param_groups[2]["lr"] = 0.001 * index  # warm-up of one group by hand
        if index == 4:
            optimizer.param_groups[0]["weight_decay"] = 0.0

    one.after = after
    return one


@setup
def an_optimizer_for_each_part() -> Setup:
    model = mlp()
    first = torch.optim.SGD(model[:2].parameters(), lr=0.1, momentum=0.9, nesterov=True)
    return simple(model, first, torch.optim.AdamW(model[4:].parameters(), lr=0.01))


class Adversaries(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
        self.critic = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Linear(16, 1))


def adversaries(model: Adversaries) -> tuple[list[torch.optim.Optimizer], Callable[..., Any], Callable[..., Any]]:
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Adam(model.generator.parameters(), lr=0.01, betas=(0.5, 0.999)),
        torch.optim.RMSprop(model.critic.parameters(), lr=0.01),
    ]
    score = nn.functional.binary_cross_entropy_with_logits

    def train_critic(x: torch.Tensor, _y: torch.Tensor) -> torch.Tensor:
        optimizers[1].zero_grad()
        made = model.generator(torch.randn_like(x)).detach()
        real, fake = model.critic(x), model.critic(made)
        loss = score(real, torch.ones_like(real)) + score(fake, torch.zeros_like(fake))
        loss.backward()
        optimizers[1].step()
        return loss.detach()

    def train_generator(x: torch.Tensor, _y: torch.Tensor) -> torch.Tensor:
        optimizers[0].zero_grad()
        fake = model.critic(model.generator(torch.randn_like(x)))
        loss = score(fake, torch.ones_like(fake))
        loss.backward()
        optimizers[0].step()
        return loss.detach()

    return optimizers, train_critic, train_generator


@setup
def two_functions_in_turn() -> Setup:
    model = Adversaries()
    optimizers, critic, generator = adversaries(model)
    return Setup(model, [critic, generator], [optimizers[1:], optimizers[:1]], captures=2)


@setup
def two_functions_that_both_know_both_optimizers() -> Setup:
    model = Adversaries()
    optimizers, critic, generator = adversaries(model)
    return Setup(model, [critic, generator], [optimizers, optimizers], captures=2)


@setup
def both_players_in_one_function() -> Setup:
    model = Adversaries()
    optimizers, critic, generator = adversaries(model)
    return Setup(model, [lambda x, y: (critic(x, y), generator(x, y))], [optimizers], captures=2)


# -- averages ----------------------------------------------------------------------------------------------------------


def averaged(model: nn.Module) -> AveragedModel:
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))


@setup
def averaged_outside() -> Setup:
    model = mlp()
    average = averaged(model)
    one = simple(model, torch.optim.Adam(model.parameters()))
    one.after = lambda index: average.update_parameters(model)
    one.watched = [average]
    return one


@setup
def averaged_inside() -> Setup:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())
    average, plain = averaged(model), trainer(model, optimizer)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = plain(x, y)
        average.update_parameters(model)
        return loss

    one = Setup(model, [step], [[optimizer]], captures=4)
    one.watched = [average]
    return one


@setup
def averaged_by_hand_inside() -> Setup:
    model = mlp()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters())
    plain = trainer(model, optimizer)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = plain(x, y)
        with torch.no_grad():
            for mine, its in zip(average.parameters(), model.parameters(), strict=True):
                mine.mul_(0.9).add_(its, alpha=0.1)
            for mine, its in zip(average.buffers(), model.buffers(), strict=True):
                mine.copy_(its)
        return loss

    one = Setup(model, [step], [[optimizer]], captures=2)
    one.watched = [average]
    return one


@setup
def teacher_that_follows() -> Setup:
    model = mlp()
    teacher = copy.deepcopy(model).requires_grad_(False).eval()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.no_grad():
            wanted = teacher(x).softmax(-1)
        loss = nn.functional.cross_entropy(model(x), wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def after(index: int) -> None:
        with torch.no_grad():
            for mine, its in zip(teacher.parameters(), model.parameters(), strict=True):
                mine.lerp_(its, 0.1)

    return Setup(model, [step], [[optimizer]], after, [teacher])


# -- the comparison ----------------------------------------------------------------------------------------------------


def train(make: Callable[[], Setup], compiled: bool, steps: int = STEPS) -> tuple[list[Any], Setup]:
    torch.manual_seed(0)
    one = make()
    if compiled:
        one.functions = [
            lowtide.compile(function, model=one.model, optimizer=optimizers, on_unsupported="raise")
            for function, optimizers in zip(one.functions, one.optimizers, strict=True)
        ]
    log = []
    for index in range(steps):
        torch.manual_seed(100 + index)
        x, y = torch.randn(6, 8), torch.randint(4, (6,))
        results = [function(x, y) for function in one.functions]
        one.after(index)
        log.append(copy.deepcopy((results, state_of(one), torch.get_rng_state())))
    return log, one


@pytest.mark.parametrize("name", SETUPS)
def test_equal_to_eager(name: str) -> None:
    expected, _ = train(SETUPS[name], compiled=False)
    got, one = train(SETUPS[name], compiled=True)
    for index, (a, b) in enumerate(zip(expected, got, strict=True)):
        assert same(a[0], b[0]), f"results of step {index}"
        for part in a[1]:
            assert same(a[1][part], b[1][part]), f"{part} after step {index}"
        assert same(a[2], b[2]), f"random state after step {index}"
    for function in one.functions:
        stats = function.stats()
        assert (stats["calls"], stats["eager_calls"]) == (STEPS, 0)
        assert stats["captures"] <= one.captures, function.explain_guards()


# -- what is refused, by name ------------------------------------------------------------------------------------------


def parametrization_cached(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
    plain = trainer(model, optimizer)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with parametrize.cached():
            return plain(x, y)

    return step


def closure(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        def again() -> torch.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            return loss

        return optimizer.step(again).detach()

    return step


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (parametrization_cached, r"parametrize\.cached\(\)"),
        (closure, r"optimizer\.step\(closure\) cannot be planned"),
    ],
)
def test_refused_by_name_and_still_trained(make: Callable[..., Callable[..., Any]], reason: str) -> None:
    logs = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = mlp()
        step = make(model, optimizer := torch.optim.Adam(model.parameters()))
        if compiled:
            step = lowtide.compile(step, model=model, optimizer=optimizer)
        log = []
        for index in range(4):
            torch.manual_seed(index)
            batch = torch.randn(6, 8), torch.randint(4, (6,))
            if compiled and index == 0:
                with pytest.warns(RuntimeWarning, match=reason):
                    log.append(step(*batch))
            else:
                log.append(step(*batch))
        logs.append((log, dict(model.state_dict()), optimizer.state_dict()))
    assert same(*logs)


def test_weight_norm_of_old_is_refused_by_name() -> None:
    model = mlp()
    with pytest.warns(FutureWarning):
        nn.utils.weight_norm(model[0])
    optimizer = torch.optim.Adam(model.parameters())
    step = lowtide.compile(trainer(model, optimizer), model=model, optimizer=optimizer, on_unsupported="raise")
    with pytest.raises(lowtide.CaptureError, match=r"changes `self\.weight` of 0"):
        step(torch.randn(6, 8), torch.randint(4, (6,)))
