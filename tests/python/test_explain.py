"""lowtide.explain: mistakes that users make are found at their lines, with what mending them gains."""

import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import lowtide
from lowtide import _core

WIDTH, VOCABULARY, ROWS = 32, 4096, 64


def line(function: Callable[..., Any], text: str) -> str:
    """Where in a function a text is, as sources are written."""
    lines, first = inspect.getsourcelines(function)
    found = [first + i for i, row in enumerate(lines) if text in row]
    assert len(found) == 1, text
    return f"{inspect.getsourcefile(function)}:{found[0]}"


class Head(nn.Module):
    """A narrow body and a wide head, in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def explain(step: Callable[..., Any], model: nn.Module, optimizer: Any, *batch: torch.Tensor) -> dict[str, Any]:
    graph = lowtide.capture(step, model=model, optimizer=optimizer, example=batch)
    return lowtide.explain(graph).to_dict()


def test_giant_logits() -> None:
    model = Head()

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        model.zero_grad()
        return loss.detach()

    told = explain(step, model, None, torch.randn(ROWS, WIDTH).bfloat16(), torch.randint(VOCABULARY, (ROWS,)))
    first = told["holders"][0]
    logits = ROWS * VOCABULARY * 2
    assert (first["bytes"], first["shape"], first["in_use"]) == (logits, [ROWS, VOCABULARY], True)
    assert first["made_by"]["source"] == told["peak_op"]["source"] == line(step, "cross_entropy")
    # Three of that size: the result of log_softmax, its gradient, and the gradient of the logits.
    assert told["operand_bytes"] >= 3 * logits
    advice = told["next"][0]
    assert "chunks" in advice["advice"] and line(step, "cross_entropy") in advice["advice"]
    assert advice["gain_bytes"] >= logits and advice["at_most"]


def test_needless_float32_copy() -> None:
    model = Head()

    def step(x: torch.Tensor) -> torch.Tensor:
        logits = model(x)
        wide = logits.float()
        loss = (wide.square() * logits).sum()
        loss.backward()
        model.zero_grad()
        return loss.detach()

    told = explain(step, model, None, torch.randn(ROWS, WIDTH).bfloat16())
    copy = next(holder for holder in told["holders"] if holder["made_by"]["source"] == line(step, "logits.float()"))
    assert copy["kind"] == "saved for backward" and copy["dtype"] == "float32"
    assert copy["bytes"] == ROWS * VOCABULARY * 4 and copy["copy_of"] == "bfloat16 aten.mm.default of head"
    advice = [row for row in told["next"] if f"does {line(step, 'logits.float()')} need its float32" in row["advice"]]
    assert [row["gain_bytes"] for row in advice] == [copy["bytes"]]


@pytest.mark.parametrize("kept", [True, False])
def test_gradients_kept_through_the_update(kept: bool) -> None:
    model = nn.Sequential(*[nn.Linear(128, 128, bias=False) for _ in range(4)])
    optimizer = torch.optim.Adam(model.parameters())
    gradients = 4 * 128 * 128 * 4

    def step(x: torch.Tensor) -> torch.Tensor:
        if kept:
            optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        if not kept:
            optimizer.zero_grad()
        return loss.detach()

    told = explain(step, model, optimizer, torch.randn(2, 128))
    kind = "kept gradient" if kept else "gradient"
    holder = next(holder for holder in told["holders"] if holder["kind"] == kind)
    assert holder["bytes"] >= gradients - gradients // 4
    assert holder["made_by"]["source"] == line(step, "loss = model(x)")
    advised = any("zero_grad() as the last line" in row["advice"] for row in told["next"])
    assert advised == kept
    if not kept:
        # Each is alive until its own update, and updates can run before the other gradients are made.
        assert holder["last_use"]["source"] == line(step, "optimizer.step()")
        assert told["next"][0]["gain_bytes"] == told["total_bytes"] - told["planned_bytes"] > gradients // 2
        assert "lowtide.compile" in told["next"][0]["advice"]


def test_layers_alike_are_one_group() -> None:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16)) for _ in range(6)])

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        model.zero_grad()
        return loss.detach()

    graph = lowtide.capture(step, model=model, example=(torch.randn(1024, 16),), device="L4")
    told = lowtide.explain(graph)
    first = told.to_dict()["holders"][0]
    assert (first["count"], first["largest_bytes"], first["modules"]) == (6, 1024 * 64 * 4, "*.1 (0 to 5)")
    assert first["kind"] == "saved for backward" and first["last_use"]["op"] == "aten.tanh_backward.default"
    assert 0 < first["recompute"]["gain_bytes"] <= first["bytes"] and first["recompute"]["time_ns"] > 0
    # What is said of recomputing it holds: a plan that is smaller by that much is there, for no more time.
    eager = told.to_dict()
    budget = eager["total_bytes"] - first["recompute"]["gain_bytes"]
    slower = lowtide.plan(graph, memory_budget=budget, order="program", reuse=False)
    assert slower.time_ns <= eager["time_ns"] + first["recompute"]["time_ns"]
    assert "6 x 256.00 KiB, float32 [1024, 64]" in str(told)
    assert json.loads(told.to_json()) == told.to_dict()


def test_compiled_steps_and_plans() -> None:
    model = nn.Linear(8, 8)

    @lowtide.compile(model=model)
    def step(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return model(x).relu().sum()

    with pytest.raises(ValueError, match="has not run yet: call it once"):
        lowtide.explain(step)
    step(torch.randn(4, 8))
    told = lowtide.explain(step)
    assert told.to_dict()["total_bytes"] == step.plan.resident_bytes + step.plan.peak_bytes
    assert str(told) == str(lowtide.explain(step.graph, step.plan)) and "order     best, as planned" in str(told)
    with pytest.raises(TypeError, match=r"lowtide.explain\(graph, plan\)"):
        lowtide.explain(step.plan)
    with pytest.raises(TypeError, match="a plan of its own"):
        lowtide.explain(step, step.plan)
    step.close()
    with pytest.raises(ValueError, match="was closed"):
        lowtide.explain(step)


def test_a_step_that_runs_eager_says_so() -> None:
    model = nn.Linear(8, 8)
    model.register_forward_hook(lambda _module, _args, out: out.sum().item() and None)
    step = lowtide.compile(lambda x: model(x), model=model)
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="runs eager"):
        step(torch.randn(4, 8))
    with pytest.raises(ValueError, match=r"runs eager, see step\.explain_guards\(\)"):
        lowtide.explain(step)


def test_step_functions_are_captured() -> None:
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    batch = torch.randn(4, 8)
    needed = {"model": model, "optimizer": optimizer, "example": (batch,)}
    graph = lowtide.capture(train_step, **needed)
    assert str(lowtide.explain(train_step, **needed)) == str(lowtide.explain(graph))
    needed["example"] = batch
    assert lowtide.capture(train_step, **needed).fingerprint == graph.fingerprint, "one argument needs no tuple"
    # What else people pass, and what they are told.
    compiled = lowtide.compile(train_step, model=model, optimizer=optimizer)
    capturing = r"lowtide\.explain\(train_step, model=model, optimizer=optimizer, example=\(batch,\)\)"
    for wrong, options, said in [
        ((train_step,), {}, f"got the function train_step; a step function is captured: {capturing}"),
        ((train_step,), {"model": model}, capturing),
        ((model,), {}, f"got the module Linear; .*{capturing}"),
        ((lambda x: x,), {}, f"got the function <lambda>; .*{capturing}"),
        (("step.json",), {}, r"for a file: lowtide\.explain\(lowtide\.Graph\.load\('step\.json'\)\)"),
        ((None,), {}, "expected a graph or a compiled step, got NoneType"),
        ((graph, 3), {}, r"plan: expected a lowtide\.Plan, got int"),
        ((graph,), {"model": model}, "model: only for a step function"),
        ((compiled,), {"example": batch}, "example: only for a step function"),
        ((train_step, lowtide.plan(graph)), needed, "a plan belongs to a graph"),
    ]:
        with pytest.raises(TypeError, match=said):
            lowtide.explain(*wrong, **options)


def test_numbers_that_make_no_sense() -> None:
    builder = _core.GraphBuilder()
    builder.buffer(64, resident=True, initial=True, role="parameter", name="weight")
    graph = builder.build()
    for options in [{"top": -1}, {"top": 1.5}, {"top": True}, {"link": 0}, {"link": 16e9}]:
        with pytest.raises(ValueError, match=f"{next(iter(options))}: expected"):
            lowtide.explain(graph, **options)
    for link in ["0GB/s", "16GB", "fast"]:
        with pytest.raises(ValueError, match=f"link: E502: '{link}' is not an amount: a rate is "):
            lowtide.explain(graph, link=link)
    assert lowtide.explain(graph, link="16GB/s").to_dict()["swap_bytes_per_second"] == 16_000_000_000
