"""Whatever people put their batches and results in: the same numbers come back, in the same classes."""

from __future__ import annotations

import collections
import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import lowtide
from both_ways import Run, equal_both_ways
from step_models import same

STEPS = 5


@dataclass
class Batch:
    x: torch.Tensor
    y: torch.Tensor
    weight: float = 1.0
    extra: Any = None


@dataclass(frozen=True, slots=True)
class FrozenBatch:
    x: torch.Tensor
    y: torch.Tensor


@dataclass
class RegisteredBatch:
    x: torch.Tensor
    y: torch.Tensor


torch.export.register_dataclass(RegisteredBatch)


class PairOfTensors(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


class PlainBatch:
    """With a method and a mask made from what it holds, as in many a tutorial."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.x, self.y = x, y
        self.mask = (y > 2).unsqueeze(-1)

    def masked(self) -> torch.Tensor:
        return self.x * self.mask


class AttributeDict(dict):
    __getattr__ = dict.__getitem__


@dataclass
class Result:
    loss: torch.Tensor
    parts: dict[str, Any] = field(default_factory=dict)
    note: str = ""


def check(
    forward: Callable[[nn.Module, Any], torch.Tensor],
    batch_of: Callable[[torch.Tensor, torch.Tensor], Any],
    finish: Callable[..., Any] = lambda loss, logits, batch: loss,
    read: Callable[[Any], Any] = lambda result: result,
) -> list[Any]:
    """Trains two copies, eager and compiled; `read` takes apart what the step gives. Gives the planned results."""

    def make(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[Any], Any]:
        def step(batch: Any) -> Any:
            optimizer.zero_grad()
            loss, logits = forward(model, batch)
            loss.backward()
            optimizer.step()
            return finish(loss.detach(), logits.detach(), batch)

        return step

    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))]
    models.append(copy.deepcopy(models[0]))
    optimizers = [torch.optim.Adam(model.parameters()) for model in models]
    steps = [make(*one) for one in zip(models, optimizers, strict=True)]
    steps[1] = lowtide.compile(steps[1], model=models[1], optimizer=optimizers[1], on_unsupported="raise")
    results = []
    for index in range(STEPS):
        torch.manual_seed(index)
        x, y = torch.randn(6, 8), torch.randint(4, (6,))
        seen = []
        for step in steps:
            batch = batch_of(x.clone(), y.clone())
            torch.manual_seed(index)
            result = step(batch)
            seen.append((read(result), batch, type(result)))
        assert same(seen[0][0], seen[1][0])
        assert seen[0][2] is seen[1][2]
        results.append(seen[1])
    assert same(dict(models[0].state_dict()), dict(models[1].state_dict()))
    stats = steps[1].stats()
    assert (stats["captures"], stats["calls"], stats["misses"]) == (1, STEPS, 0)
    return results


def classify(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    logits = model(x)
    return nn.functional.cross_entropy(logits, y), logits


BATCHES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "tuple": (lambda m, b: classify(m, b[0], b[1]), lambda x, y: (x, y)),
    "list": (lambda m, b: classify(m, b[0], b[1]), lambda x, y: [x, y]),
    "dict": (lambda m, b: classify(m, b["x"], b["y"]), lambda x, y: {"x": x, "y": y}),
    "nested": (
        lambda m, b: classify(m, b["inputs"][0]["x"], b["target"].y),
        lambda x, y: {"inputs": ({"x": x}, None, "train"), "target": SimpleNamespace(y=y)},
    ),
    "named tuple": (lambda m, b: classify(m, b.x, b.y), PairOfTensors),
    "dataclass": (lambda m, b: classify(m, b.x * b.weight, b.y), lambda x, y: Batch(x, y, 0.5, {"id": [1, 2]})),
    "frozen dataclass with slots": (lambda m, b: classify(m, b.x, b.y), FrozenBatch),
    "registered dataclass": (lambda m, b: classify(m, b.x, b.y), RegisteredBatch),
    "plain class": (lambda m, b: classify(m, b.masked(), b.y), PlainBatch),
    "batch encoding": (
        lambda m, b: classify(m, b["x"], b.y),
        lambda x, y: transformers.BatchEncoding({"x": x, "y": y}),
    ),
    "batch encoding moved": (
        lambda m, b: classify(m, **b.to("cpu")),
        lambda x, y: transformers.BatchEncoding({"x": x, "y": y}),
    ),
    "ordered dict": (
        lambda m, b: classify(m, **b),
        lambda x, y: collections.OrderedDict([("y", y), ("x", x)]),
    ),
    "class derived from dict": (lambda m, b: classify(m, b.x, b["y"]), lambda x, y: AttributeDict(x=x, y=y)),
}


@pytest.mark.parametrize("name", BATCHES)
def test_batches(name: str) -> None:
    check(*BATCHES[name])


RESULTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "none": (lambda loss, logits, batch: None, lambda r: r),
    "dict": (lambda loss, logits, batch: {"loss": loss, "n": 3, "lr": 0.5, "none": None}, lambda r: r),
    "dataclass": (
        lambda loss, logits, batch: Result(loss, {"logits": logits, "argmax": logits.argmax(-1)}, "train"),
        lambda r: [r.loss, r.parts, r.note],
    ),
    "plain object": (lambda loss, logits, batch: SimpleNamespace(a=loss, b=[logits]), lambda r: [r.a, r.b]),
    "model output": (
        lambda loss, logits, batch: transformers.modeling_outputs.MaskedLMOutput(loss=loss, logits=logits),
        lambda r: [r.loss, r.logits, r["loss"], r[0], list(r.keys()), r.to_tuple()],
    ),
    "batch encoding": (
        lambda loss, logits, batch: transformers.BatchEncoding({"logits": logits, "loss": loss}),
        lambda r: [r.logits, r["loss"], list(r)],
    ),
    "named tuple": (lambda loss, logits, batch: PairOfTensors(loss, logits), lambda r: [r.x, r.y]),
    "numbers": (lambda loss, logits, batch: (loss, 1, 2.5, True, "text", None), lambda r: r),
    "distribution": (
        lambda loss, logits, batch: torch.distributions.Normal(
            logits.mean(0), logits.exp().sum(0), validate_args=False
        ),
        lambda r: [r.loc, r.scale],
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results(name: str) -> None:
    finish, read = RESULTS[name]
    check(*BATCHES["dict"], finish, read)


def test_a_result_is_a_new_object_at_each_call() -> None:
    results = check(*BATCHES["dict"], *RESULTS["dataclass"])
    assert len({id(parts[1]) for parts, _, _ in results}) == STEPS


def test_an_argument_that_is_returned_is_itself() -> None:
    results = check(*BATCHES["dict"], lambda loss, logits, batch: (loss, batch["x"], batch), lambda r: r)
    for (_, x, handed_back), batch, _ in results:
        assert x is batch["x"] and handed_back["x"] is batch["x"]


def test_what_the_step_changes_in_its_argument_is_changed() -> None:
    def forward(model: nn.Module, batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        batch["x"] = batch["x"] / 2  # the caller sees this
        y = batch.pop("y")
        batch["history"].append(y)
        batch["plain"].scaled = batch["x"] * 3
        return classify(model, batch["x"], y)

    def batch_of(x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        return {"x": x, "y": y, "history": [], "plain": SimpleNamespace(kept=1)}

    results = check(forward, batch_of, lambda loss, logits, batch: (loss, batch["x"]), lambda r: r)
    for (_, x), batch, _ in results:
        assert list(batch) == ["x", "history", "plain"]
        assert torch.equal(batch["x"], x)
        assert len(batch["history"]) == 1 and batch["history"][0].dtype is torch.int64
        assert torch.equal(batch["plain"].scaled, x * 3) and batch["plain"].kept == 1


def test_model_and_optimizer_as_arguments() -> None:
    torch.manual_seed(0)
    models = [nn.Linear(8, 4)]
    models.append(copy.deepcopy(models[0]))
    optimizers = [torch.optim.Adam(model.parameters()) for model in models]

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, torch.Tensor]) -> Any:
        optimizer.zero_grad()
        loss, _ = classify(model, *batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = lowtide.compile(step, model=models[1], optimizer=optimizers[1], on_unsupported="raise")
    for _ in range(STEPS):
        batch = torch.randn(6, 8), torch.randint(4, (6,))
        assert same(step(models[0], optimizers[0], batch), compiled(models[1], optimizers[1], batch))
    assert same(dict(models[0].state_dict()), dict(models[1].state_dict()))
    assert compiled.stats()["captures"] == 1


def test_what_a_step_only_hands_on_may_be_anything() -> None:
    def batch_of(x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        return {"x": x, "y": y, "picture": np.ones(3), "open": object()}

    results = check(BATCHES["dict"][0], batch_of, lambda loss, logits, batch: (loss, batch["picture"]), lambda r: r[:1])
    assert len(results) == STEPS


@pytest.mark.parametrize(
    "use",
    [lambda a: a.sum(), lambda a: a + 1, lambda a: len(a), lambda a: bool(a.any()), lambda a: a[0], lambda a: a == 1,
     lambda a: isinstance(a, str), lambda a: f"{a}"],
)  # fmt: skip
def test_an_object_that_can_change_is_used_as_it_is_at_each_call(use: Callable[[Any], Any]) -> None:
    def scenario(run: Run) -> None:
        model = nn.Linear(2, 2)
        seen = []

        def forward(batch: dict[str, Any]) -> torch.Tensor:
            seen.append(use(batch["ids"]))
            return model(batch["x"])

        step = run.wrap(forward, model)
        ids = np.ones(3)
        with torch.no_grad():
            for call in range(3):
                ids[0] = call
                run.note(step({"x": torch.randn(1, 2), "ids": ids}))
        run.note([repr(one) for one in seen])

    run = equal_both_ways(scenario)
    assert (run.planned, run.eager, run.said) == (3, 0, []), run.why


def test_an_object_that_can_change_decides_what_is_computed() -> None:
    def scenario(run: Run) -> None:
        model = nn.Linear(2, 2)
        step = run.wrap(lambda batch: model(batch["x"]) * float(batch["ids"].sum()), model)
        ids = np.ones(3)
        with torch.no_grad():
            for call in (0, 1, 0, 1):
                ids[0] = call
                run.note(step({"x": torch.randn(1, 2), "ids": ids}))

    run = equal_both_ways(scenario)
    assert (run.planned, run.eager, run.said) == (4, 0, []), run.why


def test_an_object_made_in_python_is_made_at_each_call() -> None:
    model = nn.Linear(2, 2)
    step = lowtide.compile(lambda x: (model(x), np.ones(2)), model=model, on_unsupported="raise")
    with torch.no_grad():
        (_, first), (out, second) = step(torch.ones(1, 2)), step(torch.ones(1, 2))
        assert torch.equal(out, model(torch.ones(1, 2)))
    assert first is not second and second.tolist() == [1.0, 1.0]


def test_transformers_with_cache_give_their_own_output() -> None:
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=50, bos_token_id=0, eos_token_id=0)
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config).eval()
    run = lowtide.compile(lambda batch: model(**batch), model=model, on_unsupported="raise")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            ids = torch.randint(50, (2, 7))
            batch = transformers.BatchEncoding({"input_ids": ids, "labels": ids})
            expected, got = model(**batch), run(batch)
            assert type(got) is type(expected) and list(got) == list(expected)
            assert same(expected.loss, got.loss) and same(expected.logits, got.logits)
            assert type(got.past_key_values) is type(expected.past_key_values)
            for a, b in zip(expected.past_key_values.layers, got.past_key_values.layers, strict=True):
                assert same(a.keys, b.keys) and same(a.values, b.values)
            longer = model(input_ids=ids[:, :1], past_key_values=got.past_key_values)  # and it can be used
            assert longer.logits.shape == (2, 1, 50)
    assert run.stats()["captures"] == 1
