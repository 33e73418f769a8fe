"""Modes, random states and modules around deferred work: each call is made under what held when Python asked for it."""

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import dropout, scaled_dot_product_attention

from live_cases import Cases, World, check, dropping, normalising

cases = Cases()

# -- random states -----------------------------------------------------------------------------------------------------


@cases.add(model=dropping)
def seeds_before_it_draws(w, x):
    torch.manual_seed(5)
    return w.train(w.loss(x)), torch.rand(2)


@cases.add("none", said="random state is set", model=dropping)
def seeds_between_draws(w, x):
    out = w.model(x)
    torch.manual_seed(5)
    return w.train(dropout(out, 0.5).pow(2).mean()), torch.rand(2)


@cases.add("none", said="random state is set", model=dropping)
def seeds_after_it_has_drawn(w, x):
    out = w.model(x)
    torch.manual_seed(5)
    return w.train(out.pow(2).mean()), torch.rand(2)


@cases.add("none", said="reads the random state", model=dropping)
def reads_the_state_in_the_middle(w, x):
    out = w.model(x)
    w.seen[:] = [torch.get_rng_state()]
    return w.train(out.pow(2).mean())


@cases.add(model=dropping)
def draws_all_along(w, x):
    noise = torch.rand(12, 8)
    out = w.model(x + noise)
    mixed = out + torch.randn_like(out) * torch.rand(())
    first = mixed.mean().item()
    return w.train(dropout(mixed).pow(2).mean()), first, torch.rand(2)


@cases.add("none", said="Generator is an argument")
def draws_from_its_own_generator(w, x):
    out = w.model(x)
    return w.train((out + torch.randn(12, 4, generator=torch.Generator().manual_seed(w.calls))).pow(2).mean())


# -- autocast ----------------------------------------------------------------------------------------------------------


def half() -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16)


@cases.add()
def casts_twice_in_a_region(w, x):
    with half():
        loss = w.loss(x) + w.loss(x * 2)
    return w.train(loss)


@cases.add()
def fails_after_two_regions(w, x):
    w.optimizer.zero_grad()
    with half():
        first = w.loss(x)
    with half():
        second = w.loss(x * 1.7)
    (first + second).backward()
    if w.calls in (3, 4):
        raise ValueError("planted")
    w.optimizer.step()


@cases.made()
def fails_before_weights_change(w: World):
    """Casts of weights that the failed call has made must not be found by the next region."""

    def step(x):
        with half():
            loss = w.loss(x)
        if w.calls in (3, 5):
            raise ValueError("planted")
        return w.train(loss)

    def inputs_that_look(call: int) -> torch.Tensor:
        with torch.no_grad():
            w.model[0].weight.mul_(1.5)
        with half():
            w.seen.append(w.model(torch.ones(2, 8)).float().detach())
        return torch.randn(12, 8)

    cases["fails_before_weights_change"].inputs = inputs_that_look
    return step


@cases.add("some")
def trains_twice_in_a_region(w, x):
    with half():
        first = w.loss(x)
        w.train(first)
        second = w.train(w.loss(x))
    return first.item(), second


@cases.add("none")
def trains_twice_in_a_region_and_looks_at_the_graph(w, x):
    with half():
        w.train(w.loss(x))
        loss = w.loss(x)
        w.seen.append(loss.grad_fn is not None)
        return w.train(loss)


@cases.add()
def clears_casts_of_weights_that_it_has_changed(w, x):
    with half():
        first = w.model(x)
        with torch.no_grad():
            for parameter in w.model.parameters():
                parameter.mul_(1.25)
        torch.clear_autocast_cache()
        second = w.model(x)
    return w.train((first.float() + second.float()).pow(2).mean())


@cases.add("none", said="autocast is switched on by hand")
def switches_autocast_on_by_hand(w, x):
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    torch.set_autocast_enabled("cpu", True)
    try:
        y = w.model(x)
    finally:
        torch.set_autocast_enabled("cpu", False)
    return w.train(y.float().pow(2).mean())


# -- modes of modules --------------------------------------------------------------------------------------------------


@cases.add(model=normalising)
def evaluates_inside(w, x):
    w.model.eval()
    with torch.no_grad():
        before = w.model(x)
    w.model.train()
    loss = w.loss(x)
    w.train(loss)
    w.model.eval()
    with torch.no_grad():
        after = w.model(x).mean().item()
    w.model.train()
    return before, loss.detach(), after


class Attends(nn.Linear):
    def forward(self, x):
        q = super().forward(x).view(1, 2, 6, 8)
        return scaled_dot_product_attention(q, q, q)


@cases.add(model=lambda: Attends(8, 8))
def chooses_kernels(w, x):
    with sdpa_kernel(SDPBackend.MATH if w.calls % 2 else SDPBackend.FLASH_ATTENTION):
        loss = w.loss(x)
    return w.train(loss)


SCALE = [1.0]


class Scaled(nn.Linear):
    """Looks at a global, at its configuration and at tensors that are no buffers."""

    def __init__(self) -> None:
        super().__init__(8, 4)
        self.config, self.shift = {"k": 1.0}, torch.zeros(4)

    def forward(self, x):
        return super().forward(x) * SCALE[0] * self.config["k"] + self.shift


@cases.add(model=Scaled)
def changes_what_its_model_looks_at(w, x):
    SCALE[0] = 1.0 + w.calls // 3
    w.model.config["k"] = 1.0 + w.calls // 5
    w.model.shift = torch.full((4,), float(w.calls))
    return w.train(w.loss(x))


@cases.add(model=Scaled)
def changes_a_global_between_two_calls(w, x):
    SCALE[0] = 1.0
    first = w.loss(x)
    SCALE[0] = 2.0
    return w.train(first + w.loss(x)), first.detach()


class Counts(Scaled):
    def forward(self, x):
        self.config["k"] += 1
        return super().forward(x)


@cases.add("none", model=Counts, said="changes")
def has_a_model_that_counts(w, x):
    SCALE[0] = 1.0
    return w.train(w.loss(x)), w.model.config["k"]


def with_hook(w: World) -> None:
    w.model[0].register_forward_hook(lambda _module, _args, out: w.seen.append(out))


@cases.add("none", setup=with_hook, said="changes")
def collects_features(w, x):
    w.seen.clear()
    return w.train(w.loss(x) + sum(feature.abs().mean() for feature in w.seen))


class Replaces(nn.Linear):
    def __init__(self) -> None:
        super().__init__(8, 4)
        self.register_buffer("average", torch.zeros(4))

    def forward(self, x):
        out = super().forward(x)
        self.average = 0.9 * self.average + 0.1 * out.detach().mean(0)
        return out - self.average


@cases.add(model=Replaces)
def has_a_model_that_replaces_its_buffer(w, x):
    loss = w.loss(x) + w.loss(x * 2)
    average = w.model.average
    if w.calls in (3, 5):
        raise ValueError("planted")
    return w.train(loss), average, average is w.model.average


@pytest.mark.parametrize("name", cases)
def test_deferred_work_is_done_under_its_own_modes(name: str) -> None:
    check(cases[name])


@pytest.mark.parametrize("enabled", [True, False])
def test_autocast_around_all_calls_is_part_of_them(enabled: bool) -> None:
    """Eager keeps casts from call to call, of weights as they were: a call after the first finds them."""
    around = Cases()

    @around.made("some" if enabled else "all")
    def step_under_autocast(w: World):
        def step(x):
            return w.train(w.loss(x))

        return step

    with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
        check(around["step_under_autocast"])
