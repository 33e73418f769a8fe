"""What cannot be planned still trains, with the same numbers: by an eager update, or eager altogether."""

import warnings
from pathlib import Path

import pytest
import torch

from step_models import pair, plain_step, run_both, same, small_batches


class GlobalNorm(torch.optim.Optimizer):
    """Couples all parameters: no rule for one of them alone."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure=None):
        parameters = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.stack([p.grad.norm() for p in parameters]).norm()
        for p in parameters:
            p.sub_(p.grad / (norm + 1), alpha=0.01)


class Noisy(torch.optim.Optimizer):
    """Draws random numbers in its step."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(p.grad + 0.01 * torch.randn_like(p), alpha=group["lr"])


@pytest.mark.parametrize("zero_last", [True, False])
@pytest.mark.parametrize("optimizer", [GlobalNorm, Noisy, lambda p: torch.optim.Adafactor(p)])
def test_an_inexpressible_update_is_made_eagerly(optimizer, zero_last):
    def make(model, opt):
        def step(batch):
            if not zero_last:
                opt.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(batch["x"]), batch["y"])
            loss.backward()
            opt.step()
            if zero_last:
                opt.zero_grad()
            return loss.detach()

        return step

    eager, planned = pair("cnn", optimizer, make)
    for index, batch in enumerate(small_batches("cnn", 6)):
        assert same(*run_both(eager, planned, index, batch))
    assert same(eager.state(), planned.state())
    assert planned.step.stats()["eager_calls"] == 0
    assert "optimizer.step() runs eagerly" in planned.step.explain_guards()


class ByShape(torch.optim.Optimizer):
    """Its numbers depend on the parameter's shape: what a one-element twin passes is not what a parameter needs."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.01, "calls": 0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["calls"] += 1
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["average"] = torch.zeros_like(p)
                state["average"].lerp_(p.grad, 0.1)
                p.sub_(state["average"], alpha=group["lr"] / p.numel() ** 0.5 / group["calls"])


@pytest.mark.parametrize("model", ["mlp", "cnn", "gpt2"])
def test_a_rule_without_a_template_is_called_in_the_program_parameter_by_parameter(model):
    eager, planned = pair(model, ByShape, keep_grads=False)
    for index, batch in enumerate(small_batches(model, 6)):
        assert same(*run_both(eager, planned, index, batch))
    for part in ("model", "optimizer"):
        assert same(eager.state()[part], planned.state()[part])
    assert planned.step.stats()["eager_calls"] == 0
    assert planned.step.stats()["escapes"] == []
    explained = planned.step.explain_guards()
    assert "is updated by the rule itself: ByShape" in explained
    names = [planned.step.graph.op_name(op) for op in range(planned.step.graph.num_ops)]
    assert names.count("lowtide.opaque_update.default") == len(list(planned.model.parameters()))


def test_a_module_that_reads_a_value_runs_eager_with_one_warning_that_names_the_line():
    class Looks(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x.sum().item() > 0 else x  # the planted line

    def make(model, opt):
        model.append(Looks())
        return plain_step(model, opt)

    eager, planned = pair("mlp", "adam", make, on_unsupported="eager")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for index, batch in enumerate(small_batches("mlp", 3)):
            assert same(*run_both(eager, planned, index, batch))
    assert same(eager.state(), planned.state())
    messages = [str(w.message) for w in caught if "lowtide" in str(w.message)]
    assert len(messages) == 1
    assert ".item()" in messages[0]
    lines = Path(__file__).read_text().splitlines()
    planted = next(number for number, line in enumerate(lines, 1) if "the planted" + " line" in line)
    assert f"test_fallbacks.py:{planted}" in messages[0]


def test_raise_on_request():
    import lowtide

    class Looks(torch.nn.Module):
        def forward(self, x):
            return x.sum().item()

    def make(model, opt):
        model.append(Looks())
        return lambda batch: model(batch["x"])

    _, planned = pair("mlp", "adam", make)
    with pytest.raises(lowtide.CaptureError, match=r"\.item\(\)"):
        planned.step(next(small_batches("mlp", 1)))


def test_a_capture_that_fails_leaves_everything_as_it_was():
    class Fails(torch.nn.Module):
        def forward(self, x):
            self.seen = x
            raise ValueError("planted")

    def make(model, opt):
        last = Fails()
        model.append(last)

        def step(batch):
            opt.zero_grad()
            loss = torch.nn.functional.cross_entropy(model[:-1](batch["x"]), batch["y"])
            loss.backward()
            last(loss)

        return step

    _, planned = pair("cnn", "adam", make)
    model, optimizer = planned.model, planned.optimizer
    before = {key: value.clone() for key, value in model.state_dict().items()}
    attributes = [dict(module.__dict__) for module in model.modules()]
    identities = [id(tensor) for tensor in model.state_dict(keep_vars=True).values()]
    versions = [tensor._version for tensor in model.state_dict(keep_vars=True).values()]
    batch = next(small_batches("cnn", 1))
    random_state = torch.get_rng_state()
    own_step = optimizer.__dict__.get("step")
    import lowtide

    with pytest.raises(lowtide.CaptureError, match=r"ValueError: planted .*test_fallbacks\.py"):
        planned.step(batch)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert same(before, dict(model.state_dict()))
    assert [dict(module.__dict__) for module in model.modules()] == attributes
    assert [id(tensor) for tensor in model.state_dict(keep_vars=True).values()] == identities
    assert [tensor._version for tensor in model.state_dict(keep_vars=True).values()] == versions
    assert optimizer.__dict__.get("step") is own_step
    assert not optimizer.state
    assert all(p.grad is None for p in model.parameters())


def test_numbers_from_python_are_drawn_at_each_call():
    import random

    def make(model, opt):
        def step(batch):
            return (model(batch["x"]) * random.random()).sum().detach()

        return step

    eager, planned = pair("mlp", "adam", make)
    for index, batch in enumerate(small_batches("mlp", 3)):
        random.seed(index)
        torch.manual_seed(index)
        expected = eager.step(batch)
        random.seed(index)
        torch.manual_seed(index)
        assert same(expected, planned.step(batch))
