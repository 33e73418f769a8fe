"""Hooks: their tensor work is part of the step and bit-equal; what they do in Python makes it eager."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import graph
from torch.nn.modules import module as torch_module
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook

import lowtide
from step_models import same

STEPS = 4


@dataclass
class World:
    """One of two equal copies; `seen` is what its hooks have noted."""

    model: nn.Sequential
    optimizer: torch.optim.Optimizer
    step: Any
    seen: list[Any] = field(default_factory=list)

    def state(self) -> list[Any]:
        return [
            dict(self.model.state_dict()), self.optimizer.state_dict(), [p.grad for p in self.model.parameters()],
            self.seen,
        ]  # fmt: skip


def forward(world: World, x: torch.Tensor) -> torch.Tensor:
    return world.model(x).square().sum()


def worlds(install: Callable[[World], Any], loss: Callable[[World, torch.Tensor], torch.Tensor]) -> list[World]:
    made = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        world = World(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), None)
        install(world)

        def function(x: torch.Tensor, world: World = world) -> torch.Tensor:
            world.optimizer.zero_grad()
            value = loss(world, x)
            value.backward()
            world.optimizer.step()
            return value.detach()

        world.step = function
        if compiled:
            world.step = lowtide.compile(function, model=model, optimizer=world.optimizer)
        made.append(world)
    return made


def train(world: World, around: Callable[[World, torch.Tensor], Any] | None) -> tuple[list[Any], list[str]]:
    source = torch.Generator().manual_seed(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        losses = []
        for _ in range(STEPS):
            x = torch.randn(6, 8, generator=source)
            losses.append(around(world, x) if around else world.step(x))
    return losses, [str(warning.message) for warning in caught if "lowtide" in str(warning.message)]


def check(
    install: Callable[[World], Any] = lambda world: None,
    loss: Callable[[World, torch.Tensor], torch.Tensor] = forward,
    around: Callable[[World, torch.Tensor], Any] | None = None,
) -> tuple[World, list[str]]:
    """Trains both, holds them equal, and gives the compiled one and its warnings."""
    eager, planned = worlds(install, loss)
    expected, _ = train(eager, around)
    got, said = train(planned, around)
    assert same(got, expected)
    assert same(planned.state(), eager.state())
    return planned, said


def halve(gradient: torch.Tensor) -> torch.Tensor:
    return gradient * 0.5


def shrink_gradient(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.mul_(0.5)


def double_all(_module: nn.Module, gradients: Any, *_: Any) -> Any:
    return tuple(None if gradient is None else gradient * 2 for gradient in gradients)


def hooked_inside(world: World, x: torch.Tensor) -> torch.Tensor:
    hidden = world.model[0](x)
    hidden.register_hook(halve)
    hidden.retain_grad()
    loss = world.model[2](world.model[1](hidden)).square().sum()
    loss.grad_fn.register_prehook(lambda gradients: tuple(gradient * 3 for gradient in gradients))
    return loss


def packed(world: World, x: torch.Tensor) -> torch.Tensor:
    with graph.saved_tensors_hooks(lambda t: t.bfloat16(), lambda t: t.float()):
        return forward(world, x)


def kept_on_cpu(world: World, x: torch.Tensor) -> torch.Tensor:
    with graph.save_on_cpu():
        return forward(world, x)


TRACED: dict[str, Any] = {
    "tensor": lambda w: w.model[0].weight.register_hook(halve),
    "post accumulate": lambda w: w.model[0].weight.register_post_accumulate_grad_hook(shrink_gradient),
    "forward": lambda w: w.model[0].register_forward_hook(lambda module, args, out: out * 2),
    "forward pre": lambda w: w.model[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,)),
    "forward pre with keywords": lambda w: w.model[0].register_forward_pre_hook(
        lambda module, args, kwargs: ((args[0] + 1,), kwargs), with_kwargs=True
    ),
    "full backward": lambda w: w.model[2].register_full_backward_hook(double_all),
    "full backward pre": lambda w: w.model[2].register_full_backward_pre_hook(double_all),
}


@pytest.mark.parametrize("name", TRACED)
def test_hooks_that_work_on_tensors_are_traced(name):
    planned, said = check(TRACED[name])
    plain, _ = check()
    assert planned.step.stats()["calls"] == STEPS and not said
    assert not same(dict(planned.model.state_dict()), dict(plain.model.state_dict())), "the hook did nothing"


@pytest.mark.parametrize("loss", [hooked_inside, packed, kept_on_cpu])
def test_hooks_set_inside_the_function_see_real_tensors(loss):
    planned, said = check(loss=loss)
    assert planned.step.stats()["eager_calls"] == STEPS and len(said) == 1


def test_hooks_may_come_and_go():
    """A hook that is new is captured; when it has gone, the first capture serves again."""

    turns = {True: 0, False: 0}

    def around(world: World, x: torch.Tensor) -> torch.Tensor:
        side = isinstance(world.step, lowtide.CompiledStep)
        turns[side] += 1
        handle = world.model[0].register_forward_hook(double_output) if turns[side] % 2 == 0 else None
        loss = world.step(x)
        if handle is not None:
            handle.remove()
        return loss

    planned, said = check(around=around)
    assert planned.step.stats()["captures"] == 3 and not said  # of 4 calls: without, with, without, with another one
    assert "_forward_hooks" in planned.step.explain_guards()


def double_output(_module: nn.Module, _args: Any, out: torch.Tensor) -> torch.Tensor:
    return out * 2


REFUSED: dict[str, tuple[Any, str]] = {
    "counts": (lambda w: w.model[0].register_forward_hook(lambda *_: w.seen.append(1)), ".seen`"),
    "keeps": (
        lambda w: w.model[0].register_forward_hook(lambda module, args, out: w.seen.append(out.detach())),
        ".seen`",
    ),
    "keeps on the module": (
        lambda w: w.model[0].register_forward_hook(lambda module, args, out: setattr(module, "last", out.detach())),
        "changes `self.last` of 0",
    ),
    "reads": (
        lambda w: w.model[2].register_full_backward_hook(lambda module, into, out: w.seen.append(out[0].sum().item())),
        "reads a tensor's value",
    ),
    "counts gradients": (
        lambda w: graph.register_multi_grad_hook(list(w.model.parameters()), lambda g: w.seen.append(len(g))),
        "changes ",
    ),
    "counts accumulations": (
        lambda w: w.model[0].bias.register_post_accumulate_grad_hook(lambda p: w.seen.append(1)),
        ".seen`",
    ),
    "keeps gradients": (
        lambda w: w.model[0].weight.register_hook(lambda gradient: w.seen.append(gradient.detach())),
        ".seen`",
    ),
    "keeps gradients of a module": (
        lambda w: w.model[2].register_full_backward_hook(lambda module, into, out: w.seen.append(out[0].sum())),
        ".seen`",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_hooks_that_do_something_in_python_are_refused_by_name(name):
    install, reason = REFUSED[name]
    planned, said = check(install)
    assert len(said) == 1 and "runs eager" in said[0] and reason in said[0]
    assert planned.step.stats()["eager_calls"] == STEPS
    assert len(planned.seen) == (0 if name == "keeps on the module" else STEPS)


def turn(world: World) -> None:
    world.model.turned = not world.model.turned


@pytest.mark.parametrize(
    "register",
    [
        lambda w: w.model[0].weight.register_hook(lambda gradient: turn(w)),
        lambda w: w.model[0].weight.register_post_accumulate_grad_hook(lambda parameter: turn(w)),
        lambda w: w.model[2].register_full_backward_hook(lambda *_: turn(w)),
        lambda w: w.model[2].register_forward_hook(lambda *_: turn(w)),
    ],
    ids=["tensor", "post accumulate", "full backward", "forward"],
)
def test_a_hook_that_leads_back_to_what_was_before_runs_at_every_call(register):
    """What modules see is the same at every other call, and still the hook has to run."""

    def install(world: World) -> None:
        world.model.turned = False
        register(world)

    seen = []

    def around(world: World, x: torch.Tensor) -> torch.Tensor:
        loss = world.step(x)
        seen.append(world.model.turned)
        return loss

    check(install, around=around)
    assert seen == [True, False] * STEPS  # on both sides


# -- around the call ---------------------------------------------------------------------------------------------------


def under_saved_tensor_hooks(world: World, x: torch.Tensor) -> torch.Tensor:
    def pack(tensor: torch.Tensor) -> torch.Tensor:
        world.seen.append(tuple(tensor.shape))
        return tensor.bfloat16()

    with graph.saved_tensors_hooks(pack, lambda tensor: tensor.float()):
        return world.step(x)


def test_hooks_around_the_call_see_every_step():
    planned, said = check(around=under_saved_tensor_hooks)
    assert len(planned.seen) % STEPS == 0 and len(planned.seen) >= 3 * STEPS
    assert len(said) == 1 and "runs eager under saved tensor hooks" in said[0]
    assert "runs eager under saved tensor hooks" in planned.step.explain_guards()
    planned.step(torch.ones(6, 8))  # and without them it is planned
    assert planned.step.stats()["calls"] == 1


def test_hooks_for_all_modules_are_traced_or_refused():
    handle = torch_module.register_module_forward_hook(
        lambda module, args, out: out * 1.5 if isinstance(module, nn.Tanh) else None
    )
    try:
        planned, said = check()
    finally:
        handle.remove()
    plain, _ = check()
    assert planned.step.stats()["calls"] == STEPS and not said
    assert not same(dict(planned.model.state_dict()), dict(plain.model.state_dict())), "the hook did nothing"

    seen: list[str] = []
    handle = torch_module.register_module_forward_hook(lambda module, *_: seen.append(type(module).__name__))
    try:
        planned, said = check()
    finally:
        handle.remove()
    assert len(said) == 1 and "changes `seen`" in said[0]
    assert len(seen) == 2 * STEPS * 4  # on both sides, three modules and what holds them


# -- the optimizer's ---------------------------------------------------------------------------------------------------


def note_gradients(world: World) -> None:
    def hook(optimizer: Any, *_: Any) -> None:
        world.seen.append([p.grad.norm().item() for group in optimizer.param_groups for p in group["params"]])

    world.optimizer.register_step_pre_hook(hook)


def scale_gradients(world: World) -> None:
    def hook(optimizer: Any, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad.mul_(0.5)

    world.optimizer.register_step_pre_hook(hook)


def decay_rate(world: World) -> None:
    def hook(optimizer: Any, *_: Any) -> None:
        optimizer.param_groups[0]["lr"] *= 0.5
        world.seen.append(optimizer.param_groups[0]["lr"])

    world.optimizer.register_step_pre_hook(hook)


def note_state(world: World) -> None:
    def hook(optimizer: Any, *_: Any) -> None:
        world.seen.append(
            (len(optimizer.state), [state["momentum_buffer"].sum() for state in optimizer.state.values()])
        )

    world.optimizer.register_step_post_hook(hook)


def clamp_weights(world: World) -> None:
    def hook(optimizer: Any, *_: Any) -> None:
        world.seen.append(1)
        for parameter in world.model.parameters():
            parameter.data.clamp_(-0.1, 0.1)

    world.optimizer.register_step_post_hook(hook)


def wrap_step(world: World) -> None:
    own = world.optimizer.step

    def step(closure: Any = None) -> Any:
        world.seen.append(world.model[0].bias.grad.sum())
        return own(closure)

    world.optimizer.step = step  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize(
    "install",
    [note_gradients, scale_gradients, decay_rate, note_state, clamp_weights, wrap_step],
    ids=lambda f: f.__name__,
)
def test_step_hooks_run_once_a_step_and_see_what_is_real(install):
    planned, said = check(install)
    assert planned.step.stats()["calls"] == STEPS and not said
    assert len(planned.seen) == (0 if install is scale_gradients else STEPS)
    assert "optimizer.step() runs eagerly: SGD" in planned.step.explain_guards()


def test_a_step_hook_for_all_optimizers():
    def around(world: World, x: torch.Tensor) -> torch.Tensor:
        handle = register_optimizer_step_post_hook(lambda optimizer, *_: world.seen.append(len(optimizer.state)))
        try:
            return world.step(x)
        finally:
            handle.remove()

    planned, _ = check(around=around)
    assert planned.seen == [4] * STEPS


def test_an_error_in_a_step_hook_is_the_users_own():
    def install(world: World) -> None:
        def hook(*_: Any) -> None:
            if len(world.seen) == 2:
                raise KeyError("enough")
            world.seen.append(1)

        world.optimizer.register_step_pre_hook(hook)

    for world in worlds(install, forward):
        for _ in range(2):
            world.step(torch.ones(6, 8))
        with pytest.raises(KeyError, match="enough"):
            world.step(torch.ones(6, 8))
        world.seen.clear()
        world.step(torch.ones(6, 8))


@pytest.mark.parametrize(
    "make",
    [
        lambda o: lr_scheduler.StepLR(o, 2, gamma=0.5),
        lambda o: lr_scheduler.OneCycleLR(o, 0.2, total_steps=20),
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LinearLR(o, total_iters=2), lr_scheduler.CosineAnnealingLR(o, 5)], milestones=[2]
        ),
    ],
    ids=["step", "one cycle", "sequential"],
)
def test_schedulers_see_every_step(make):
    def install(world: World) -> None:
        world.scheduler = make(world.optimizer)  # type: ignore[attr-defined]

    def around(world: World, x: torch.Tensor) -> torch.Tensor:
        loss = world.step(x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # such as that the scheduler stepped before the optimizer
            world.scheduler.step()  # type: ignore[attr-defined]
        world.seen.append((world.optimizer._opt_called, world.scheduler.last_epoch, world.scheduler.get_last_lr()))  # type: ignore[attr-defined]
        return loss

    planned, said = check(install, around=around)
    assert planned.step.stats()["calls"] == STEPS and not said
    assert "eager" not in planned.step.explain_guards()
