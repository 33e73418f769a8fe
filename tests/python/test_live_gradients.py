"""Gradients and graphs in live steps: who makes them, who reads them, and what must see real tensors."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_ as clip_by_another_name
from torch.utils.checkpoint import checkpoint

from live_cases import Cases, World, check

cases = Cases()

# -- gradients ---------------------------------------------------------------------------------------------------------


@cases.add()
def accumulates_and_reads(w, x):
    w.optimizer.zero_grad()
    total = 0.0
    for part in x.chunk(4):
        loss = w.loss(part) / 4
        loss.backward()
        total += loss.item()
    w.optimizer.step()
    return total


@cases.add()
def accumulates_into_zeros(w, x):
    w.optimizer.zero_grad(set_to_none=False)
    losses = []
    for part in x.chunk(4):
        loss = w.loss(part) / 4
        loss.backward()
        losses.append(loss.detach())
    w.optimizer.step()
    return sum(losses)


@cases.add("some")
def reads_a_weight_behind_gradients_that_add_up(w, x):
    w.optimizer.zero_grad(set_to_none=False)
    w.loss(x).backward()
    if w.calls % 2:
        w.optimizer.step()
    return next(w.model.parameters()).norm().item()


@cases.add("none")
def reads_a_value_behind_statistics_of_another_module(w, x):
    if not w.beside:
        w.beside.append(nn.BatchNorm1d(8))
    loss = w.loss(x)
    with torch.no_grad():
        beside = w.beside[0](x).sum()
    w.seen.append((loss + beside).item())
    return w.train(loss)


@cases.add(model=lambda: nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)))
def reads_parts_of_buffers(w, x):
    loss = w.loss(x)
    mean = w.model[1].running_mean
    w.seen += [mean[0].item(), mean[1:3].tolist(), mean.detach().tolist(), bool(mean[2] > 0)]
    return w.train(loss)


@cases.add("none")
def reads_a_weight_that_it_changes(w, x):
    weight = next(w.model.parameters())
    with torch.no_grad():
        weight.add_(0.125)
    w.seen += [weight.norm().item(), weight.sum().tolist(), weight.tolist()]
    return w.train(w.loss(x))


@cases.add()
def accumulates_over_calls(w, x):
    loss = w.loss(x)
    loss.backward()
    if w.calls % 4 == 0:
        w.optimizer.step()
        w.optimizer.zero_grad()
    return loss.detach()


@cases.add()
def sets_gradients_before_backward(w, x):
    w.optimizer.zero_grad()
    if w.calls % 2:
        for p in w.model.parameters():
            p.grad = torch.ones_like(p)
    w.loss(x).backward()
    w.optimizer.step()


@cases.add()
def branches_on_the_norm(w, x):
    w.optimizer.zero_grad()
    w.loss(x).backward()
    norm = nn.utils.clip_grad_norm_(w.model.parameters(), 0.1)
    if norm > 0.05:
        w.optimizer.step()
    return norm


@cases.add()
def takes_norms_by_hand(w, x):
    w.optimizer.zero_grad()
    w.loss(x).backward()
    norm = sum(p.grad.pow(2).sum() for p in w.model.parameters() if p.grad is not None) ** 0.5
    for p in w.model.parameters():
        p.grad.mul_(0.5)
    clip_by_another_name(w.model.parameters(), 0.1)
    w.optimizer.step()
    return norm


def with_scaler(w: World) -> None:
    w.own.scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3)


@cases.add(setup=with_scaler)
def scales_its_loss(w, x):
    w.optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = w.loss(x)
    w.own.scaler.scale(loss).backward()
    w.own.scaler.unscale_(w.optimizer)
    nn.utils.clip_grad_norm_(w.model.parameters(), 1.0)
    w.own.scaler.step(w.optimizer)
    w.own.scaler.update()
    return loss.item(), w.own.scaler.get_scale()


# -- graphs ------------------------------------------------------------------------------------------------------------


@cases.add()
def goes_back_twice_through_a_graph(w, x):
    w.optimizer.zero_grad()
    out = w.model(x)
    first, second = out.pow(2).mean(), out.abs().mean()
    first.backward(retain_graph=True)
    second.backward()
    w.optimizer.step()
    return first.detach(), second.detach()


@cases.add()
def asks_autograd_for_gradients(w, x):
    loss = w.loss(x)
    gradients = torch.autograd.grad(loss, list(w.model.parameters()))
    for p, gradient in zip(w.model.parameters(), gradients, strict=True):
        p.grad = gradient * 0.5
    w.optimizer.step()
    return loss.detach(), gradients[0]


@cases.add()
def differentiates_twice(w, x):
    loss = w.model(x).pow(3).mean()
    gradients = torch.autograd.grad(loss, list(w.model.parameters()), create_graph=True)
    return w.train(loss + sum(gradient.pow(2).sum() for gradient in gradients))


@cases.add()
def checkpoints_a_module(w, x):
    inner = checkpoint(w.model[0], x, use_reentrant=False)
    return w.train(w.model[2](w.model[1](inner)).pow(2).mean())


@cases.add()
def calls_the_model_with_other_weights(w, x):
    weights = {name: parameter * 0.9 for name, parameter in w.model.named_parameters()}
    return w.train(torch.func.functional_call(w.model, weights, (x,)).pow(2).mean())


@cases.add("none", said="function transform")
def transforms_the_model(w, x):
    def loss_of(weights):
        return torch.func.functional_call(w.model, weights, (x,)).pow(2).mean()

    gradients = torch.func.grad(loss_of)(dict(w.model.named_parameters()))
    for name, parameter in w.model.named_parameters():
        parameter.grad = gradients[name].detach()
    w.optimizer.step()


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


@cases.add("none", said="autograd function")
def has_an_autograd_function(w, x):
    return w.train(Tripled.apply(w.model(x)).pow(2).mean())


@cases.add("none", said="function is an argument")
def hooks_an_output(w, x):
    out = w.model(x)
    out.register_hook(lambda gradient: w.seen.append(gradient.norm().item()) or gradient * 2)
    return w.train(out.pow(2).mean())


def with_counting_hook(w: World) -> None:
    w.model[0].weight.register_post_accumulate_grad_hook(lambda _: w.seen.append(len(w.seen)))


@cases.add("none", said="changes", setup=with_counting_hook)
def has_a_hook_that_counts(w, x):
    return w.train(w.loss(x))


@cases.add("none", said="keeps the gradient")
def keeps_the_gradient_of_an_output(w, x):
    out = w.model(x)
    out.retain_grad()
    w.train(out.pow(2).mean())
    return out.grad


@cases.add("none", said="optimizer.step(closure)")
def steps_with_a_closure(w, x):
    def closure():
        w.seen.append(w.calls)
        w.optimizer.zero_grad()
        loss = w.loss(x)
        loss.backward()
        return loss

    return w.optimizer.step(closure).detach()


# -- gradients that are not the model's --------------------------------------------------------------------------------


@cases.add("none", said="has hooks")
def hooks_its_input(w, x):
    x = x.clone().requires_grad_()
    x.register_hook(lambda gradient: 3 * gradient)
    (gradient,) = torch.autograd.grad(w.model(x).sum(), x)
    return w.train((w.model(x.detach()) * gradient.sum()).pow(2).mean())


def hook_additions(w: World) -> None:
    """Each gradient is doubled before it is added."""
    w.own.nodes = [p.view_as(p).grad_fn.next_functions[0][0] for p in w.model.parameters()]
    for node in w.own.nodes:
        node.register_prehook(lambda gradients: tuple(2 * gradient for gradient in gradients))


@cases.add("none", said="has hooks on the node", setup=hook_additions)
def hooks_additions_to_gradients(w, x):
    return w.train(w.loss(x))


@cases.add("some")
def hooks_additions_to_gradients_later(w, x):
    loss = w.train(w.loss(x))
    if w.calls == 3:
        hook_additions(w)
    return loss


@cases.add("none", said="has hooks, which")
def hooks_additions_to_the_gradient_of_its_input(w, x):
    x.requires_grad_()
    node = x.view_as(x).grad_fn.next_functions[0][0]
    node.register_prehook(lambda gradients: tuple(2 * gradient for gradient in gradients))
    return w.train(w.loss(x))


@cases.add("none", said="function is an argument")
def hooks_its_input_in_mid_step(w, x):
    x = x.clone().requires_grad_()
    out = w.model(x).sum()
    x.register_hook(lambda gradient: 3 * gradient)
    (gradient,) = torch.autograd.grad(out, x)
    return w.train((w.model(x.detach()) * gradient.sum()).pow(2).mean())


@cases.add("none", said="sets whether a tensor that the step has used")
def lets_its_input_require_a_gradient_in_mid_step(w, x):
    loss = w.loss(x)
    x.requires_grad_()
    w.seen.append(x.requires_grad)
    return w.train(loss + w.loss(x.detach())), x.requires_grad


@cases.add("none", said="sets whether a tensor that the step has used")
def sets_that_its_input_requires_a_gradient(w, x):
    loss = w.train(w.loss(x))
    again = w.loss(x)
    x.requires_grad = True
    w.seen.append(x.requires_grad)
    return loss, again.detach()


@cases.add("none", said="a leaf of its own")
def lets_another_tensor_require_a_gradient_in_mid_step(w, x):
    loss, other = w.loss(x), torch.ones(3)
    other.requires_grad = True
    w.seen.append(other.requires_grad)
    w.seen.append(torch.ones(3).requires_grad_().requires_grad)
    return w.train(loss)


@cases.add()
def attacks_its_input(w, x):
    w.loss(x.requires_grad_()).backward()
    worse = (x + 0.1 * x.grad.sign()).detach()
    return worse, w.train(w.loss(worse))


@cases.add()
def follows_the_slope_of_its_output(w, x):
    """As networks that solve differential equations do."""
    x = x.clone().requires_grad_()
    out = w.model(x)
    (slope,) = torch.autograd.grad(out, x, torch.ones_like(out), create_graph=True)
    (bend,) = torch.autograd.grad(slope, x, torch.ones_like(slope), create_graph=True)
    loss = w.train((out.mean(1) + slope[:, 0] - bend[:, 1]).pow(2).mean())
    return loss, x.grad


@cases.add()
def reads_and_clears_the_gradient_of_its_input(w, x):
    x.requires_grad_()
    w.optimizer.zero_grad()
    w.loss(x).backward()
    first = x.grad.clone()
    x.grad.zero_()
    w.loss(2 * x).backward()
    w.optimizer.step()
    w.seen.append(copy.deepcopy(x).grad)
    return first, x.grad


def with_sums(w: World) -> None:
    w.own.sum = torch.zeros(())


@cases.add("none", said="still needs its backward pass")
def leaves_a_graph_in_a_tensor_that_was_there(w, x):
    loss = w.train(w.loss(x))
    total = torch.zeros(())
    w.seen[:] = [total]
    total += w.loss(x)
    return loss


@cases.add("none", said="still needs its backward pass")
def leaves_a_graph_in_a_tensor_before_it_steps(w, x):
    total = torch.zeros(())
    w.optimizer.zero_grad()
    loss = w.loss(x)
    loss.backward()
    total += w.loss(2 * x)
    w.seen[:] = [total]
    w.optimizer.step()
    return loss.detach()


@cases.add(setup=with_sums)
def sums_up_in_a_tensor_of_its_own(w, x):
    w.optimizer.zero_grad()
    with torch.no_grad():
        w.own.sum += w.loss(x)
    total = torch.zeros(())
    total += w.loss(x)
    total.backward()
    w.optimizer.step()
    return w.own.sum.clone()


@cases.add("none", said="sets whether a tensor that the step has used")
def detaches_its_input_in_place(w, x):
    loss = w.train(w.loss(x.requires_grad_()))
    again = w.loss(x)
    x.detach_()
    w.seen.append(x.requires_grad)
    return loss, again.detach()


@cases.add("some")
def adds_to_the_gradient_of_an_input_that_it_keeps(w, x):
    if not w.seen:
        w.seen.append(x.clone().requires_grad_())
    return w.train(w.loss(w.seen[0]))


@cases.add("none", said="sets the gradient of a tensor that is not the model's")
def drops_the_gradient_of_its_input(w, x):
    x.requires_grad_()
    w.optimizer.zero_grad()
    w.loss(x).backward()
    gradient, x.grad = x.grad, None
    w.optimizer.step()
    return gradient


@cases.add()
def fails_behind_the_gradient_of_its_input(w, x):
    x.requires_grad_()
    loss = w.loss(x)
    loss.backward()
    if w.calls == 3:
        raise ValueError
    w.optimizer.step()
    w.optimizer.zero_grad()
    return loss.detach()


def with_a_head(w: World) -> None:
    w.beside.append(nn.Linear(4, 1))
    w.own.optimizer = torch.optim.Adam(w.beside[0].parameters(), 0.01)


@cases.add("some", setup=with_a_head)
def leaves_gradients_in_another_model(w, x):
    return w.train(w.beside[0](w.model(x)).pow(2).mean())


@cases.add("none", said="steps before a backward pass", setup=with_a_head)
def trains_another_model_beside(w, x):
    made = w.model(x)
    w.own.optimizer.zero_grad()
    judged = w.beside[0](made.detach()).mean() - w.beside[0](torch.ones(12, 4)).pow(2).mean()
    judged.backward()
    w.own.optimizer.step()
    return judged.item(), w.train(-w.beside[0](made).mean())


@cases.add(setup=with_a_head)
def looks_through_another_model(w, x):
    w.beside[0].requires_grad_(False)
    loss = w.train(w.beside[0](w.model(x)).pow(2).mean())
    w.beside[0].weight.grad = None
    return loss


@cases.add()
def gets_the_very_tensors_that_are_gradients(w, x):
    w.optimizer.zero_grad()
    w.loss(x).backward()
    gradients = [p.grad for p in w.model.parameters()]
    w.optimizer.step()
    same = [gradient is p.grad for gradient, p in zip(gradients, w.model.parameters(), strict=True)]
    w.optimizer.zero_grad(set_to_none=False)
    return gradients, same


# -- parameters --------------------------------------------------------------------------------------------------------


@cases.add()
def freezes_a_parameter_later(w, x):
    w.model[0].weight.requires_grad_(w.calls % 4 != 3)
    return w.train(w.loss(x))


@cases.add()
def uses_half_of_the_model(w, x):
    return w.train(w.model[0](x).pow(2).mean())


@cases.add()
def calls_a_module_three_times(w, x):
    h = w.model[0](x)
    return w.train((w.model[2](h) + w.model[2](h.relu()) - w.model[2](-h)).pow(2).mean())


@cases.add()
def loads_weights_in_the_middle(w, x):
    loss = w.train(w.loss(x))
    if w.calls in (2, 5):
        w.model.load_state_dict({name: torch.full_like(t, 0.1) for name, t in w.model.state_dict().items()})
    return loss


@cases.add("some")
def has_new_parameters_later(w, x):
    if w.calls == 4:
        w.model.load_state_dict({k: v.clone() for k, v in w.model.state_dict().items()}, assign=True)
        w.optimizer.param_groups[0]["params"] = list(w.model.parameters())
    return w.train(w.loss(x))


class Averages(nn.Module):
    """With noise and an average that is another buffer each time, inside a checkpoint that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.turns = nn.Linear(8, 8), 0
        self.register_buffer("average", torch.zeros(8))

    def noisy(self, x):
        self.average = self.average * 0.9 + x.detach().mean(0) * 0.1
        return self.linear(x - self.average) + torch.randn(8)

    def forward(self, x):
        return checkpoint(self.noisy, self.linear(x), use_reentrant=False)


@cases.add("none", model=Averages)
def departs_after_a_buffer_and_python_have_changed(w, x):
    loss = w.loss(x)
    w.model.turns += 1
    w.train(loss)
    return torch.get_rng_state().sum()


@cases.add()
def asks_for_gradients_through_the_graph_of_the_call_before(w, x):
    loss = w.loss(x) + sum(w.seen[-1:])
    parameters = list(w.model.parameters())
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient
    w.optimizer.step()
    w.seen.append(loss)
    return loss.detach()


@pytest.mark.parametrize("name", cases)
def test_gradients_are_those_of_eager(name: str) -> None:
    check(cases[name])
