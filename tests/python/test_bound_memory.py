"""What a program does with memory that it is bound to: parameters, state, the batch."""

import pytest
import torch
from torch import nn

import lowtide
from step_models import same


def runtime_of(step):
    return step._current.current.program.runtime


def test_a_failed_run_says_whether_it_wrote_what_it_is_bound_to():
    first, second = nn.Embedding(8, 4), nn.Embedding(8, 4)
    model = nn.ModuleList([first, second])
    seen = torch.zeros(4)
    model.register_buffer("seen", seen)

    def function(early, late):
        made = first(early).sum(0)
        seen.add_(made)
        return (second(late).sum(0) + made).sum()

    step = lowtide.compile(function, model=model, on_unsupported="raise")
    good, bad = torch.tensor([1, 2]), torch.tensor([1, 20])
    with torch.no_grad():
        step(good, good.clone())
        assert runtime_of(step).wrote_bound
        for early, late, wrote in ((bad, good, False), (good, bad, True), (bad, good, False)):
            before = seen.clone()
            with pytest.raises(IndexError):
                step(early, late)
            assert runtime_of(step).wrote_bound == wrote
            assert torch.equal(before, seen) == (not wrote)
    step.close()


def train(wrap, meddle):
    """Five steps, with something done to the model in between; its losses, parameters and state in the end."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def function(x):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(function, model, optimizer)
    losses = []
    for index in range(5):
        if index == 2:
            optimizer.zero_grad()
            meddle(model)
        losses.append(step(torch.ones(3, 8)))
    return [losses, model.state_dict(), optimizer.state_dict()]


def swap_one(model):
    torch.utils.swap_tensors(model[0].weight, nn.Parameter(torch.full((16, 8), 0.5)))


def swap_by_loading(model):
    model.load_state_dict({name: torch.full_like(tensor, 0.25) for name, tensor in model.state_dict().items()})


def swap_by_conversion(model):
    model.double().float()


@pytest.mark.parametrize("meddle", [swap_one, swap_by_loading, swap_by_conversion])
def test_tensors_behind_parameters_can_be_swapped(meddle):
    def compiled(function, model, optimizer):
        return lowtide.compile(function, model=model, optimizer=optimizer, on_unsupported="raise")

    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        assert same(train(lambda function, *_: function, meddle), train(compiled, meddle))
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
