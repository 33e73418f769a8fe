"""What rules hold of the parameter before: found by running them on two, and counted where eager is simulated."""

import pytest
import torch
from torch import nn

import lowtide
from lowtide._optimizer.lives import held_over
from lowtide._optimizer.snapshot import Snapshot, containers_of

_aten = torch.ops.aten


def found(make, **options) -> dict[str, str]:
    """The operator that makes it, and the last one of the next update while which it is held."""
    optimizer = make([nn.Parameter(torch.zeros(3))], **options)
    state = torch.get_rng_state()
    before = Snapshot(optimizer, containers_of(optimizer))
    calls, through = held_over(before, optimizer.param_groups[0], nn.Parameter(torch.zeros(1)))
    assert torch.equal(state, torch.get_rng_state()) and not optimizer.state
    return {calls[made]._schema.name: calls[last]._schema.name for made, last in through.items()}


class Plain(torch.optim.Optimizer):
    """Keeps what it made in a variable, or lets it go."""

    def __init__(self, parameters, *, let_go: bool) -> None:
        super().__init__(parameters, {})
        self.let_go = let_go

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for parameter in self.param_groups[0]["params"]:
            scaled = parameter.grad.mul(0.1)
            parameter.sub_(scaled)
            if self.let_go:
                del scaled


class Random(torch.optim.Optimizer):
    def __init__(self, parameters) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.add_(torch.randn_like(parameter))


@pytest.mark.parametrize(
    ("make", "options", "wanted"),
    [
        (torch.optim.Adam, {}, {"aten::div": "aten::add_"}),
        (torch.optim.RMSprop, {}, {"aten::sqrt": "aten::sqrt"}),
        (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.1}, {}),
        (torch.optim.Adam, {"foreach": True}, {}),
        (torch.optim.Adam, {"fused": True}, {}),
        (Plain, {"let_go": False}, {"aten::mul": "aten::mul"}),
        (Plain, {"let_go": True}, {}),
        (Random, {}, {}),
    ],
)
def test_what_is_held_over(make, options, wanted) -> None:
    assert found(make, **options) == wanted


@pytest.mark.parametrize(("make", "groups", "wanted"), [("Adam", 1, 3), ("Adam", 2, 2), ("SGD", 1, 0)])
def test_it_counts_in_eager_steps(make: str, groups: int, wanted: int) -> None:
    """The peak is where the second of two equal parameters is updated; variables do not go from group to group."""
    model = nn.ParameterList([nn.Parameter(torch.ones(1 << 16)) for _ in range(2)])
    parameters = [{"params": [one]} for one in model] if groups == 2 else list(model)
    optimizer = getattr(torch.optim, make)(parameters, lr=0.1)

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        (model[0] @ x + model[1] @ x).backward()
        optimizer.step()

    x = torch.ones(1 << 16)
    step(x)
    report = lowtide.fit(step, model=model, optimizer=optimizer, example=(x,), device="cpu", largest=False)
    optimizer.zero_grad()
    with lowtide.measure() as used:
        step(x)
    gradients = 2 * x.nbytes
    assert used.peak_bytes == pytest.approx(gradients + wanted * x.nbytes, abs=1024)
    next_batch = gradients + x.nbytes  # it comes before gradients are zeroed
    most = max(used.peak_bytes, next_batch)
    assert report.plain.live_bytes == pytest.approx(report.planned.resident_bytes + most, abs=1024)
