"""`explain_guards()`: a user reads there what each capture holds for, and why no other one was used."""

from __future__ import annotations

import doctest
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from step_models import same


def test_the_example_of_its_docstring():
    (example,) = doctest.DocTestFinder().find(
        lowtide.CompiledStep.explain_guards, "explain_guards", globs={"torch": torch, "lowtide": lowtide}
    )
    assert doctest.DocTestRunner().run(example).failed == 0


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.dropout = nn.Dropout(0.1)
        self.second = nn.Linear(16, 4)
        self.scale = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.dropout(self.first(x))) * self.scale


class World:
    """A model, its optimizer and a step that depends on many things."""

    def __init__(self) -> None:
        self.model = Net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.smoothing = 0.0
        model, optimizer, world = self.model, self.optimizer, self

        def train_step(batch: dict[str, torch.Tensor], power: int = 2) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(batch["x"]).pow(power).sum() + world.smoothing
            loss.backward()
            optimizer.step()
            return loss.detach()

        self.step = lowtide.compile(train_step, model=model, optimizer=optimizer, on_unsupported="raise")

    def call(self, rows: int = 6, **more: Any) -> None:
        self.step({"x": torch.ones(rows, 8)}, **more)


def set_eval(world: World) -> None:
    world.model.dropout.eval()
    world.call()


def use_bfloat16(world: World) -> None:
    with torch.autocast("cpu"):
        world.call()


def transpose(world: World) -> None:
    world.step({"x": torch.ones(8, 6).t()})


def freeze(world: World) -> None:
    world.model.first.bias.requires_grad_(False)
    world.call()


def change_variable(world: World) -> None:
    world.smoothing = 0.5
    world.call()


def change_attribute(world: World) -> None:
    world.model.scale = 2.0
    world.call()


def split_groups(world: World) -> None:
    parameters = world.optimizer.param_groups[0]["params"]
    last = parameters.pop()
    world.optimizer.add_param_group({"params": [last], "lr": 0.2})
    world.call()


MISSES: dict[Any, str] = {
    lambda world: world.call(7): "Net is called with float32[6, 8] -> float32[7, 8]",
    lambda world: world.call(power=3): "pow is called with 2 -> 3",
    transpose: "Net is called with float32[6, 8] -> float32[6, 8] with strides [1, 6]",
    use_bfloat16: "autocast",
    set_eval: "`self.training` of dropout: True -> False",
    freeze: "`self._parameters['bias'].requires_grad` of first: True -> False",
    change_variable: "add is called with 0.0 -> 0.5",
    change_attribute: "`self.scale` of the model: 1.0 -> 2.0",
    split_groups: "parameter groups",
}


@pytest.mark.parametrize("miss", MISSES)
def test_what_was_different_is_named_with_old_and_new_value(miss):
    world = World()
    assert world.step.explain_guards() == "0 captures, 0 planned calls"
    world.call()
    assert world.step.explain_guards().splitlines() == [
        "1 capture, 1 planned call",
        "capture 1: first call",
        "    tensors: float32[6, 8]",
        "    calls: Net, pow, sum, add, backward, SGD.step, detach",
        "    served 1 call",
    ]
    miss(world)
    lines = world.step.explain_guards().splitlines()
    assert lines[0].startswith("2 captures, 2 planned calls; last miss: ") and MISSES[miss] in lines[0]
    (second,) = [line for line in lines if line.startswith("capture 2: ")]
    assert MISSES[miss] in second


def test_an_argument_that_no_tensor_work_uses_makes_no_capture():
    world = World()
    world.call()
    world.step({"x": torch.ones(6, 8), "y": torch.ones(3)})
    assert world.step.explain_guards().startswith("1 capture, 2 planned calls\n")


def test_what_a_module_sees_is_named_in_every_miss():
    world = World()
    world.call()
    world.call(7, power=3)
    world.model.scale = 2.0
    world.call()
    (third,) = [line for line in world.step.explain_guards().splitlines() if line.startswith("capture 3: ")]
    assert "`self.scale` of the model: 1.0 -> 2.0" in third


def test_hits_are_counted_for_each_capture():
    world = World()
    for rows in (6, 7, 6, 6):
        world.call(rows)
    explained = world.step.explain_guards()
    assert explained.count("served 3 calls") == 1 and explained.count("served 1 call") == 1


def test_a_step_whose_calls_are_mostly_different_says_why_it_gave_up():
    world = World()
    step = lowtide.compile(world.step._function, model=world.model, optimizer=world.optimizer)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for rows in range(2, 30):
            step({"x": torch.ones(rows, 8)})
    assert len([warning for warning in caught if "lowtide:" in str(warning.message)]) == 1
    stats = step.stats()
    assert (stats["captures"], stats["calls"], stats["eager_calls"]) == (8, 8, 20)
    last = step.explain_guards().splitlines()[-1]
    assert last.startswith("runs eager: most calls are different: Net is called with float32[9, 8] -> float32[")


def test_another_layout_of_a_parameter_is_named():
    world, twin = World(), World()
    twin.model.load_state_dict(world.model.state_dict())
    batch = {"x": torch.randn(6, 8)}
    for one in (world, twin):
        one.model.eval()
    for _ in range(2):
        assert torch.equal(world.step(batch), twin.step._function(batch))
        assert same(dict(world.model.state_dict()), dict(twin.model.state_dict()))
        for one in (world, twin):
            one.model.first.weight.data = torch.ones(8, 16).t()
    assert "first.weight" in world.step.explain_guards().splitlines()[0]
