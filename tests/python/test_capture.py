"""lowtide.capture: the graph of a step, with nothing computed and nothing changed."""

import contextlib
import copy

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import lowtide
from step_models import MODELS, OPTIMIZERS, pairings, plain_step, same


@pytest.mark.parametrize(("model", "optimizer"), pairings(0))
def test_capture_plan_verify(model, optimizer):
    torch.manual_seed(0)
    module = MODELS[model][0]()
    opt = OPTIMIZERS[optimizer](module.parameters())
    batch = MODELS[model][1]()
    before = copy.deepcopy((module.state_dict(), opt.state_dict(), torch.get_rng_state()))
    with lowtide.measure() as used:
        graph = lowtide.capture(plain_step(module, opt), model=module, optimizer=opt, example=(batch,))
    assert used.peak_bytes < 16384, "no more than a copy of the random state"
    assert same(before, (module.state_dict(), opt.state_dict(), torch.get_rng_state()))
    assert all(parameter.grad is None for parameter in module.parameters())

    plan = lowtide.plan(graph, order="program", reuse=False)
    lowtide.verify(graph, plan)
    assert plan.order == list(range(graph.num_ops))
    assert plan.peak_bytes == graph.program_peak_bytes <= plan.arena_bytes
    assert lowtide.plan(graph).peak_bytes <= plan.peak_bytes and lowtide.plan(graph).arena_bytes <= plan.arena_bytes
    parameters = sum(p.numel() * p.element_size() for p in module.parameters())
    assert graph.resident_bytes >= parameters
    sources = [graph.op_source(op) for op in range(graph.num_ops)]
    assert all(source.rpartition(":")[2].isdigit() for source in sources)
    modules = {graph.op_module(op) for op in range(graph.num_ops)}
    assert set(dict(module.named_parameters())) <= modules, "updates are scheduled parameter by parameter"


def test_program_order_peak_is_what_eager_takes():
    """The live-bytes timeline against the yardstick, on a step whose operators need no workspaces."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(*[torch.nn.Linear(64, 64, bias=False) for _ in range(4)])
    opt = torch.optim.SGD(module.parameters(), lr=0.1)

    def step(x):
        loss = module(x).square().sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss.detach()

    x = torch.randn(32, 64)
    graph = lowtide.capture(step, model=module, optimizer=opt, example=(x,))
    step(x)
    with lowtide.measure() as used:
        loss = step(x)
    assert abs(used.peak_bytes - loss.nbytes - graph.program_peak_bytes) <= 64


@pytest.mark.parametrize(("model", "optimizer"), pairings(2))
def test_a_model_without_weights_has_the_same_graph(model, optimizer):
    graphs = []
    for mode in (contextlib.nullcontext(), FakeTensorMode()):
        with mode:
            module = MODELS[model][0]()
            batch = MODELS[model][1]()
        module.register_parameter("scale", next(module.parameters()))
        module.scale.note = "hung on a parameter by its owner"
        opt = OPTIMIZERS[optimizer](module.parameters())
        with lowtide.measure() as used:
            graph = lowtide.capture(plain_step(module, opt), model=module, optimizer=opt, example=(batch,))
        assert used.peak_bytes < 16384
        graphs.append(graph)
    real, fake = graphs
    assert fake.summary() == real.summary()
    assert [fake.op_name(op) for op in range(fake.num_ops)] == [real.op_name(op) for op in range(real.num_ops)]
    with pytest.raises(lowtide.CaptureError, match="no weights to run with"):
        lowtide.compile(plain_step(module, opt), model=module, optimizer=opt)


def test_a_fake_tensor_from_outside_is_a_constant_of_the_step():
    with FakeTensorMode():
        module = torch.nn.Linear(8, 8)
        scale, x = torch.randn(8), torch.randn(4, 8)
    opt = torch.optim.SGD(module.parameters(), lr=0.1)

    def step(x):
        opt.zero_grad()
        loss = (module(x) * scale).sum()
        loss.backward()
        opt.step()
        return loss.detach()

    graph = lowtide.capture(step, model=module, optimizer=opt, example=(x,))
    assert "constant 32 B" in graph.summary()


def test_backward_operators_are_from_the_line_of_their_forward():
    first, second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 16)
    module = torch.nn.ModuleList([first, second])

    def step(x):
        hidden = first(x)
        bounded = hidden.tanh()
        noise = torch.ones(1)
        wide = second(bounded)
        loss = wide.log_softmax(-1).mul(noise).sum()
        loss.backward()
        module.zero_grad()
        return loss.detach()

    graph = lowtide.capture(step, model=module, example=(torch.randn(2, 4),))
    begin = step.__code__.co_firstlineno
    lines = {
        graph.op_name(op): (int(graph.op_source(op).rpartition(":")[2]) - begin, graph.op_module(op))
        for op in range(graph.num_ops)
    }
    assert lines["aten.tanh_backward.default"] == lines["aten.tanh.default"] == (2, "")
    assert lines["aten._log_softmax_backward_data.default"] == lines["aten._log_softmax.default"] == (5, "")
    products = [op for op in range(graph.num_ops) if graph.op_name(op) == "aten.mm.default"]
    assert [graph.op_module(op) for op in products] == ["1", "1", "0"]


def test_gradients_of_a_loss_do_not_wait_for_it():
    """They begin with ones of its form: in another order, the backward pass could come first."""
    w = torch.nn.Parameter(torch.randn(3, 4))
    model = torch.nn.ParameterList([w])

    def step(x):
        loss = (x * w).sum()
        loss.backward()
        like = torch.zeros_like(w.T)  # lies as what it is like, not as a new tensor
        return loss, like

    graph = lowtide.capture(step, model=model, example=(torch.randn(3, 4),))
    names = [graph.op_name(op) for op in range(graph.num_ops)]
    assert names.count("aten.full.default") == 1 and "aten.ones_like.default" not in names
    assert "aten.zeros_like.default" in names
    planned = lowtide.compile(step, model=model, on_unsupported="raise")
    x = torch.randn(3, 4)
    for _ in range(2):
        w.grad = None
        loss, like = planned(x)
        assert torch.equal(w.grad, x) and torch.equal(loss, (x * w).sum()) and like.stride() == w.T.stride()
    planned.close()
