"""Steps whose plans run operators again train bit for bit as in eager: dropout, running statistics and all."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from given_orders import random_order
from given_repeats import plan_with_repeats
from lowtide import _core, _torch
from lowtide._capture import recorder
from lowtide._capture.recorder import Ref, Where
from lowtide._compile import compile as compiling
from lowtide._lower.lowering import Buffer, Operator, optional_updates
from step_models import Side, pair, pair_of, plain_step, run_both, same, small_batches

SEEDS = range(24 if os.environ.get("LOWTIDE_FULL") else 5)


class Residual(nn.Module):
    """Two convolutions beside a shortcut, normalized over the batch; activations in place."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip
        self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, bias=False), nn.BatchNorm2d(after))
        self.end = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.body(x)
        out += self.shortcut(x)
        return self.end(out)


def resnet() -> nn.Module:
    return nn.Sequential(
        Residual(3, 8), Residual(8, 16), nn.Dropout(0.2), Residual(16, 16),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


class UNet(nn.Module):
    """Long skips from the way down to the way up."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)])
        self.bottom = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.GELU(), nn.Dropout2d(0.3))
        self.up = nn.ModuleList([nn.Conv2d(32, 8, 3, padding=1), nn.Conv2d(16, 4, 3, padding=1)])
        self.head = nn.Linear(4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for layer in self.down:
            skips.append(torch.relu(layer(x)))
            x = nn.functional.max_pool2d(skips[-1], 2)
        x = self.bottom(x)
        for layer in self.up:
            x = torch.cat([nn.functional.interpolate(x, scale_factor=2), skips.pop()], 1)
            x = nn.functional.silu(layer(x))
        return self.head(x.mean((2, 3)))


class Noise(nn.Module):
    """Multiplies by so few normal numbers that the generator keeps one of each pair for the next draw."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(768, 5), nn.Linear(5, 5), nn.Linear(5, 5)])
        self.head = nn.Linear(5, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        for layer in self.layers:
            x = torch.tanh(layer(x)) * torch.randn(5)
        return self.head(x)


def image_batches(count: int) -> Iterator[dict[str, torch.Tensor]]:
    torch.manual_seed(1)
    return iter([{"x": torch.randn(4, 3, 16, 16), "y": torch.randint(10, (4,))} for _ in range(count)])


GivePlans = Callable[[int], list[_core.Graph]]


@pytest.fixture
def give_plans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> GivePlans:
    """From its call on, every step that is compiled has the plan of a seed; it gives the graphs that were planned."""

    def give(seed: int) -> list[_core.Graph]:
        graphs: list[_core.Graph] = []

        def plan_so(graph: _core.Graph, **_: Any) -> _core.Plan:
            graphs.append(graph)
            order = random_order(graph, seed) if seed % 3 == 2 else list(range(graph.num_ops))
            return plan_with_repeats(graph, order, seed, tmp_path)

        monkeypatch.setattr(compiling._core, "plan", plan_so)
        return graphs

    return give


def repeated(graph: _core.Graph, plan: _core.Plan) -> set[str]:
    """The operators that run again."""
    return {graph.op_name(op) for op, runs in Counter(plan.order).items() if runs > 1}


MAKERS = {"resnet": resnet, "unet": UNet, "noise": Noise}
MODELS = ["bert", "gpt2", *MAKERS]
EXPECTED = {  # what is to be run again by some seed, beside much else
    "bert": {"aten.bernoulli_.float", "aten.native_layer_norm.default"},
    "gpt2": {"aten.bernoulli_.float", "aten.native_layer_norm.default"},
    "resnet": {"aten.native_batch_norm.default", "aten.relu_.default", "aten.add_.Tensor", "aten.bernoulli_.float"},
    "unet": {"aten.bernoulli_.float", "aten.cat.default"},
    "noise": {"aten.randn.default"},
}


def train(model: str, steps: int, *, batch: int = 2, **options: Any) -> Any:
    """Trains both copies and compares everything; gives the compiled step."""
    torch.manual_seed(0)
    if model in MAKERS:
        (eager, planned), batches = pair_of(MAKERS[model](), "adam", plain_step, **options), image_batches(steps)
    else:
        (eager, planned), batches = pair(model, "adam", small=True, **options), small_batches(model, steps, batch)
    for index, batch in enumerate(batches):
        assert same(*run_both(eager, planned, index, batch))
        assert same(eager.state(), planned.state())
    stats = planned.step.stats()
    assert (stats["misses"], stats["escapes"]) == (0, [])
    assert stats["served_bytes"] == stats["arena_bytes"]
    return planned.step


@pytest.mark.parametrize("model", MODELS)
def test_trains_as_in_eager(give_plans: GivePlans, model: str) -> None:
    again: set[str] = set()
    for seed in SEEDS:
        planned = give_plans(seed)
        step = train(model, 3)
        again |= repeated(planned[-1], step.plan)
    assert again >= EXPECTED[model]


@pytest.mark.parametrize(("model", "budget"), [("bert", 0.6), ("gpt2", 0.6), ("resnet", 0.7), ("unet", 0.8)])
def test_trains_as_in_eager_within_a_budget(model: str, budget: float) -> None:
    """The planner's own choice of what runs again."""
    step = train(model, 3, batch=16, memory_budget=budget)
    assert max(Counter(step.plan.order).values()) > 1
    assert step.stats()["planned_bytes"] <= budget * step.stats()["eager_bytes"]


@pytest.mark.parametrize("level", ["1", "all"])
@pytest.mark.parametrize("model", MODELS)
def test_guard_mode_finds_nothing(
    give_plans: GivePlans, model: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOWTIDE_GUARD", level)
    planned = give_plans(4)
    step = train(model, 2)
    assert repeated(planned[-1], step.plan)


class Stops(Exception):
    """What `draw` raises."""


runs_left = 0  # until `draw` stops; none: it does not


@torch.library.custom_op("again::draw", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def draw(x: torch.Tensor) -> torch.Tensor:
    """As many random numbers."""
    global runs_left
    result = torch.rand_like(x)
    runs_left -= 1
    if runs_left == 0:
        raise Stops
    return result


draw.register_fake(torch.empty_like)


class Drawing(nn.Module):
    """What is drawn first is used last."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        drawn = torch.ops.again.draw(x)
        return self.layers(x) * drawn


def test_a_run_that_fails_leaves_the_random_state_as_it_was(give_plans: GivePlans, monkeypatch: Any) -> None:
    global runs_left
    monkeypatch.setattr(recorder, "_PURE_NAMESPACES", frozenset({"aten", "again"}))
    planned = give_plans(3)  # all that lies idle for three steps is made again
    torch.manual_seed(0)
    model, x = Drawing(), torch.randn(4, 8)

    @torch.no_grad()
    def infer(x: torch.Tensor) -> torch.Tensor:
        return model(x)

    step = lowtide.compile(infer, model=model, on_unsupported="raise")
    expected, got = run_both(Side(model, None, infer), Side(model, None, step), 0, x)
    assert same(expected, got)
    assert repeated(planned[-1], step.plan) == {"again.draw.default"}

    torch.manual_seed(7)
    before = torch.get_rng_state()
    runs_left = 2
    with pytest.raises(Stops) as raised:
        step(x)
    assert torch.equal(torch.get_rng_state(), before)
    assert "stopped at again.draw.default" in raised.value.__notes__[-1]
    expected, got = run_both(Side(model, None, infer), Side(model, None, step), 1, x)
    assert same(expected, got)


def test_operators_that_are_not_pytorchs_own_run_once(give_plans: GivePlans) -> None:
    """Nobody knows what else they do."""
    planned = give_plans(3)
    model = Drawing()
    step = lowtide.compile(torch.no_grad()(model.forward), model=model, on_unsupported="raise")
    step(torch.randn(4, 8))
    assert "again.draw.default" not in repeated(planned[-1], step.plan)


LAYOUTS = {
    "vectors": lambda: torch.randn(4, 6),
    "images": lambda: torch.randn(8, 16, 9, 11),
    "channels_last": lambda: torch.randn(8, 16, 9, 11).to(memory_format=torch.channels_last),
    "many": lambda: torch.randn(64, 33, 7, 7),
    "every_second": lambda: torch.randn(2, 8, 8, 8)[:, ::2],
    "volumes": lambda: torch.randn(2, 3, 4, 5, 6),
}
DTYPES = [(dtype, dtype) for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)]
MIXED = [(torch.bfloat16, torch.float32), (torch.float16, torch.float32)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "parameters"), [*DTYPES, *MIXED], ids=str)
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_needs_no_running_statistics(
    layout: str, dtype: torch.dtype, parameters: torch.dtype, affine: bool
) -> None:
    """Where they are optional: the same bits, and the same requests for memory."""
    torch.manual_seed(0)
    x = LAYOUTS[layout]().to(dtype)
    weight, bias, mean, variance = (torch.rand(x.shape[1], dtype=parameters) for _ in range(4))
    target = torch.ops.aten.native_batch_norm.default
    operands = [x, weight if affine else None, bias if affine else None, mean, variance]
    arguments = [t if t is None else Ref(i, t.dtype, tuple(t.shape), t.stride(), 0) for i, t in enumerate(operands)]
    operator = Operator(target, [*arguments, True, 0.1, 1e-5], [], [], [3, 4], Where("", ""))
    buffers = [Buffer(0, "bound" if index in (3, 4) else "planned") for index in range(5)]
    optional = optional_updates(operator, buffers)
    assert optional == ([3, 4] if affine or dtype == parameters else [])

    def profile(statistics: list[torch.Tensor | None]) -> tuple[list[Any], list[torch.Tensor], int]:
        given = [*operands[:3], *statistics, True, 0.1, 1e-5]
        return _torch.profile("aten::native_batch_norm", "", [("constant", item) for item in given], 1, False)

    requests, results, _ = profile([mean, variance])
    requests_without, results_without, _ = profile([None, None])
    if optional:
        assert same(results, results_without) and requests == requests_without
    else:
        assert results[1].dtype != results_without[1].dtype, "needlessly kept from running again"


def test_running_statistics_that_are_more_than_that_are_not_optional() -> None:
    """Planned ones have blocks of their own, and what is read elsewhere too is not left out."""
    x, channel = Ref(0, torch.float32, (4, 6), (6, 1), 0), Ref(1, torch.float32, (6,), (1,), 0)
    variance = channel._replace(buffer=2)
    target = torch.ops.aten.native_batch_norm.default

    def optional(arguments: list[Any], writes: list[int], kinds: list[str]) -> list[int]:
        operator = Operator(target, arguments, [], [], writes, Where("", ""))
        return optional_updates(operator, [Buffer(0, kind) for kind in kinds])

    usual = [x, None, None, channel, variance, True, 0.1, 1e-5]
    assert optional(usual, [1, 2], ["planned", "bound", "bound"]) == [3, 4]
    assert optional(usual, [1, 2], ["planned", "bound", "planned"]) == []
    assert optional([x, channel, *usual[2:]], [1, 2], ["planned", "bound", "bound"]) == []
    assert optional([*usual[:5], False, *usual[6:]], [], ["planned", "bound", "bound"]) == []
