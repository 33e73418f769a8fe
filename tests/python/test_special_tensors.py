"""Tensors that are more than a window on memory: as arguments, in closures, as results. Equal, or refused by name."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.masked import masked_tensor

import lowtide
from both_ways import Run, equal_both_ways, perceptron, plain, state_of


class Named(torch.Tensor):
    """A subclass that results inherit."""


class Logged(torch.Tensor):
    """A subclass that sees every operator."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Logged:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*[arg.inner if isinstance(arg, Logged) else arg for arg in args], **(kwargs or {}))
        return Logged(out) if func is torch.ops.aten.detach.default else out


ARGUMENTS: dict[str, Callable[[], torch.Tensor]] = {
    "sparse": lambda: torch.eye(3, 8).to_sparse(),
    "csr": lambda: torch.eye(3, 8).to_sparse_csr(),
    "mkldnn": lambda: torch.ones(3, 8).to_mkldnn(),
    "quantized": lambda: torch.quantize_per_tensor(torch.randn(3, 8), 0.1, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(2, 8)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(2, 8)], layout=torch.jagged),
    "conjugated": lambda: torch.ones(3, 8, dtype=torch.cfloat).conj(),
    "negated": lambda: torch.ones(3, 8, dtype=torch.cfloat).conj().imag,
    "meta": lambda: torch.ones(3, 8, device="meta"),
    "a subclass": lambda: torch.ones(3, 8).as_subclass(Named),
    "a wrapper": lambda: Logged(torch.ones(3, 8)),
    "masked": lambda: masked_tensor(torch.ones(3, 8), torch.eye(3, 8) > 0),
}


def double(x: torch.Tensor) -> Any:
    return x + x


@pytest.mark.parametrize("where", ["argument", "closure"])
@pytest.mark.parametrize("kind", ARGUMENTS)
def test_special_tensors_are_taken_as_eager_takes_them(kind: str, where: str) -> None:
    def scenario(run: Run) -> None:
        model = nn.Linear(8, 4)
        special = ARGUMENTS[kind]()
        function = double if where == "argument" else lambda: double(special)
        step = run.wrap(function, model)
        for _ in range(2):
            result = step(special) if where == "argument" else step()
            dense = result.dequantize() if result.is_quantized else result
            run.note(type(result).__name__, str(dense.layout), re.sub(r"j\d", "j", str(dense)))

    run = equal_both_ways(scenario)
    assert run.error in ("", "NotImplementedError", "RuntimeError")
    assert run.planned == 0 or not run.said


@pytest.mark.parametrize(
    "function",
    [
        lambda model, x: torch.quantize_per_tensor(model(x), 0.1, 0, torch.qint8).dequantize(),
        lambda model, x: torch.fake_quantize_per_tensor_affine(model(x), 0.1, 0, -128, 127),
        lambda model, x: model(x).to_sparse(),
        lambda model, x: torch.nested.nested_tensor([model(x), model(x[:1])]).to_padded_tensor(0.0),
        lambda model, x: torch.view_as_complex(model(x).reshape(-1, 2)).conj(),
        lambda model, x: model(x).as_subclass(Named),
        lambda model, x: nn.Parameter(model(x)),
        lambda model, x: torch.fft.fft(model(x)).conj() * 2,
    ],
)
def test_special_results_are_what_eager_gives(function: Callable[[nn.Module, torch.Tensor], Any]) -> None:
    def scenario(run: Run) -> None:
        model = perceptron()
        step = run.wrap(lambda x: function(model, x), model)
        with torch.no_grad():
            for _ in range(3):
                result = step(torch.randn(3, 8))
                plain_result = torch.Tensor(result.to_dense()) if result.layout is torch.sparse_coo else result
                run.note(type(result).__name__, plain_result.resolve_conj().as_subclass(torch.Tensor))

    assert equal_both_ways(scenario).error == ""


def test_inputs_of_inference_mode_are_refused_where_eager_refuses_them() -> None:
    def scenario(run: Run) -> None:
        model = perceptron()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        step = run.wrap(plain(model, optimizer), model, optimizer)
        run.note(step(torch.randn(3, 8)))
        with torch.inference_mode():
            x = torch.randn(3, 8)
        with torch.no_grad():
            run.note(model(x))
        step(x)

    assert equal_both_ways(scenario).error == "RuntimeError"


def test_what_is_returned_is_of_the_same_kind_as_in_eager_code() -> None:
    def scenario(run: Run) -> None:
        model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x: torch.Tensor) -> Any:
            optimizer.zero_grad()
            out = model(x)
            loss = out.pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss, out, out.detach(), model[0].weight, model[0].weight.detach()[0], model[1].running_mean

        compiled = run.wrap(step, model, optimizer)
        for _ in range(3):
            loss, out, detached, weight, row, mean = compiled(torch.randn(3, 8))
            run.note([(one.requires_grad, one.is_leaf, one.grad_fn is None) for one in (loss, out, detached, row)])
            run.note(weight is model[0].weight, row.data_ptr() == weight.data_ptr(), mean is model[1].running_mean)
            run.note(loss, out, row)
        loss.mul_(2)
        out.sum().backward()

    run = equal_both_ways(scenario)
    assert run.eager == 0
    assert run.error == "RuntimeError"  # a second time through the graph


# -- collectives -------------------------------------------------------------------------------------------------------


@pytest.fixture
def single_rank() -> Any:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def in_place(x: torch.Tensor) -> torch.Tensor:
    torch.distributed.all_reduce(x)
    return x


def functional(x: torch.Tensor) -> torch.Tensor:
    from torch.distributed import _functional_collectives

    return _functional_collectives.all_reduce(x, "sum", torch.distributed.group.WORLD) + 0


def gathered(x: torch.Tensor) -> torch.Tensor:
    outs = [torch.empty_like(x)]
    torch.distributed.all_gather(outs, x)
    return outs[0]


@pytest.mark.parametrize("collective", [in_place, functional, gathered])
@pytest.mark.usefixtures("single_rank")
def test_collectives_are_refused_by_name(collective: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def scenario(run: Run) -> None:
        model = perceptron()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            for parameter in model.parameters():
                parameter.grad = collective(parameter.grad)
            optimizer.step()
            return loss.detach()

        compiled = run.wrap(step, model, optimizer)
        for _ in range(3):
            run.note(compiled(torch.randn(3, 8)), state_of(model))

    run = equal_both_ways(scenario)
    assert run.planned == 0
    assert "communicates with other processes" in run.said[0]
    assert "call collectives outside the function" in run.said[0]


def test_a_parameter_whose_class_sees_each_operator_is_refused_by_name() -> None:
    model = nn.Linear(8, 4)
    model.weight = nn.Parameter(Logged(torch.ones(4, 8)), requires_grad=False)
    step = lowtide.compile(lambda x: model(x), model=model, on_unsupported="raise")
    with torch.no_grad(), pytest.raises(lowtide.CaptureError, match="Logged"):
        step(torch.randn(3, 8))
