"""`explain_guards()`: a user reads there what each capture holds for, and which guard failed with old and new value."""

from __future__ import annotations

import doctest
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from lowtide.compiling import MAX_CAPTURES


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


def add_leaf(world: World) -> None:
    world.step({"x": torch.ones(6, 8), "y": torch.ones(3)})


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
    lambda world: world.call(7): "argument batch['x']: float32[6, 8] -> float32[7, 8]",
    lambda world: world.call(power=3): "arguments (batch['x']) -> (batch['x'], power)",
    transpose: "argument batch['x']: float32[6, 8] -> float32[6, 8] with strides [1, 6]",
    add_leaf: "arguments (batch['x']) -> (batch['x'], batch['y'])",
    use_bfloat16: "autocast: False -> True",
    set_eval: "`self.training` of dropout: True -> False",
    freeze: "`self._parameters['bias'].requires_grad` of first: True -> False",
    change_variable: "smoothing`: 0.0 -> 0.5",
    change_attribute: "`self.scale` of the model: 1.0 -> 2.0",
    split_groups: "parameter groups: [4] -> [3, 1]",
}


@pytest.mark.parametrize("miss", MISSES)
def test_the_guard_that_failed_is_named_with_old_and_new_value(miss):
    world = World()
    assert world.step.explain_guards() == "0 captures of at most 8, 0 planned calls"
    world.call()
    first = world.step.explain_guards().splitlines()
    assert first[:3] == [
        "1 capture of at most 8, 1 planned call",
        "capture 1: first call",
        "    batch['x']: float32[6, 8]",
    ]
    assert "    parameter groups: [4]" in first
    miss(world)
    lines = world.step.explain_guards().splitlines()
    assert lines[0].startswith("2 captures of at most 8, 2 planned calls; last miss: ") and MISSES[miss] in lines[0]
    (second,) = [line for line in lines if line.startswith("capture 2: ")]
    assert MISSES[miss] in second


def test_a_miss_is_told_against_the_nearest_capture():
    world = World()
    world.call()
    world.call(7, power=3)
    world.model.scale = 2.0
    world.call()  # nearest is the first: only the scale is different
    assert "capture 3: `self.scale` of the model: 1.0 -> 2.0\n" in world.step.explain_guards()


def test_hits_are_counted_for_each_capture():
    world = World()
    for rows in (6, 7, 6, 6):
        world.call(rows)
    explained = world.step.explain_guards()
    assert explained.count("served 3 calls") == 1 and explained.count("served 1 call") == 1


def test_a_step_that_gave_up_says_why():
    world = World()
    step = lowtide.compile(world.step._function, model=world.model, optimizer=world.optimizer)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for rows in range(2, MAX_CAPTURES + 4):
            step({"x": torch.ones(rows, 8)})
    assert len(caught) == 1
    assert step.explain_guards().splitlines()[-1] == (
        "runs eager: 8 captures were made and the guards changed again: "
        "argument batch['x']: float32[9, 8] -> float32[10, 8]"
    )


def test_another_shape_of_a_parameter_is_named():
    world = World()
    world.call()
    world.model.first.weight.data = torch.ones(8, 16).t()
    world.call()
    assert "first.weight" in world.step.explain_guards().splitlines()[0]
