"""Update rules that know more of a parameter than its values, and what happens to optimizers in mid-run.

Each is trained twice, eager and planned, and must be equal bit for bit; the table says how it is to be served: by the
twin, by the rule itself for each parameter inside the program, or by an eager `optimizer.step()` after the program.
"""

from __future__ import annotations

import copy
import functools
import itertools
import random
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn, optim

import lowtide
from step_models import same

Event = Callable[[int, Any, Any], object]
STEPS = 6


class Net(nn.Module):
    """Matrices and vectors, two of each shape."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Rule(optim.Optimizer):
    """Calls `update(group, place, parameter)` for each parameter that has a gradient."""

    def __init__(self, params: Any, lr: float = 0.1, **defaults: Any) -> None:
        super().__init__(params, {"lr": lr, **defaults})
        self.t = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.t += 1
        for group in self.param_groups:
            for place, p in enumerate(group["params"]):
                if p.grad is not None:
                    self.update(group, place, p)

    def update(self, group: dict[str, Any], place: int, p: Any) -> None:
        raise NotImplementedError


def rule(update: Callable[..., object], **attributes: Any) -> Callable[[nn.Module], optim.Optimizer]:
    """Makes optimizers whose `update` is the given function; attributes are copied, or made of the model."""

    class Own(Rule):
        def update(self, group: dict[str, Any], place: int, p: Any) -> None:
            update(self, group, place, p)

    def make(model: nn.Module) -> optim.Optimizer:
        optimizer = Own(model.parameters())
        for name, value in attributes.items():
            setattr(optimizer, name, value(model) if isinstance(value, types_of_makers) else copy.copy(value))
        return optimizer

    return make


types_of_makers = (type(lambda: 0),)


def train(make: Callable[[nn.Module], Any], event: Event, compiled: bool, **options: Any) -> tuple[list[Any], Any]:
    torch.manual_seed(0)
    model = Net()
    optimizer = make(model)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run: Any = step
    if compiled:
        run = lowtide.compile(step, model=model, optimizer=optimizer, on_unsupported="raise", **options)
    log: list[Any] = []
    for index in range(STEPS):
        event(index, model, optimizer)
        loss = run(torch.randn(4, 6, generator=torch.Generator().manual_seed(index)))
        plain = {k: v for k, v in vars(optimizer).items() if isinstance(v, (int, float, str))}
        kept = loss, dict(model.named_parameters()), [p.grad for p in model.parameters()], optimizer.state_dict(), plain
        log.append(copy.deepcopy(kept))
    return log, run


def served(run: Any) -> str:
    said = run.explain_guards()
    return "eager" if "optimizer.step() runs eagerly" in said else "rule" if "by the rule itself" in said else "twin"


def check(make: Callable[[nn.Module], Any], event: Event, expected: str, **options: Any) -> Any:
    eager, _ = train(make, event, False)
    planned, run = train(make, event, True, **options)
    for index, (a, b) in enumerate(zip(eager, planned, strict=True)):
        for part, x, y in zip(("loss", "parameters", "gradients", "state", "attributes"), a, b, strict=True):
            assert same(x, y) or (part == "gradients" and options), f"{part} after step {index}: {run.explain_guards()}"
    assert run.stats()["eager_calls"] == 0
    assert served(run) == expected, run.explain_guards()
    return run


def nothing(index: int, model: Any, optimizer: Any) -> None:
    pass


# -- rules -------------------------------------------------------------------------------------------------------------


def plain(self: Any, group: Any, place: int, p: Any, rate: float = 1.0) -> None:
    p.add_(p.grad, alpha=-group["lr"] * rate)


def tuple_state(self: Any, group: Any, place: int, p: Any) -> None:
    state = self.state[p]
    (m,) = state.get("mv", (torch.zeros_like(p),))
    state["mv"] = (m * 0.9 + p.grad,)
    p.add_(state["mv"][0], alpha=-group["lr"])


def list_state(self: Any, group: Any, place: int, p: Any) -> None:
    history = self.state[p].setdefault("h", [])
    history.append(p.grad.clone())
    p.add_(sum(history[-2:]), alpha=-group["lr"])


def dict_of_its_own(self: Any, group: Any, place: int, p: Any) -> None:
    if p not in self.v:
        self.v[p] = torch.zeros_like(p)
    p.add_(self.v[p].mul_(0.9).add_(p.grad), alpha=-group["lr"])


def keeps_gradients(self: Any, group: Any, place: int, p: Any) -> None:
    plain(self, group, place, p)
    if self.t == 3:
        self.kept.append(p.grad)


def late_by_place(self: Any, group: Any, place: int, p: Any) -> None:
    plain(self, group, place, p, 0.5**place if self.t > 3 else 1.0)


def late_by_size(self: Any, group: Any, place: int, p: Any) -> None:
    state = self.state[p]
    state["step"] = state.get("step", 0) + 1
    plain(self, group, place, p, min(1.0, p.numel() / 9 / state["step"]))


def place_in_state(self: Any, group: Any, place: int, p: Any) -> None:
    self.state[p]["place"] = place
    plain(self, group, place, p)


def counts_on_parameter(self: Any, group: Any, place: int, p: Any) -> None:
    p.count = getattr(p, "count", 0) + 1
    plain(self, group, place, p, 1 / p.count)


def adam(self: Any, group: Any, place: int, p: Any) -> None:
    state = self.state[p]
    if len(state) == 0:
        state["step"], state["m"], state["v"] = torch.tensor(0.0), torch.zeros_like(p), torch.zeros_like(p)
    state["step"] += 1
    n = state["step"].item()
    state["m"].lerp_(p.grad, 0.1)
    state["v"].mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
    denominator = (state["v"].sqrt() / (1 - 0.99**n) ** 0.5).add_(1e-8)
    p.addcdiv_(state["m"], denominator, value=-group["lr"] / (1 - 0.9**n))


def decays_matrices(self: Any, group: Any, place: int, p: Any) -> None:
    plain(self, group, place, p.mul_(1 - 0.1 * group["lr"]) if p.dim() > 1 else p)


class ForEach(Rule):
    """List operators on all parameters at once."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            gradients = [p.grad for p in parameters]
            for p in parameters:
                self.state[p].setdefault("m", torch.zeros_like(p))
            averages = [self.state[p]["m"] for p in parameters]
            torch._foreach_mul_(averages, 0.9)
            torch._foreach_add_(averages, gradients)
            torch._foreach_add_(parameters, averages, alpha=-group["lr"])


class ForEachByPlace(Rule):
    """List operators with a number for each parameter."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            steps = torch._foreach_mul([p.grad for p in group["params"]], [0.5**i for i in range(len(group["params"]))])
            torch._foreach_add_(group["params"], steps, alpha=-group["lr"])


class Overriding(optim.AdamW):
    """PyTorch's own rule, with something done before it."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["lr"] *= 0.9
        return super().step(closure)


class OverridingByPlace(optim.SGD):
    """A method inside PyTorch's own step, replaced."""

    def _init_group(self, group: Any, params: Any, grads: Any, momentum: Any) -> Any:
        found = super()._init_group(group, params, grads, momentum)
        grads[:] = [g * 0.5**i for i, g in enumerate(grads)]
        return found


class Renamed(optim.AdamW):
    """PyTorch's own step, another constructor and a new method."""

    def __init__(self, params: Any, note: str) -> None:
        super().__init__(params, lr=0.01)
        self.note = note

    def describe(self) -> str:
        return self.note


class ByGroup(Rule):
    """Another rate for each group, by its number."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for number, group in enumerate(self.param_groups):
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"] * 0.5**number)


def by_group(model: Any) -> optim.Optimizer:
    return ByGroup([{"params": model.first.parameters()}, {"params": model.second.parameters()},
                    {"params": model.out.parameters()}])  # fmt: skip


class Lookahead(optim.Optimizer):
    """Around another optimizer, whose groups are its own."""

    def __init__(self, inner: optim.Optimizer) -> None:
        self.inner = inner
        super().__init__([p for group in inner.param_groups for p in group["params"]], {"lr": 0.1})
        self.t = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.inner.step()
        self.t += 1
        for p in self.param_groups[0]["params"]:
            slow = self.state[p].setdefault("slow", p.clone())
            if self.t % 2 == 0:
                p.copy_(slow.lerp_(p, 0.5))


class ByMethod(Rule):
    """Its rule is chosen once, and kept as a method of the object."""

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.chosen = self._chosen

    def update(self, group: dict[str, Any], place: int, p: Any) -> None:
        self.chosen(group, p)

    def _chosen(self, group: dict[str, Any], p: Any) -> None:
        m = self.state[p].setdefault("m", torch.zeros_like(p))
        p.add_(m.mul_(0.9).add_(p.grad), alpha=-group["lr"])


class ByOwnList(Rule):
    """Its parameters in a list of its own; gradients may be missing."""

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.mine = self.param_groups[0]["params"]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p in self.mine:
            if p.grad is not None:
                p.add_(p.grad, alpha=-0.1)


class Clearing(Rule):
    """Takes the gradients away, as some rules do to save memory."""

    def update(self, group: dict[str, Any], place: int, p: Any) -> None:
        plain(self, group, place, p)
        p.grad = None


class CountedElsewhere:
    calls = 0


OUTSIDE: dict[str, Any] = {"rate": 1.0}
SEEN: list[Any] = []
TABLE: dict[Any, float] = {}
drawn = random.Random(0)


def closed_over(model: Any) -> optim.Optimizer:
    anchors = {id(p): 0.5 for p in model.first.parameters()}
    return rule(lambda s, g, i, p: plain(s, g, i, p, anchors.get(id(p), 1.0)))(model)


def count_elsewhere(self: Any, group: Any, place: int, p: Any) -> None:
    CountedElsewhere.calls += 1
    plain(self, group, place, p, 1 / (1 + CountedElsewhere.calls % 7))


def log_elsewhere(self: Any, group: Any, place: int, p: Any) -> None:
    SEEN.append(place)
    plain(self, group, place, p, 1 / len(SEEN))


def named_params(kind: Any) -> Callable[[nn.Module], optim.Optimizer]:
    return lambda model: kind(model.named_parameters(), lr=0.1)


RULES: list[tuple[str, Callable[[nn.Module], Any], str]] = [
    # treat each parameter by itself
    ("plain", rule(plain), "twin"),
    ("adam by hand", rule(adam), "twin"),
    ("decay of matrices", rule(decays_matrices), "twin"),
    ("list operators", lambda model: ForEach(model.parameters()), "twin"),
    ("attributes", rule(lambda s, g, i, p: plain(s, g, i, p, getattr(p, "rate", 1.0))), "twin"),
    ("counter on self", rule(lambda s, g, i, p: plain(s, g, i, p, 1 / s.t)), "twin"),
    ("settings on self", rule(lambda s, g, i, p: plain(s, g, i, p, s.rates["all"]), rates={"all": 0.3}), "twin"),
    ("global setting", rule(lambda s, g, i, p: plain(s, g, i, p, OUTSIDE["rate"])), "twin"),
    ("method on self", lambda model: ByMethod(model.parameters()), "twin"),
    ("super().step()", lambda model: Overriding(model.parameters(), lr=0.01), "twin"),
    ("only a constructor", lambda model: Renamed(model.parameters(), "mine"), "twin"),
    ("number of the group", by_group, "rule"),
    ("two betas as a list", lambda model: optim.Adam(model.out.parameters(), lr=0.1, betas=[0.9, 0.99]), "twin"),
    ("named parameters", named_params(optim.Adam), "twin"),
    # by place
    ("place", rule(lambda s, g, i, p: plain(s, g, i, p, 0.5**i)), "eager"),
    ("first", rule(lambda s, g, i, p: plain(s, g, i, p, 1.0 if i == 0 else 0.5)), "eager"),
    ("last", rule(lambda s, g, i, p: plain(s, g, i, p, 1.0 if p is g["params"][-1] else 0.5)), "eager"),
    ("number", rule(lambda s, g, i, p: plain(s, g, i, p, 1 / len(g["params"]))), "eager"),
    ("place of a list operator", lambda model: ForEachByPlace(model.parameters()), "eager"),
    ("place in the state", rule(place_in_state), "eager"),
    ("place, later", rule(late_by_place), "eager"),
    ("place, inside PyTorch's", lambda model: OverridingByPlace(model.parameters(), lr=0.1), "eager"),
    ("size, later", rule(late_by_size), "rule"),
    # by identity
    ("table of parameters", rule(
        lambda s, g, i, p: plain(s, g, i, p, s.rates.get(p, 1.0)), rates=lambda m: {m.out.weight: 0.3}), "eager"),
    ("table of ids", rule(
        lambda s, g, i, p: plain(s, g, i, p, s.rates.get(id(p), 1.0)), rates=lambda m: {id(m.out.weight): 0.3}),
     "eager"),
    ("set of ids", rule(
        lambda s, g, i, p: plain(s, g, i, p, 0.3 if id(p) in s.slow else 1.0), slow=lambda m: {id(m.out.weight)}),
     "eager"),
    ("weak reference", rule(
        lambda s, g, i, p: plain(s, g, i, p, 0.3 if p is s.one() else 1.0), one=lambda m: weakref.ref(m.out.weight)),
     "eager"),
    ("one parameter", rule(
        lambda s, g, i, p: plain(s, g, i, p, 0.3 if p is s.one else 1.0), one=lambda m: m.out.weight), "eager"),
    ("the model", rule(
        lambda s, g, i, p: plain(s, g, i, p, 0.3 if p is s.model.out.weight else 1.0), model=lambda m: m), "eager"),
    ("closure", closed_over, "eager"),
    ("list of its own", lambda model: ByOwnList(model.parameters()), "eager"),
    ("names", named_params(type("Names", (Rule,), {"update": lambda s, g, i, p: plain(
        s, g, i, p, 0.3 if "out" in g["param_names"][i] else 1.0)})), "eager"),
    # state
    ("tuple in the state", rule(tuple_state), "eager"),
    ("list in the state", rule(list_state), "eager"),
    ("tensors on self", rule(dict_of_its_own, v={}), "eager"),
    ("gradients kept, later", rule(keeps_gradients, kept=[]), "eager"),
    ("counter on the parameter", rule(counts_on_parameter), "eager"),
    ("another optimizer", lambda model: Lookahead(optim.Adam(model.parameters(), lr=0.1)), "eager"),
    ("gradients taken away", lambda model: Clearing(model.parameters()), "eager"),
    # elsewhere
    ("counter elsewhere", rule(count_elsewhere), "eager"),
    ("log elsewhere", rule(log_elsewhere), "eager"),
    ("iterator", rule(lambda s, g, i, p: plain(s, g, i, p, next(s.rates)), rates=lambda m: itertools.cycle([1.0, 0.5])),
     "eager"),
    ("numbers drawn", rule(
        lambda s, g, i, p: plain(s, g, i, p, s.drawn.random()), drawn=lambda m: random.Random(0)), "eager"),
    ("array", rule(lambda s, g, i, p: (s.n.__iadd__(1), plain(s, g, i, p, 1 / s.n[0])), n=lambda m: numpy.zeros(1)),
     "eager"),
    ("queue", rule(lambda s, g, i, p: (s.q.rotate(), plain(s, g, i, p, s.q[0])), q=lambda m: deque([1.0, 0.5, 0.2])),
     "eager"),
    ("cache", rule(lambda s, g, i, p: plain(s, g, i, p, s.rate(p)), rate=lambda m: functools.lru_cache(
        lambda p: 0.3 if p is m.out.weight else 1.0)), "eager"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "expected"), [case[1:] for case in RULES], ids=[case[0] for case in RULES])
def test_a_rule_is_equal(make: Callable[[nn.Module], Any], expected: str) -> None:
    def begin(index: int, model: Any, optimizer: Any) -> None:
        if index == 0:
            CountedElsewhere.calls = 0
            SEEN.clear()

    check(make, begin, expected)


# -- in mid-run --------------------------------------------------------------------------------------------------------


def at(when: int, act: Callable[[Any, Any], object]) -> Event:
    return lambda index, model, optimizer: act(model, optimizer) if index == when else None


def adamw(model: Any) -> optim.Optimizer:
    return optim.AdamW([{"params": model.first.parameters()}, {"params": model.out.parameters()}], lr=0.01)


def sgd(model: Any) -> optim.Optimizer:
    return optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def set_all(**settings: Any) -> Callable[[Any, Any], object]:
    return lambda _, optimizer: [group.update(settings) for group in optimizer.param_groups]


def edit_state(key: str, act: Callable[[Any], object]) -> Callable[[Any, Any], object]:
    return lambda model, optimizer: act(optimizer.state[model.first.weight][key])


def move(model: Any, optimizer: Any) -> None:
    first, second = optimizer.param_groups
    second["params"].append(first["params"].pop())


def reload(model: Any, optimizer: Any) -> None:
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def share_state(model: Any, optimizer: Any) -> None:
    state = optimizer.state
    state[model.first.weight]["momentum_buffer"] = state[model.second.weight]["momentum_buffer"]


def freeze_with_gradient(model: Any, optimizer: Any) -> None:
    model.first.weight.requires_grad_(False)
    model.first.weight.grad = torch.ones(6, 6)


EVENTS: list[tuple[str, Callable[[nn.Module], Any], Event, str]] = [
    ("learning rate", adamw, at(2, set_all(lr=0.3)), "twin"),
    ("betas", adamw, at(2, set_all(betas=(0.5, 0.6))), "twin"),
    ("tensor betas", adamw, at(2, set_all(betas=(torch.tensor(0.5), torch.tensor(0.6)), foreach=False)), "any"),
    ("tensor rate", adamw, at(2, set_all(lr=torch.tensor(0.3))), "twin"),
    ("maximize", adamw, at(2, set_all(maximize=True)), "twin"),
    ("amsgrad", adamw, lambda i, m, o: set_all(amsgrad=True)(m, o) if i == 0 else None, "twin"),
    ("foreach", adamw, at(2, set_all(foreach=True)), "twin"),
    ("fused", lambda model: optim.SGD(model.parameters(), lr=0.1), at(2, set_all(fused=True)), "twin"),
    ("differentiable", sgd, at(2, set_all(differentiable=True)), "any"),
    ("moved between groups", adamw, at(3, move), "twin"),
    ("group added", adamw, at(3, lambda m, o: o.add_param_group({"params": m.second.parameters()})), "twin"),
    ("state loaded", adamw, at(3, reload), "twin"),
    ("state cleared", adamw, at(3, lambda m, o: o.state.clear()), "twin"),
    ("state of one deleted", adamw, at(3, lambda m, o: o.state.pop(m.first.weight)), "twin"),
    ("key of one deleted", sgd, at(3, lambda m, o: o.state[m.first.weight].pop("momentum_buffer")), "twin"),
    ("state edited", adamw, at(3, edit_state("exp_avg", lambda t: t.mul_(0.5))), "twin"),
    ("counter edited", adamw, at(3, edit_state("step", lambda t: t.fill_(9.0))), "twin"),
    ("state replaced", adamw, at(3, lambda m, o: o.state[m.first.weight].update(exp_avg=torch.ones(6, 6))), "twin"),
    ("state shared", sgd, at(3, share_state), "eager"),
    ("gradient by hand", sgd, at(3, lambda m, o: setattr(m.first.weight, "grad", torch.ones(6, 6))), "twin"),
    ("frozen", adamw, at(2, lambda m, o: m.first.requires_grad_(False)), "twin"),
    ("frozen with a gradient", sgd, at(2, freeze_with_gradient), "twin"),
    ("hook", sgd, at(3, lambda m, o: o.register_step_post_hook(lambda *_: o.zero_grad())), "eager"),
    ("step replaced", sgd, at(3, lambda m, o: setattr(o, "step", functools.partial(type(o).step, o))), "eager"),
    ("class replaced", rule(plain), at(3, lambda m, o: setattr(o, "__class__", type("Other", (type(o),), {
        "update": lambda s, g, i, p: plain(s, g, i, p, 0.5**i)}))), "eager"),
    ("attribute of a parameter", rule(lambda s, g, i, p: plain(s, g, i, p, getattr(p, "rate", 1.0))),
     lambda i, m, o: setattr(m.first.weight, "rate", 0.1 * i) if i in (2, 4) else None, "twin"),
    ("attribute of the optimizer", rule(lambda s, g, i, p: plain(s, g, i, p, s.rate), rate=1.0),
     at(3, lambda m, o: setattr(o, "rate", 0.2)), "twin"),
    ("another way of the optimizer", rule(lambda s, g, i, p: plain(s, g, i, p, 0.5**i if s.way == "place" else 1.0),
                                          way="all"), at(3, lambda m, o: setattr(o, "way", "place")), "eager"),
    ("rate of some", rule(lambda s, g, i, p: plain(s, g, i, p, s.rate if i == 0 else 1.0), rate=1.0),
     at(3, lambda m, o: setattr(o, "rate", 0.2)), "eager"),
    ("table filled", rule(lambda s, g, i, p: plain(s, g, i, p, s.rates.get(p, 1.0)), rates={}),
     at(3, lambda m, o: o.rates.update({m.out.weight: 0.3})), "eager"),
    ("table given", rule(lambda s, g, i, p: plain(s, g, i, p, getattr(s, "rates", {}).get(p, 1.0))),
     at(3, lambda m, o: setattr(o, "rates", {m.out.weight: 0.3})), "eager"),
    ("global table filled", rule(lambda s, g, i, p: plain(s, g, i, p, TABLE.get(p, 1.0))),
     lambda i, m, o: TABLE.clear() if i == 0 else TABLE.update({m.out.weight: 0.3}), "eager"),
    ("global setting", rule(lambda s, g, i, p: plain(s, g, i, p, OUTSIDE["rate"])),
     lambda i, m, o: OUTSIDE.update(rate=1.0 / (1 + i)), "twin"),
    ("float in the state", rule(lambda s, g, i, p: plain(s, g, i, p, s.state[p].setdefault("rate", 1.0))),
     at(3, lambda m, o: o.state[m.first.weight].update(rate=0.1)), "twin"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "event", "expected"), [case[1:] for case in EVENTS], ids=[case[0] for case in EVENTS])
def test_an_event_is_equal(make: Callable[[nn.Module], Any], event: Event, expected: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager, _ = train(make, event, False)
        planned, run = train(make, event, True)
    for index, (a, b) in enumerate(zip(eager, planned, strict=True)):
        for part, x, y in zip(("loss", "parameters", "gradients", "state", "attributes"), a, b, strict=True):
            assert same(x, y), f"{part} after step {index}: {run.explain_guards()}"
    assert expected == "any" or served(run) == expected, run.explain_guards()
    print(served(run), run.stats()["captures"])
