"""Budgets of `compile`: kept from the first step on, monotone, remembered, and refused with reasons."""

from __future__ import annotations

import copy
import functools
import gc
import warnings

import numpy
import pytest
import torch

import lowtide
from bench.lib.models import MODELS, plain_step
from lowtide._compile.memory_budget import SCALAR_BYTES
from lowtide._lower import profiles
from step_models import LAYERS, pair_of, same


def start(name: str = "bert", **budgets):
    make_model, make_batch = MODELS[name]
    torch.manual_seed(0)
    model = make_model(64, layers=LAYERS) if name in ("bert", "gpt2") else make_model()
    batch = make_batch()
    optimizer = torch.optim.Adam(model.parameters())
    step = plain_step(model, optimizer)
    compiled = lowtide.compile(
        step, model=model, optimizer=optimizer, keep_grads=False, on_unsupported="raise", **budgets
    )
    return model, batch, optimizer, compiled


def eager_twin(model: torch.nn.Module):
    twin = copy.deepcopy(model)
    return twin, plain_step(twin, torch.optim.Adam(twin.parameters()))


@pytest.mark.parametrize("name", ["bert", "cnn"])
def test_the_first_step_is_within_the_budget(name):
    _, batch, _, free = start(name)
    torch.manual_seed(1)
    free(batch)
    needed = free.plan.resident_bytes + free.plan.arena_bytes
    operands = free.plan.resident_bytes + free.graph.operand_bound_bytes
    budget = (needed + operands) // 2 if name == "bert" else needed - (needed - operands) // 8

    model, batch, optimizer, step = start(name, memory_budget=budget)
    twin, eager = eager_twin(model)
    parameters = sum(t.nbytes for t in [*model.parameters(), *model.buffers(), *batch.values()])
    for seed in range(3):
        state = sum(v.nbytes for s in optimizer.state.values() for v in s.values())
        torch.manual_seed(seed)
        with lowtide.measure() as used:
            loss = step(batch)
        assert parameters + state + used.peak_bytes <= budget
        torch.manual_seed(seed)
        assert same(loss, eager(batch))
    assert same(list(model.parameters()), list(twin.parameters()))
    assert len(step.plan.order) > step.graph.num_ops  # some ops run again
    assert step.stats()["misses"] == 0
    step.close()
    free.close()


def test_a_smaller_budget_never_gives_a_faster_plan():
    _, batch, _, free = start("cnn")
    free(batch)
    graph, high = free.graph, free.plan.arena_bytes
    low = graph.operand_bound_bytes
    times = []
    for i in range(6):
        budget = graph.resident_bytes + high - (high - low) * i // 6
        try:
            plan = lowtide.plan(graph, memory_budget=budget)
        except lowtide.InfeasibleError:
            times.append(float("inf"))
            continue
        assert plan.resident_bytes + plan.arena_bytes <= budget
        times.append(plan.time_ns)
    assert times == sorted(times)
    slow = lowtide.plan(graph, latency_budget=free.plan.time_ns * 1.2 / 1e6)
    assert slow.arena_bytes <= high and slow.time_ns <= free.plan.time_ns * 1.2
    free.close()


@pytest.mark.parametrize("foreach", [True, False])
def test_decay_of_weights_does_not_keep_layers_from_running_again(foreach):
    """AdamW changes a weight before it looks at the gradient; what reads the weight may run again until then."""
    layers = [layer for _ in range(8) for layer in (torch.nn.Linear(64, 64), torch.nn.Tanh())]

    def make(model, optimizer):
        def step(x):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        return step

    adamw = functools.partial(torch.optim.AdamW, foreach=foreach)
    eager, planned = pair_of(torch.nn.Sequential(*layers), adamw, make, memory_budget=0.6)
    for _ in range(3):
        x = torch.randn(2048, 64)
        planned.step(x)
        eager.step(x)
    assert same(planned.state(), eager.state())
    planned.step.close()


def test_a_plan_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path))
    plans = []
    for _ in range(2):
        _, batch, _, step = start("bert", memory_budget=0.8)
        step(batch)
        plans.append(step.plan)
        step.close()
    files = sorted((tmp_path / "plans").iterdir())
    assert len(files) == 1
    assert plans[0].order == plans[1].order and plans[0].arena_bytes == plans[1].arena_bytes
    files[0].write_bytes(b"nonsense")  # what cannot be read is made again
    _, batch, _, step = start("bert", memory_budget=0.8)
    step(batch)
    assert step.plan.order == plans[0].order
    step.close()


def test_a_budget_that_cannot_be_kept_says_why():
    _, batch, _, step = start("bert", memory_budget=1 << 20)
    with pytest.raises(lowtide.InfeasibleError) as raised:
        step(batch)
    error = raised.value
    assert error.bound_bytes > 1 << 20 and error.culprits
    assert "whatever runs again, no plan needs less than" in str(error)
    assert "modeling_bert.py:" in str(error) or "test_budgets.py:" in str(error)


# -- measured: nothing is beside the budget ----------------------------------------------------------------------------


class Coupled(torch.optim.Optimizer):
    """Scales all gradients by their common norm: no parameter can be updated by itself."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self):
        gradients = [p.grad for group in self.param_groups for p in group["params"]]
        norm = torch.stack([g.norm() for g in gradients]).norm()
        scaled = [g / norm for g in gradients]
        for group in self.param_groups:
            for parameter, gradient in zip(group["params"], scaled, strict=True):
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                state["momentum"].mul_(0.9).add_(gradient)
                parameter.add_(state["momentum"], alpha=-group["lr"])


def hooked(parameters):
    optimizer = torch.optim.Adam(parameters)
    optimizer.register_step_post_hook(lambda *_: None)
    return optimizer


OWN_STEPS = {"adafactor": torch.optim.Adafactor, "coupled": Coupled, "hooked": hooked, "adam": torch.optim.Adam}


def deep(width=64, blocks=3):
    def block():
        return torch.nn.Sequential(
            torch.nn.Linear(width, 2 * width), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(2 * width, width)
        )

    return torch.nn.Sequential(*[block() for _ in range(blocks)])


def micro_batches(model, optimizer, count):
    def step(x):
        optimizer.zero_grad()
        total = 0
        for part in x.chunk(count):
            loss = model(part).pow(2).mean() / count
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        return total

    return step


def train(shapes, make_optimizer, budget="eager", keep_grads=None, count=1):
    """Everything is made and trained under one measure; gives its peak, what is there afterwards, and the step."""
    gc.collect()
    with lowtide.measure() as used:
        torch.manual_seed(0)
        model = deep()
        optimizer = make_optimizer(model.parameters())
        step = micro_batches(model, optimizer, count)
        if budget != "eager":
            step = lowtide.compile(
                step, model=model, optimizer=optimizer, memory_budget=budget, keep_grads=keep_grads,
                on_unsupported="raise",
            )  # fmt: skip
        losses = [float(step(torch.full((rows, 64), 0.5))) for rows in shapes]
    state = [v for p in model.parameters() for v in optimizer.state[p].values() if torch.is_tensor(v)]
    return used.peak_bytes, [losses, list(model.parameters()), state], step


@pytest.mark.parametrize(
    ("name", "shapes", "count", "keep_grads"),
    [
        ("adafactor", [512] * 3, 1, None),
        ("coupled", [512] * 3, 1, False),
        ("hooked", [512] * 3, 1, None),
        ("adam", [1024] * 3, 2, False),  # accumulation
        ("adafactor", [1024] * 3, 2, None),
        ("adam", [512, 256, 640, 512], 1, None),  # several shapes
        ("coupled", [512, 256, 512], 1, False),
    ],
)
def test_measured_bytes_are_within_the_budget(name, shapes, count, keep_grads):
    _, expected, _ = train(shapes, OWN_STEPS[name])
    peak, found, free = train(shapes, OWN_STEPS[name], None, keep_grads, count=count)
    if count > 1:
        _, expected, _ = train(shapes, OWN_STEPS[name], count=count)
    assert same(found, expected)
    arenas = [v.plan.arena_bytes for step in free._steps() for v in step._variants.values()]
    budget = peak - max(arenas) // 4
    free.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measured, found, step = train(shapes, OWN_STEPS[name], budget, keep_grads, count=count)
    assert measured <= budget
    assert same(found, expected)
    assert any(len(v.plan.order) > v.graph.num_ops for s in step._steps() for v in s._variants.values())
    stats = step.stats()
    assert stats["planned_bytes"] <= budget == stats["budget_bytes"]
    assert (stats["update_bytes"] > 0) == (name != "adam")
    step.close()


def test_profiling_later_operators_is_within_the_budget(tmp_path, monkeypatch):
    """The second step has momentum, and so other operators: their scratch memory takes the arena's place."""

    def trained(budget):
        gc.collect()
        with lowtide.measure() as used:
            model = deep(width=128)
            optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
            step = lowtide.compile(
                micro_batches(model, optimizer, 1), model=model, optimizer=optimizer, memory_budget=budget,
                on_unsupported="raise",
            )  # fmt: skip
            for _ in range(3):
                step(torch.ones(512, 128))
        stats = step.stats()
        step.close()
        return used.peak_bytes, stats

    _, free = trained(None)
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(profiles, "_seen_here", {})
    budget = free["planned_bytes"] + SCALAR_BYTES
    peak, stats = trained(budget)
    assert stats["profiled_ops"] > 0
    assert stats["arena_bytes"] == free["arena_bytes"] > 3 * 128 * 256 * 4  # what an update reads and writes
    assert peak <= budget


def test_memory_that_nobody_could_foresee_is_never_silent():
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    extra = [0]
    optimizer.register_step_pre_hook(lambda *_: (torch.empty(extra[0], dtype=torch.uint8), None)[1])
    step = lowtide.compile(micro_batches(model, optimizer, 1), model=model, optimizer=optimizer, memory_budget="1MiB")
    batch = torch.ones(32, 64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(batch)
    extra[0] = 1 << 20
    with pytest.warns(RuntimeWarning, match="memory_budget is not kept: this step of .* more than the budget"):
        step(batch)
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(lowtide.InfeasibleError) as raised:
        step(batch)
    assert any("the optimizer's own step" in note for note in raised.value.__notes__)
    assert same(before, list(model.parameters()))


def test_what_no_operator_touches_counts():
    model = torch.nn.ModuleDict({"used": torch.nn.Linear(8, 8), "unused": torch.nn.Linear(512, 512)})
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def run(x):
        return model["used"](x).sum().detach()

    step = lowtide.compile(run, model=model, optimizer=optimizer, memory_budget="1MiB")
    with pytest.raises(lowtide.InfeasibleError) as raised:
        step(torch.ones(2, 8))
    assert any("that no operator of the step touches" in note for note in raised.value.__notes__)


def test_captures_keep_no_gradients_alive():
    model = deep(blocks=2)
    optimizer = torch.optim.Adam(model.parameters())
    step = lowtide.compile(micro_batches(model, optimizer, 1), model=model, optimizer=optimizer, on_unsupported="raise")
    held = []
    with lowtide.measure() as used:
        for rows in (64, 48, 32, 16, 64):
            step(torch.ones(rows, 64))
            held.append(used.current_bytes)
    assert max(held) - held[0] < 16384  # gradients are 130 KiB
    step.close()


# -- shares have one base, and budgets one grammar -----------------------------------------------------------------


def test_a_share_is_of_what_eager_needs_everywhere():
    peak, _, _ = train([512] * 3, torch.optim.Adam)
    _, _, keeping = train([512] * 3, torch.optim.Adam, 1.0)
    _, _, step = train([512] * 3, torch.optim.Adam, 0.8, False)
    stats = step.stats()
    assert stats["budget_bytes"] == int(0.8 * stats["eager_bytes"])
    assert abs(stats["eager_bytes"] - peak) <= 0.05 * peak
    assert stats["eager_bytes"] == step.graph.eager_bytes == keeping.stats()["eager_bytes"]
    keeping.close()
    assert step.plan.resident_bytes + step.plan.arena_bytes <= stats["budget_bytes"]
    mib = [f"{stats[key] / 2**20:.1f} MiB" for key in ("eager_bytes", "budget_bytes")]
    assert f"budget 80 % of eager's {mib[0]} = {mib[1]}" in step.summary()
    again = lowtide.plan(step.graph, memory_budget="80%")
    assert again.arena_bytes == step.plan.arena_bytes
    step.close()


@pytest.mark.parametrize("later", ["norms", "averages"])
def test_a_share_is_of_the_whole_call(later):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 16) for _ in range(4)]
    model = torch.nn.Sequential(*[module for layer in layers for module in (layer, torch.nn.ReLU())])
    optimizer = torch.optim.Adam(model.parameters())
    means = [parameter.detach().clone() for parameter in model.parameters()]

    def train(x):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        if later == "norms":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        optimizer.step()
        if later == "averages":
            with torch.no_grad():
                for mean, parameter in zip(means, model.parameters(), strict=True):
                    mean.lerp_(parameter, 0.1)
        return loss.detach()

    step = lowtide.compile(train, model=model, optimizer=optimizer, memory_budget=0.8)
    for _ in range(3):
        step(torch.randn(1024, 16))
    stats = step.stats()
    assert (stats["captures"], stats["eager_calls"]) == (2, 0)
    assert stats["budget_bytes"] == int(0.8 * stats["eager_bytes"])
    step.close()


def test_with_checkpoints_eager_is_eager_with_its_checkpoints():
    from torch.utils.checkpoint import checkpoint

    def make():
        torch.manual_seed(0)
        model = deep(blocks=6)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)

        def step(x):
            optimizer.zero_grad()
            for block in model:
                x = checkpoint(block, x, use_reentrant=False)
            loss = x.pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return model, optimizer, step

    with lowtide.measure() as used:
        model, optimizer, step = make()
        step(torch.ones(1024, 64))
    model, optimizer, step = make()
    compiled = lowtide.compile(step, model=model, optimizer=optimizer, memory_budget=1.0)
    compiled(torch.ones(1024, 64))
    stats = compiled.stats()
    assert abs(stats["eager_bytes"] - used.peak_bytes) <= 0.15 * used.peak_bytes
    assert stats["eager_bytes"] < 0.6 * (compiled.graph.resident_bytes + compiled.graph.program_peak_bytes)
    assert "eager with its checkpoints about" in compiled.summary()
    compiled.close()


REFUSED = [
    (0, "above 0"),
    (-1, "above 0"),
    (numpy.int64(0), "above 0"),
    (0.0, "at most 1"),
    (-0.5, "at most 1"),
    (1.5, "at most 1"),
    (60.0, "did you mean 0.6"),
    (float("nan"), "at most 1"),
    (float("inf"), "at most 1"),
    ("60", "did you mean '60MiB', or '60%'"),
    ("0.6", "did you mean '60%'"),
    ("0", "above 0"),
    ("0GiB", "above 0"),
    ("-1", "digit"),
    ("8000000000", "did you mean '8000000000B'"),
    ("150%", "at most 1"),
    ("", "digit"),
    (True, "expected bytes"),
    ([1], "expected bytes"),
]


@pytest.mark.parametrize(("budget", "message"), REFUSED, ids=repr)
def test_malformed_budgets_are_refused_alike(budget, message):
    model = torch.nn.Linear(4, 4)
    graph = lowtide.capture(lambda x: model(x).sum().detach(), model=model, example=(torch.ones(2, 4),))
    for use in (
        lambda: lowtide.compile(model, model=model, memory_budget=budget),
        lambda: lowtide.plan(graph, memory_budget=budget),
        lambda: lowtide.adapt(model, memory_budget=budget),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            use()


def test_adapt_takes_bytes_only():
    with pytest.raises(ValueError, match="expected bytes or text"):
        lowtide.adapt(torch.nn.Linear(4, 4), memory_budget="60%")


@pytest.mark.parametrize("budget", [0, -1, 0.0, float("nan"), float("inf"), "0ms", "20", "-1ms", True], ids=repr)
def test_malformed_latency_budgets_are_refused(budget):
    with pytest.raises((ValueError, TypeError)):
        lowtide.compile(lambda: None, model=torch.nn.Linear(1, 1), latency_budget=budget)


def test_budgets_may_be_numbers_of_numpy():
    from lowtide._base.budgets import read_latency_budget, read_memory_budget

    assert read_memory_budget(numpy.int32(7 << 20)) == 7 << 20
    assert read_memory_budget(numpy.float32(0.5)) == 0.5
    assert read_memory_budget("12.5 %") == 0.125
    assert read_latency_budget(numpy.float64(1.5)) == read_latency_budget("1.5ms") == 1_500_000
