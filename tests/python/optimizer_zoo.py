"""The optimizers that the update of a step is held to: settings that must be bit-equal, and rules to be refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.optim import lr_scheduler


class Net(nn.Module):
    """Convolution, batch norm, linear, dropout, and a parameter that the forward pass broadcasts."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.hidden = nn.Linear(8 * 36, 32)
        self.out = nn.Linear(32, 10)
        self.shift = nn.Parameter(torch.ones(7, 10))

    def forward(self, images: Tensor) -> Tensor:
        h = torch.relu(self.norm(self.convolution(images))).flatten(1)
        h = torch.dropout(torch.relu(self.hidden(h)), 0.1, self.training)
        return self.out(h) + self.shift.mean(0)


class Lion(optim.Optimizer):
    """A rule of one's own: sign of an interpolated momentum, decay through `p.data`."""

    def __init__(self, params: Any, lr: float = 1e-3, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.99), "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                beta1, beta2 = group["betas"]
                average = state["exp_avg"]
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                direction = average.clone().mul_(beta1).add(p.grad, alpha=1 - beta1).sign_()
                p.add_(direction, alpha=-group["lr"])
                average.mul_(beta2).add_(p.grad, alpha=1 - beta2)


class OldAdam(optim.Optimizer):
    """Counters everywhere they can be: a Python int in the state, one in the group, one on the optimizer."""

    def __init__(self, params: Any, lr: float = 1e-3) -> None:
        super().__init__(params, {"lr": lr, "k": 0})
        self.calls = 0

    def step(self, closure: Any = None) -> None:
        self.calls += 1
        with torch.no_grad():
            for group in self.param_groups:
                group["k"] += 1
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state[p]
                    if len(state) == 0:
                        state["step"] = 0
                        state["m"] = torch.zeros_like(p)
                        state["v"] = torch.zeros_like(p)
                    state["step"] += 1
                    state["m"].mul_(0.9).add_(p.grad, alpha=0.1)
                    state["v"].mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
                    scale = (state["v"].sqrt() / (1 - 0.99 ** state["step"]) ** 0.5).add_(1e-8)
                    rate = group["lr"] / (1 - 0.9 ** state["step"]) / (1 + 0.01 * group["k"])
                    p.addcdiv_(state["m"], scale, value=-rate)


class Previous(optim.Optimizer):
    """Keeps the last gradient itself, not a copy, and drops a state key after the first step."""

    def __init__(self, params: Any, lr: float = 1e-2) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "previous" in state:
                    p.add_(p.grad - state["previous"], alpha=-group["lr"])
                    state.pop("first", None)
                else:
                    state["first"] = p.grad.clone()
                state["previous"] = p.grad


class Switching(optim.Optimizer):
    """Another formula after three steps, counted in Python; decays matrices only; forgets its state at the sixth."""

    def __init__(self, params: Any, lr: float = 1e-2) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                if p.dim() > 1:
                    p.mul_(1 - 0.1 * group["lr"])
                if state["step"] > 3:
                    p.add_(p.grad.sign(), alpha=-group["lr"] / state["step"])
                else:
                    p.add_(p.grad, alpha=-group["lr"] / state["step"])
                if state["step"] == 6:
                    del self.state[p]


# -- settings that must be bit-equal ---------------------------------------------------------------------------------

Make = Callable[[nn.Module], optim.Optimizer]


@dataclass(frozen=True)
class Setting:
    """An optimizer as a user writes it, with a schedule and clipping."""

    name: str
    make: Make
    schedule: str = "lambda"
    clip: float | None = 1.0

    def schedule_for(self, optimizer: optim.Optimizer) -> lr_scheduler.LRScheduler:
        if self.schedule == "onecycle":
            return lr_scheduler.OneCycleLR(optimizer, max_lr=[0.01, 0.02], total_steps=25)
        if self.schedule == "cosine":
            return lr_scheduler.CosineAnnealingLR(optimizer, T_max=15)
        return lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.95**epoch)


def two_groups(model: nn.Module, lr: Any, decay: bool = True) -> list[dict[str, Any]]:
    """Matrices with weight decay, vectors without and at twice the rate."""
    groups: list[dict[str, Any]] = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "lr": lr, "weight_decay": 0.01},
        {"params": [p for p in model.parameters() if p.dim() <= 1], "lr": lr * 2, "weight_decay": 0.0},
    ]
    return groups if decay else [{"params": group["params"], "lr": group["lr"]} for group in groups]


def _settings() -> Iterable[Setting]:
    def of(kind: Any, lr: Any, decay: bool = True, **options: Any) -> Make:
        return lambda model: kind(two_groups(model, lr, decay), **options)

    def muon(model: nn.Module) -> optim.Optimizer:
        for p in model.parameters():
            p.requires_grad_(p.dim() == 2)
        return optim.Muon([p for p in model.parameters() if p.dim() == 2], lr=1e-2)

    adam, nesterov = of(optim.Adam, 1e-3), of(optim.SGD, 0.05, momentum=0.9, nesterov=True)
    yield Setting("adam", adam)
    yield Setting("adam, one cycle", adam, "onecycle")
    yield Setting("adam, cosine", adam, "cosine", None)
    yield Setting("adam, foreach", of(optim.Adam, 1e-3, foreach=True))
    yield Setting("adam, for loop", of(optim.Adam, 1e-3, foreach=False))
    yield Setting("adam, amsgrad, maximize", of(optim.Adam, 1e-3, amsgrad=True, maximize=True))
    yield Setting("adam, fused, amsgrad", of(optim.Adam, 1e-3, fused=True, amsgrad=True))
    yield Setting("adamw", of(optim.AdamW, 1e-3))
    yield Setting("adamw, foreach, amsgrad", of(optim.AdamW, 1e-3, foreach=True, amsgrad=True))
    yield Setting("adamw, fused", of(optim.AdamW, 1e-3, fused=True))
    yield Setting("adamw, tensor lr", lambda model: optim.AdamW(two_groups(model, torch.tensor(1e-3))))
    yield Setting("sgd", of(optim.SGD, 0.05))
    yield Setting("sgd, momentum, dampening", of(optim.SGD, 0.05, momentum=0.9, dampening=0.1))
    yield Setting("sgd, nesterov", nesterov)
    yield Setting("sgd, nesterov, one cycle", nesterov, "onecycle")
    yield Setting("sgd, nesterov, cosine", nesterov, "cosine", None)
    yield Setting("sgd, nesterov, foreach", of(optim.SGD, 0.05, momentum=0.9, nesterov=True, foreach=True))
    yield Setting("sgd, momentum, fused", of(optim.SGD, 0.05, momentum=0.9, fused=True))
    yield Setting("rmsprop, centered, momentum", of(optim.RMSprop, 1e-3, centered=True, momentum=0.9))
    yield Setting("rmsprop, foreach", of(optim.RMSprop, 1e-3, foreach=True))
    yield Setting("adagrad, decay", of(optim.Adagrad, 1e-2, lr_decay=0.1))
    yield Setting("adagrad, decay, foreach", of(optim.Adagrad, 1e-2, lr_decay=0.1, foreach=True))
    yield Setting("adagrad, fused", of(optim.Adagrad, 1e-2, fused=True))
    yield Setting("nadam", of(optim.NAdam, 1e-3))
    yield Setting("nadam, foreach, decoupled", of(optim.NAdam, 1e-3, foreach=True, decoupled_weight_decay=True))
    yield Setting("radam", of(optim.RAdam, 1e-3))
    yield Setting("radam, foreach", of(optim.RAdam, 1e-3, foreach=True))
    yield Setting("adamax", of(optim.Adamax, 1e-3))
    yield Setting("adadelta", of(optim.Adadelta, 1.0))
    yield Setting("asgd", of(optim.ASGD, 1e-2))
    yield Setting("rprop", of(optim.Rprop, 1e-3, decay=False))
    yield Setting("lion", of(Lion, 1e-3))
    yield Setting("old adam", of(OldAdam, 1e-3, decay=False))
    yield Setting("muon", muon)
    yield Setting("switching", of(Switching, 1e-2, decay=False))
    yield Setting("previous gradient", of(Previous, 1e-2, decay=False))


SETTINGS = list(_settings())
BY_NAME = {setting.name: setting for setting in SETTINGS}


# -- rules that a twin must not stand in for -------------------------------------------------------------------------


class Rule(optim.Optimizer):
    """A group with a learning rate; subclasses say what happens to a parameter."""

    def __init__(self, params: Any, lr: float = 1e-2) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(p, group["lr"])

    def update(self, p: Tensor, lr: float) -> None:
        raise NotImplementedError


class Coupled(Rule):
    """Divides by the norm of all gradients."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        norm = torch.stack([p.grad.norm() for group in self.param_groups for p in group["params"]]).norm()
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad / (norm + 1), alpha=group["lr"])


class CoupledInGroup(Rule):
    """Divides by a sum over the group, with no list operator."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            total: Any = 0
            for p in group["params"]:
                total = total + p.grad.abs().sum()
            for p in group["params"]:
                p.sub_(p.grad / total, alpha=group["lr"])


class ShapeDependent(Rule):
    def update(self, p: Tensor, lr: float) -> None:
        p.add_(p.grad, alpha=-lr / p.numel() ** 0.5)


class DataDependent(Rule):
    def update(self, p: Tensor, lr: float) -> None:
        p.add_(p.grad, alpha=-lr / (1 + p.grad.norm().item()))


class Branching(Rule):
    def update(self, p: Tensor, lr: float) -> None:
        if p.grad.norm() > 0.1:
            p.add_(p.grad, alpha=-lr)


class Noisy(Rule):
    def update(self, p: Tensor, lr: float) -> None:
        p.add_(p.grad, alpha=-lr).add_(torch.randn_like(p), alpha=lr * 0.1)


class DataInCounter(Rule):
    """A 0-dim state that gradients flow into, read by the next step."""

    def update(self, p: Tensor, lr: float) -> None:
        state = self.state[p]
        if not state:
            state["d"] = torch.tensor(1.0)
        p.add_(p.grad, alpha=-lr * state["d"].item())
        state["d"].add_(p.grad.norm())


class Rebinding(Rule):
    def update(self, p: Tensor, lr: float) -> None:
        p.data = p.data - lr * p.grad


class Hoarding(Rule):
    """Reaches its parameters by its own list, past the groups."""

    def __init__(self, params: Any, lr: float = 1e-2) -> None:
        super().__init__(params, lr)
        self.mine = [p for group in self.param_groups for p in group["params"]]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p in self.mine:
            p.sub_(p.grad)


class SharedTensor(Rule):
    """Counts in a tensor that belongs to the whole optimizer."""

    def __init__(self, params: Any, lr: float = 1e-2) -> None:
        super().__init__(params, lr)
        self.count = torch.zeros(())

    def update(self, p: Tensor, lr: float) -> None:
        self.count += 1
        p.add_(p.grad, alpha=-lr)


class PythonNoise(Rule):
    def update(self, p: Tensor, lr: float) -> None:
        import random

        p.add_(p.grad, alpha=-lr * random.random())


class CountingParameters(Rule):
    """A Python number that grows with every parameter."""

    def __init__(self, params: Any, lr: float = 1e-2) -> None:
        super().__init__(params, lr)
        self.seen = 0

    def update(self, p: Tensor, lr: float) -> None:
        self.seen += 1
        p.add_(p.grad, alpha=-lr / self.seen)


class CountingInGroup(Rule):
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                group["k"] = group.get("k", 0) + 1
                p.add_(p.grad, alpha=-group["lr"] / group["k"])


class LateReader(Rule):
    """Lets gradients flow into a 0-dim state, and reads it five steps later."""

    def update(self, p: Tensor, lr: float) -> None:
        state = self.state[p]
        state["step"] = state.get("step", 0) + 1
        if state["step"] == 5:
            p.add_(p.grad, alpha=-lr * state["d"].item())
        else:
            state["d"] = p.grad.norm()


class ByName(Rule):
    """Another rate for each parameter, by its name."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for name, p in zip(group["param_names"], group["params"], strict=True):
                p.add_(p.grad, alpha=-group["lr"] * len(name))


def by_name(parameters: Any) -> optim.Optimizer:
    return ByName([(f"p{place}", p) for place, p in enumerate(parameters)])


class WarmingUp(ShapeDependent):
    """Shows its dependence on the shape only once the learning rate has left zero."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, lr=0.0)


REFUSED: list[tuple[Callable[[Any], optim.Optimizer], str]] = [
    (Coupled, "mixes the values of several parameters"),
    (CoupledInGroup, "mixes the values of several parameters"),
    (ShapeDependent, "depends on the parameter's shape"),
    (WarmingUp, "depends on the parameter's shape"),
    (CountingParameters, "changes 'seen' anew for each parameter"),
    (CountingInGroup, "changes 'k' anew for each parameter"),
    (by_name, "ByName.* goes by the names of parameters"),
    (DataDependent, "reads a value that depends on data"),
    (Branching, "reads a value that depends on data"),
    (Noisy, "draws random numbers with aten.randn_like"),
    (DataInCounter, "makes a value depend on data that it reads"),
    (Rebinding, "gives a parameter new memory"),
    (Hoarding, "reach parameters past its groups"),
    (SharedTensor, "writes a tensor that all parameters of a group share"),
    (PythonNoise, "draws random numbers from Python"),
    (optim.Adafactor, "reads a value that depends on data"),
    (optim.LBFGS, "needs closure"),
    (optim.SparseAdam, "SparseAdam does not support dense gradients"),
]
