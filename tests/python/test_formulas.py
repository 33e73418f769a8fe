"""What PyTorch computes by another formula while it is recorded does not run from a recording.

LOWTIDE_FULL=1   also looks through all of PyTorch's own samples of its functions, for two minutes
"""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import lowtide
from lowtide._base.same_bits import same_bits
from lowtide._capture.formulas import _NODES, _NODES_ON_CPUS
from step_models import FULL

TARGETS = torch.arange(64) % 12
TARGETS[::3] = -100
WEIGHTS = torch.linspace(0.1, 1, 12)

REFUSED = {
    "torch.max": lambda y: y.square().mean() - y.max(),
    "torch.min": lambda y: y.min() * 1e30 * 1e30 + 0 * y.sum(),
    "torch.median": lambda y: -y.median(),
    "torch.nanmedian": lambda y: -y.nanmedian(),
    "torch.prod": lambda y: (1 + y.abs()).prod(1).mean(),
    "of torch.prod": lambda y: y[:2, :2].prod(),
    "torch.cumprod": lambda y: y.relu().cumprod(1).sum(),
    "masked_fill": lambda y: (y * y.masked_fill(y > 0, y.mean())).sum(),
    "masked_fill with": lambda y: (y * 1).masked_fill_(y > 0, y.mean()).square().sum(),
    "cross_entropy": lambda y: F.cross_entropy(y, TARGETS, weight=WEIGHTS, label_smoothing=0.1),
    "cross_entropy with": lambda y: torch.nn.CrossEntropyLoss(WEIGHTS, label_smoothing=0.1)(
        y.view(8, 8, 12).transpose(1, 2), TARGETS.view(8, 8)
    ),
}

PLANNED = {
    "amax": lambda y: y.amax(),
    "maxima of rows": lambda y: y.max(1).values.sum(),
    "a maximum that nobody differentiates": lambda y: (y / y.detach().max()).sum(),
    "where": lambda y: torch.where(y > 0, y.mean(), y).square().sum(),
    "masked_fill with a number": lambda y: y.masked_fill(y > 0, 2.0).square().sum(),
    "class weights": lambda y: F.cross_entropy(y, TARGETS, weight=WEIGHTS),
    "label smoothing": lambda y: F.cross_entropy(y, TARGETS, label_smoothing=0.1),
    "both, summed": lambda y: F.cross_entropy(y, TARGETS, weight=WEIGHTS, label_smoothing=0.1, reduction="sum"),
    "both, of probabilities": lambda y: F.cross_entropy(
        y, torch.full((64, 12), 1 / 12), weight=WEIGHTS, label_smoothing=0.1
    ),
}


def train(loss, **options):
    """Losses, gradients and weights as bits, and the step."""
    torch.manual_seed(0)
    model = torch.nn.Linear(12, 12)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        value = loss(model(x))
        value.backward()
        optimizer.step()
        return value

    run = lowtide.compile(step, model=model, optimizer=optimizer, **options) if options else step
    losses = [run(torch.randn(64, 12)).detach().clone() for _ in range(3)]
    found = [*losses, *(p.grad for p in model.parameters()), *model.parameters()]
    return [tensor.detach().contiguous().view(torch.int32) for tensor in found], run


@pytest.mark.parametrize("name", REFUSED)
def test_eager_chooses_by_data(name):
    expected, _ = train(REFUSED[name])
    with pytest.warns(RuntimeWarning) as said:
        found, step = train(REFUSED[name], on_unsupported="eager")
    assert all(map(torch.equal, expected, found))
    assert step.stats()["eager_calls"] == 3
    (warning,) = [each for each in said if "lowtide" in str(each.message)]
    assert warning.filename == __file__  # the line of the caller
    told = str(warning.message)
    assert f"{name} " in told and "looks at data" in told and "test_formulas.py" in told


@pytest.mark.parametrize("name", PLANNED)
def test_what_is_planned_has_eagers_bits(name):
    expected, _ = train(PLANNED[name])
    found, step = train(PLANNED[name], on_unsupported="raise")
    assert all(map(torch.equal, expected, found))
    assert step.stats()["eager_calls"] == 0


def test_a_prediction_needs_no_bits():
    """Nothing runs: another formula has nearly the same memory."""
    model = torch.nn.Linear(12, 12)

    def step(x):
        REFUSED["torch.prod"](model(x)).backward()

    assert lowtide.capture(step, model=model, example=(torch.randn(64, 12),)).num_ops > 0


class Watch(TorchDispatchMode):
    """Does nothing but watch."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def gradients(function, sample, watched):
    """Results and gradients."""
    torch.manual_seed(0)
    arguments = tree_map(
        lambda x: x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x,
        (sample.input, sample.args, sample.kwargs),
    )
    inputs = [x for x in tree_leaves(arguments) if isinstance(x, torch.Tensor) and x.requires_grad]
    with Watch() if watched else warnings.catch_warnings():
        results = [x for x in tree_leaves(function(arguments[0], *arguments[1], **arguments[2])) if torch.is_tensor(x)]
        outputs = [x for x in results if x.requires_grad]
        if not outputs:
            return [], results
        found = torch.autograd.grad(outputs, inputs, [torch.randn_like(x) for x in outputs], allow_unused=True)
    return {x.grad_fn.name() for x in outputs if x.grad_fn}, [*results, *(x for x in found if x is not None)]


def all_same(first, second):
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a.layout is torch.strided]
    return all(same_bits(a.resolve_conj().resolve_neg(), b.resolve_conj().resolve_neg()) for a, b in pairs)


@pytest.mark.skipif(not FULL, reason="LOWTIDE_FULL=1 looks through PyTorch's functions")
def test_no_other_function_chooses_by_data():
    pytest.importorskip("expecttest")  # which PyTorch's own tests need
    from torch.testing._internal.common_methods_invocations import op_db

    compared, differing = 0, {}
    for op in op_db:
        try:
            samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd))
        except Exception:
            continue
        for sample in samples:
            try:
                nodes, first = gradients(op.op, sample, False)
                _, again = gradients(op.op, sample, False)
                _, watched = gradients(op.op, sample, True)
                if not all_same(first, again):
                    continue  # random, or memory that is not set
                compared += 1
                if not all_same(first, watched) and not set(nodes) & (_NODES.keys() | _NODES_ON_CPUS.keys()):
                    differing.setdefault(op.name, sample)
            except Exception:
                continue  # it needs another device, or has no gradient
    print(compared, "samples;", list(differing))
    assert compared > 10_000
    by_memory = {name for name in differing if "empty" in name or name == "linalg.lstsq"}  # LAPACK's gelsy reads pivots
    assert differing.keys() == by_memory
