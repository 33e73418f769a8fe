"""What other threads train while a compiled step runs goes on as ever."""

import copy
import queue
import random
import threading
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import lowtide
from step_models import same


def _sgd_step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        self.use_reentrant = use_reentrant

    def forward(self, x):
        return checkpoint(self.inner, x.requires_grad_(), use_reentrant=self.use_reentrant)


def _train(model):
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return [_sgd_step(model, optimizer, torch.ones(4, 4)) for _ in range(2)]


MODELS = {
    "plain": lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()),
    "checkpoint": lambda: Checkpointed(use_reentrant=False),
    "reentrant checkpoint": lambda: Checkpointed(use_reentrant=True),
}


@pytest.mark.parametrize("kind", MODELS)
def test_eager_training_goes_on_beside_a_step(kind):
    torch.manual_seed(0)
    other = MODELS[kind]()
    expected = _train(copy.deepcopy(other))
    found = queue.SimpleQueue()

    def elsewhere():
        try:
            found.put(_train(other))
        except Exception as error:
            found.put(error)

    def function(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()  # deferred, while the other thread trains
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        loss.backward()
        optimizer.step()
        return loss.detach()

    model = nn.Linear(4, 4)
    twin = copy.deepcopy(model)
    optimizer, twin_optimizer = (torch.optim.SGD(one.parameters(), 0.1) for one in (model, twin))
    step = lowtide.compile(function, model=model, optimizer=optimizer)
    initial = copy.deepcopy(other.state_dict())
    for _ in range(3):  # recorded, and then followed
        other.load_state_dict(initial)
        assert same(step(torch.ones(2, 4)), _sgd_step(twin, twin_optimizer, torch.ones(2, 4)))
        outcome = found.get()
        if isinstance(outcome, Exception):
            raise outcome
        assert same(expected, outcome)
    assert same(dict(model.state_dict()), dict(twin.state_dict()))
    assert (step.stats()["calls"], step.stats()["eager_calls"]) == (3, 0), step.explain_guards()


def test_a_module_that_another_thread_is_in_ends_there_as_ever():
    entered, captured, outcome = threading.Event(), threading.Event(), queue.SimpleQueue()

    class Long(nn.Module):
        def forward(self, x):
            entered.set()
            captured.wait(60)
            return x

    def elsewhere():
        try:
            outcome.put(module(torch.ones(1)))
        except Exception as error:
            outcome.put(error)

    module = Long()
    module.register_forward_hook(lambda *_: None)  # with which PyTorch looks for hooks of all modules too
    thread = threading.Thread(target=elsewhere)
    thread.start()
    entered.wait(60)
    model = nn.Linear(4, 4)

    def function(x):
        captured.set()
        thread.join()
        return model(x)

    step = lowtide.compile(function, model=model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step(torch.ones(2, 4))
    assert isinstance(outcome.get(), torch.Tensor)


DRAWS = {"torch": lambda: torch.rand(1), "random": random.random, "numpy": np.random.rand}


@pytest.mark.parametrize("kind", DRAWS)
def test_a_number_drawn_elsewhere_is_not_the_steps(kind):
    model = nn.Linear(4, 4)
    wanted, drawn, done = queue.SimpleQueue(), queue.SimpleQueue(), threading.Event()

    def elsewhere():
        wanted.get()
        DRAWS[kind]()
        drawn.put(None)
        done.wait(60)

    thread = threading.Thread(target=elsewhere)
    thread.start()

    def function(x):
        if drawn.empty():
            wanted.put(None)
            drawn.put(drawn.get())
        return model(x).detach()

    step = lowtide.compile(function, model=model, on_unsupported="raise")
    try:
        assert same(step(torch.ones(2, 4)), model(torch.ones(2, 4)).detach())
    finally:
        done.set()
        thread.join()
    assert step.stats()["captures"] == step.stats()["calls"] == 1
