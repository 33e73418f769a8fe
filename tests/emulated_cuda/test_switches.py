"""Switches of PyTorch for CUDA: each setting is captured apart, and a step that sets one itself is refused."""

import contextlib
import warnings

import pytest
import torch
from torch import nn

import lowtide
from lowtide._base.engine_switches import SWITCH_NAMES, read_switches, set_switches


@contextlib.contextmanager
def set_to(owner, name, value):
    before = read_switches()
    setattr(owner, name, value)
    try:
        yield
    finally:
        set_switches(before)


SWITCHES = {
    "cudnn deterministic": lambda: set_to(torch.backends.cudnn, "deterministic", True),
    "cudnn benchmark": lambda: set_to(torch.backends.cudnn, "benchmark", True),
    "cudnn tf32": lambda: set_to(torch.backends.cudnn, "allow_tf32", False),
    "cuda float32 matmul precision": lambda: set_to(torch.backends.cuda.matmul, "allow_tf32", True),
    "cublas float16 accumulation": lambda: set_to(torch.backends.cuda.matmul, "allow_fp16_accumulation", True),
    "cublas bfloat16 reduced precision reduction": lambda: set_to(
        torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False
    ),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_is_seen_and_put_back(name):
    before = read_switches()
    with SWITCHES[name]():
        changed = [known for known, a, b in zip(SWITCH_NAMES, before, read_switches(), strict=True) if a != b]
    assert name in changed
    assert read_switches() == before


@pytest.mark.parametrize("name", SWITCHES)
def test_set_within_the_function_it_makes_the_call_eager(name, tmp_path, monkeypatch):
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path))
    model = nn.Linear(16, 16).cuda()

    def function(x):
        before = model(x)
        with SWITCHES[name]():
            return model(before).sum()

    step = lowtide.compile(function, model=model)
    x = torch.randn(4, 16, device="cuda")
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(9):
            assert torch.equal(step(x), function(x))
    (said,) = [str(warning.message) for warning in caught if "lowtide:" in str(warning.message)]
    assert "the step sets how operators compute: " in said
    assert (step.stats()["calls"], step.stats()["eager_calls"]) == (0, 9)


def test_between_calls_they_are_captured_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path))
    model = nn.Linear(16, 16).cuda()
    step = lowtide.compile(lambda x: model(x).sum(), model=model, on_unsupported="raise")
    x = torch.randn(4, 16, device="cuda")
    with torch.no_grad():
        for name in (None, *SWITCHES, None, *SWITCHES):
            with SWITCHES[name]() if name else contextlib.nullcontext():
                assert torch.equal(step(x), model(x).sum()), name
    assert (step.stats()["captures"], step.stats()["eager_calls"]) == (1 + len(SWITCHES), 0)
    step.close()
