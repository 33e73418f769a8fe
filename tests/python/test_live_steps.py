"""Training steps as people write them: their Python runs at every call, and their tensor work is planned."""

import os
import random
import time
import warnings

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

import lowtide
from both_ways import perceptron
from live_cases import Cases, World, check, dropping, normalising

cases = Cases()

# -- what Python keeps -------------------------------------------------------------------------------------------------


@cases.add(setup=lambda w: w.seen.append({"calls": 0, "shapes": set()}))
def counts_its_calls(w, x):
    w.seen[0]["calls"] += 1
    w.seen[0]["shapes"].add(tuple(x.shape))
    return w.train(w.loss(x))


@cases.add()
def appends_numbers(w, x):
    loss = w.loss(x)
    w.train(loss)
    w.seen.append(loss.item())
    return loss.item()


@cases.add(model=normalising)
def reads_three_values_before_backward(w, x):
    out = w.model(x)
    first = out.abs().max().item()
    loss = out.pow(2).mean()
    w.seen.append((first, float(loss), bool(loss > first), f"{loss:.3f}"))
    return w.train(loss)


@cases.add(model=dropping)
def reads_the_loss_between_backward_and_step(w, x):
    w.optimizer.zero_grad()
    loss = w.loss(x)
    loss.backward()
    value = loss.item()
    w.optimizer.step()
    return value


@cases.add()
def keeps_losses_with_their_graphs(w, x):
    loss = w.loss(x)
    w.train(loss)
    w.seen.append(loss)
    return torch.stack(w.seen).mean().detach()


@cases.add()
def keeps_outputs_between_calls(w, x):
    out = w.model(x)
    loss = out.pow(2).mean()
    if w.seen:
        loss = loss + (out - w.seen[-1]).pow(2).mean()
    w.seen.append(out.detach())
    return w.train(loss)


@cases.add()
def logs_every_third_call(w, x):
    loss = w.loss(x)
    w.train(loss)
    if w.calls % 3 == 0:
        w.seen.append(f"{loss:.4f} {loss.detach()!r} {w.model[0].weight.norm():.5f}")


@cases.add()
def reads_clock_environment_and_globals(w, x):
    os.environ["LOWTIDE_TEST_WEIGHT"] = str(1 + w.calls // 4)
    begin = time.perf_counter()
    loss = w.loss(x) * float(os.environ["LOWTIDE_TEST_WEIGHT"]) * WEIGHTS[w.calls % 2]
    w.train(loss)
    assert time.perf_counter() > begin
    return loss.item()


WEIGHTS = [1.0, 0.5]


@cases.add()
def draws_in_python(w, x):
    if random.random() < 0.4:
        x = x * 2
    return w.train(w.loss(x + torch.from_numpy(np.random.randn(12, 8).astype(np.float32))))


@cases.add()
def has_another_weight_at_every_call(w, x):
    return w.train(w.loss(x) * min(1.0, w.calls / 20))


# -- schedules ---------------------------------------------------------------------------------------------------------


@cases.add()
def sets_its_own_rate(w, x):
    for group in w.optimizer.param_groups:
        group["lr"] *= 0.9
    loss = w.train(w.loss(x))
    for group in w.optimizer.param_groups:
        group["weight_decay"] *= 0.5
    return loss


def with_schedule(w: World) -> None:
    w.own.scheduler = lr_scheduler.OneCycleLR(w.optimizer, 0.1, total_steps=100)


@cases.add(setup=with_schedule)
def steps_its_scheduler(w, x):
    loss = w.train(w.loss(x))
    w.own.scheduler.step()
    w.seen.append(w.own.scheduler.get_last_lr())
    return loss


@cases.add(setup=with_schedule)
def does_everything_inside_autocast(w, x):
    with torch.autocast("cpu", torch.bfloat16):
        loss = w.train(w.loss(x))
        w.own.scheduler.step()
    return loss


@cases.add()
def changes_its_rate_while_a_graph_is_open(w, x):
    out, other = w.model(x), w.model[0](x).sum()
    w.train(out.pow(2).mean())
    w.optimizer.param_groups[0]["lr"] *= 0.5
    return other.detach()


@cases.add()
def makes_its_scheduler_inside(w, x):
    if w.calls == 1:
        w.own.scheduler = lr_scheduler.ExponentialLR(w.optimizer, 0.9)
    loss = w.train(w.loss(x))
    w.own.scheduler.step()
    return loss


@cases.add(setup=lambda w: setattr(w.own, "scheduler", lr_scheduler.ReduceLROnPlateau(w.optimizer, patience=1)))
def lowers_its_rate_on_a_plateau(w, x):
    loss = w.loss(x)
    w.train(loss)
    w.own.scheduler.step(loss)


# -- calls that end early ----------------------------------------------------------------------------------------------


@cases.add(model=dropping)
def returns_early(w, x):
    loss = w.loss(x)
    if w.calls in (3, 6):
        return None
    return w.train(loss)


@cases.add(inputs=lambda call: torch.full((12, 8), float("nan") if call == 5 else 1.0))
def skips_a_bad_loss(w, x):
    loss = w.loss(x)
    if torch.isnan(loss):
        w.seen.append(w.calls)
        return None
    return w.train(loss)


@cases.add(model=normalising)
def fails_between_forward_and_backward(w, x):
    loss = w.loss(x)
    if w.calls in (1, 4, 5):
        raise ValueError(f"planted {w.calls}")
    return w.train(loss)


@cases.add(model=normalising)
def fails_between_backward_and_step(w, x):
    loss = w.loss(x)
    loss.backward()  # gradients of a failed call add up with those of the next
    if w.calls in (1, 4, 5):
        raise ValueError(f"planted {w.calls}")
    w.optimizer.step()
    w.optimizer.zero_grad()
    return loss.detach()


@cases.add(model=normalising)
def fails_after_step(w, x):
    w.train(w.loss(x))
    if w.calls in (1, 4, 5):
        raise ValueError(f"planted {w.calls}")


# -- whole trainings ---------------------------------------------------------------------------------------------------


@cases.add(setup=lambda w: w.beside.append(perceptron()))
def averages_weights(w, x):
    loss = w.loss(x)
    w.train(loss)
    with torch.no_grad():
        for average, now in zip(w.beside[0].parameters(), w.model.parameters(), strict=True):
            average.lerp_(now, 0.1)
    return loss.detach()


@cases.add()
def keeps_weights_small(w, x):
    loss = w.loss(x) + sum(p.abs().sum() for p in w.model.parameters()) * 1e-3
    w.train(loss)
    for p in w.model.parameters():
        p.data.clamp_(-0.1, 0.1)


def with_two_optimizers(w: World) -> None:
    halves = (w.model[0], w.model[2])
    w.own.first, w.own.second = (torch.optim.SGD(half.parameters(), 0.1, momentum=0.9) for half in halves)
    w.others += [w.own.first, w.own.second]


@cases.add(setup=with_two_optimizers)
def trains_two_halves_in_turn(w, x):
    made = w.model[0](x)
    w.own.second.zero_grad()
    judged = w.model[2](made.detach()).mean() - w.model[2](torch.ones_like(made)).mean()
    judged.backward()
    w.own.second.step()
    w.own.first.zero_grad()
    fooled = w.model[2](made).mean()
    fooled.backward()
    w.own.first.step()
    return judged.item(), fooled.item()


def with_data(w: World) -> None:
    data = torch.utils.data.TensorDataset(torch.randn(10, 8))
    w.own.loader = torch.utils.data.DataLoader(data, 4, shuffle=True)


@cases.add(setup=with_data, model=dropping)
def trains_an_epoch(w, _x):
    total = 0.0
    for (part,) in w.own.loader:
        loss = w.loss(part)
        w.train(loss)
        total += loss.item()
    return total


@pytest.mark.parametrize("name", cases)
def test_a_step_leaves_behind_what_eager_leaves(name: str) -> None:
    check(cases[name])


class Wrapper(torch.optim.Optimizer):
    """An optimizer that hands everything on to another one, as accelerate's does."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    state = property(lambda self: self.optimizer.state, lambda self, state: setattr(self.optimizer, "state", state))
    param_groups = property(lambda self: self.optimizer.param_groups)
    defaults = property(lambda self: self.optimizer.defaults)

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure=None):
        return self.optimizer.step(closure)


class Fixed(Wrapper):
    """One that lets nobody set its state."""

    state = property(lambda self: self.optimizer.state)


def test_an_optimizer_whose_state_is_fixed_runs_eager():
    model = torch.nn.Linear(8, 4)
    optimizer = Fixed(torch.optim.AdamW(model.parameters(), 0.1))

    def train(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    step = lowtide.compile(train, model=model, optimizer=optimizer)
    with pytest.warns(RuntimeWarning, match="runs eager: the state of Fixed cannot be set"):
        step(torch.randn(2, 8))
    assert step.stats()["eager_calls"] == 1


def test_schedulers_know_of_steps_of_wrapped_optimizers():
    model = torch.nn.Linear(8, 4)
    inner = torch.optim.AdamW(model.parameters(), 0.1)
    scheduler = lr_scheduler.StepLR(inner, 1)
    optimizer = Wrapper(inner)

    def train(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        scheduler.step()

    step = lowtide.compile(train, model=model, optimizer=optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            step(torch.randn(2, 8))
    assert step.stats()["calls"] == 3
