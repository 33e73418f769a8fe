"""Copies, checkpoints and pickles of what a compiled step works on, and of the step itself."""

from __future__ import annotations

import copy
import io
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from step_models import same


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))


def trainer(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def compiled(model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    return lowtide.compile(trainer(model, optimizer), model=model, optimizer=optimizer, on_unsupported="raise")


def through_file(thing: Any) -> Any:
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def batch(index: int) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(index)
    return torch.randn(6, 8, generator=source), torch.randint(0, 4, (6,), generator=source)


def train(step: Callable[..., Any], indices: range) -> list[torch.Tensor]:
    torch.manual_seed(7 + indices.start)
    return [step(*batch(index)) for index in indices]


def reference(steps: int) -> tuple[list[torch.Tensor], nn.Module, torch.optim.Optimizer]:
    """Eager: three steps, and the rest."""
    model = mlp()
    optimizer = adam(model)
    step = trainer(model, optimizer)
    return train(step, range(3)) + train(step, range(3, steps)), model, optimizer


def overwrite_arena() -> None:
    """Other steps run in the same arena: whatever still lay there would be changed."""
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
    optimizer = torch.optim.AdamW(model.parameters())

    @lowtide.compile(model=model, optimizer=optimizer, on_unsupported="raise")
    def step(x):
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    for _ in range(2):
        step(torch.full((64, 64), 3.0))


def by_deepcopy(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
    return copy.deepcopy((model, optimizer))


def by_pickle(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
    return pickle.loads(pickle.dumps((model, optimizer)))


def by_saving_whole(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
    return through_file((model, optimizer))


def by_state_dicts(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
    weights, state = through_file((model.state_dict(), optimizer.state_dict()))
    fresh = mlp()
    fresh.load_state_dict(weights)
    fresh_optimizer = adam(fresh)
    fresh_optimizer.load_state_dict(state)
    return fresh, fresh_optimizer


WAYS = [by_deepcopy, by_pickle, by_saving_whole, by_state_dicts]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("steps", [0, 3])
def test_a_copy_goes_on_like_the_original(way, steps):
    """Copies are made before the first and after the third step; they go on eager and compiled."""
    model = mlp()
    optimizer = adam(model)
    step = compiled(model, optimizer)
    losses = train(step, range(steps))
    copies = [way(model, optimizer), way(model, optimizer)]
    taken = copy.deepcopy([(dict(m.state_dict()), o.state_dict()) for m, o in copies])
    overwrite_arena()
    train(step, range(20, 22))
    assert same(taken, [(dict(m.state_dict()), o.state_dict()) for m, o in copies])

    for (copied, copied_optimizer), make in zip(copies, (trainer, compiled), strict=True):
        other = make(copied, copied_optimizer)
        parts = [range(0, 3), range(3, 6)] if steps == 0 else [range(3, 6)]
        went_on = losses + [loss for part in parts for loss in train(other, part)]
        expected, expected_model, expected_optimizer = reference(6)
        assert same(went_on, expected)
        assert same(dict(copied.state_dict()), dict(expected_model.state_dict()))
        assert same(copied_optimizer.state_dict(), expected_optimizer.state_dict())
        assert same([p.grad for p in copied.parameters()], [p.grad for p in expected_model.parameters()])


def test_a_checkpoint_is_loaded_back_into_the_compiled_one():
    model = mlp()
    optimizer = adam(model)
    step = compiled(model, optimizer)
    first = train(step, range(3))
    saved = through_file((model.state_dict(), optimizer.state_dict()))
    train(step, range(10, 15))
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    second = train(step, range(3, 6))
    expected, expected_model, expected_optimizer = reference(6)
    assert same(first + second, expected)
    assert same(dict(model.state_dict()), dict(expected_model.state_dict()))
    assert same(optimizer.state_dict(), expected_optimizer.state_dict())
    assert step.stats()["captures"] == 1


def test_load_state_dict_that_assigns_is_followed():
    model = mlp()
    optimizer = adam(model)
    step = compiled(model, optimizer)
    first = train(step, range(3))
    saved = through_file(model.state_dict())
    model.load_state_dict(saved, assign=True)
    assert model[0].weight.data_ptr() == saved["0.weight"].data_ptr()
    optimizer.param_groups[0]["params"] = list(model.parameters())
    state = [optimizer.state.pop(parameter) for parameter in list(optimizer.state)]
    optimizer.state.update(zip(model.parameters(), state, strict=True))
    second = train(step, range(3, 6))
    assert same(first + second, reference(6)[0])


# -- the step itself ---------------------------------------------------------------------------------------------------


class Trainer:
    """The step is a method, and the trainer keeps it compiled."""

    def __init__(self) -> None:
        self.step: Any = None
        self.model = mlp()
        self.optimizer = adam(self.model)
        self.step = lowtide.compile(
            self.train, model=self.model, optimizer=self.optimizer, memory_budget="1GiB", on_unsupported="raise"
        )

    def train(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class OwnTrainer(nn.Sequential):
    """A model that trains itself, as is common too."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))
        self.optimizer = adam(self)
        self.step = lowtide.compile(self.train_on, model=self, optimizer=self.optimizer, on_unsupported="raise")

    def train_on(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


@pytest.mark.parametrize("kind", [Trainer, OwnTrainer])
@pytest.mark.parametrize("way", [copy.deepcopy, through_file, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_trainer_is_copied_with_its_step(kind, way):
    one = kind()
    losses = train(one.step, range(3))
    other = way(one)
    assert other.step is not one.step and other.step._model is not one.step._model
    assert other.step._options == one.step._options
    train(one.step, range(10, 12))  # does not touch the copy
    assert same(losses + train(other.step, range(3, 6)), reference(6)[0])
    assert other.step.stats()["calls"] == 3


def test_the_step_of_a_trainer_is_copied_with_the_trainer():
    one = Trainer()
    losses = train(one.step, range(3))
    step = copy.deepcopy(one.step)
    owner = step._function.__self__
    assert owner is not one and owner.step is step and owner.model is step._model
    assert same(losses + train(step, range(3, 6)), reference(6)[0])


def test_a_function_is_its_own_deep_copy_and_so_is_its_compiled_step():
    """So a model that holds its step can be copied, as it could with the function: by AveragedModel for instance."""
    model = mlp()
    optimizer = adam(model)
    model.step = compiled(model, optimizer)
    train(model.step, range(2))
    averaged = torch.optim.swa_utils.AveragedModel(model)
    assert averaged.module.step is model.step
    again = copy.copy(model.step)
    assert again is not model.step
    model.step.close()
    train(again, range(2, 4))
    assert again.stats()["calls"] == 2


def test_pickling_a_step_that_closes_over_its_model_is_refused_by_name():
    step = compiled(mlp(), adam(mlp()))
    with pytest.raises(pickle.PicklingError, match=r"trainer.<locals>.step.*save model.state_dict\(\) and optimizer"):
        pickle.dumps(step)
    with pytest.raises(pickle.PicklingError, match="again where they are loaded"):
        torch.save({"step": step}, io.BytesIO())


def test_a_decorated_function_of_a_module_is_pickled_by_name(monkeypatch):
    module = types.ModuleType("training_script")
    monkeypatch.setitem(sys.modules, "training_script", module)
    source = """
import torch, lowtide
model = torch.nn.Linear(4, 4)
@lowtide.compile(model=model, on_unsupported="raise")
def run(x):
    return model(x).detach()
"""
    exec(compile(source, "training_script.py", "exec"), module.__dict__)
    assert pickle.loads(pickle.dumps(module.run)) is module.run
    assert repr(module.run) == "<lowtide.CompiledStep of run>"
