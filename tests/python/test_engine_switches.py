"""PyTorch's switches: another setting is another capture with other profiles, and the same one again serves again."""

import contextlib
import warnings

import pytest
import torch
from torch import nn

import lowtide
from lowtide import _torch
from lowtide._base import engine_switches
from lowtide._base.engine_switches import SWITCH_NAMES, read_switches, set_switches
from lowtide._lower.profiles import ProfileCache


@contextlib.contextmanager
def set_to(setter, value, before):
    setter(value)
    try:
        yield
    finally:
        setter(before)


@contextlib.contextmanager
def attribute(owner, name, value):
    with set_to(lambda to: setattr(owner, name, to), value, getattr(owner, name)):
        yield


@contextlib.contextmanager
def medium_precision():
    """PyTorch's older name for some of the others, which it leaves set."""
    older = set_to(torch.set_float32_matmul_precision, "medium", "highest")
    with attribute(torch.backends.mkldnn.matmul, "fp32_precision", "none"), older:
        yield


def without_math_attention():
    return set_to(torch.backends.cuda.enable_math_sdp, False, True)


SWITCHES = {
    "threads": lambda: set_to(torch.set_num_threads, 2, 1),
    "default dtype": lambda: set_to(torch.set_default_dtype, torch.float64, torch.float32),
    "deterministic algorithms": lambda: set_to(torch.use_deterministic_algorithms, True, False),
    "uninitialized memory is filled": lambda: attribute(torch.utils.deterministic, "fill_uninitialized_memory", False),
    "mkldnn": lambda: torch.backends.mkldnn.flags(enabled=False, allow_tf32=None),
    "mkldnn deterministic": lambda: attribute(torch.backends.mkldnn, "deterministic", True),
    "float32 precision": lambda: attribute(torch.backends, "fp32_precision", "tf32"),
    "mkldnn float32 matmul precision": lambda: attribute(torch.backends.mkldnn.matmul, "fp32_precision", "bf16"),
    "mkldnn float32 conv precision": lambda: attribute(torch.backends.mkldnn.conv, "fp32_precision", "bf16"),
    "float32 matmul precision": medium_precision,
    "nnpack": lambda: torch.backends.nnpack.flags(enabled=False),
    "math attention": without_math_attention,
    "multi-head attention fast path": lambda: set_to(torch.backends.mha.set_fastpath_enabled, False, True),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_is_seen(name):
    before = read_switches()
    with SWITCHES[name]():
        changed = [known for known, a, b in zip(SWITCH_NAMES, before, read_switches(), strict=True) if a != b]
    assert name in changed
    assert read_switches() == before


ALL = {**engine_switches._IN_OPERATORS, **engine_switches._IN_CUDA_OPERATORS, **engine_switches._IN_CHOICES}
PYTHONS_OWN = ["einsum paths", "einsum strategy", "multi-head attention fast path"]
OTHERS = {
    "threads": 3,
    "default dtype": torch.float64,
    "float32 matmul precision": "medium",
    "quantized engine": torch._C._supported_qengines()[0],
    "cudnn depthwise kernel": "native",
    "linear algebra library": torch._C._LinalgBackend.Cusolver,
    "blas library": torch._C._BlasBackend.Ck,
    "multiprocessors left free": 2,
}


def other_value(name, value):
    """One that this switch does not have now."""
    if isinstance(value, bool):
        return not value
    if name == "attention priority":
        return value[::-1]
    if isinstance(value, tuple):
        return (not value[0], value[1])
    return OTHERS.get(name, "tf32" if value == "ieee" else "ieee")


@pytest.mark.parametrize("name", [name for name in ALL if name not in PYTHONS_OWN])
def test_the_word_of_the_engine_knows_it(name):
    switch = ALL[name]
    switches, value, word = read_switches(), switch.read(), _torch.engine_word()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of these are experimental, or for a GPU
        try:
            switch.write(other_value(name, value))
        except RuntimeError as why:
            pytest.skip(f"not here: {why}")
        try:
            assert switch.read() != value
            assert _torch.engine_word() != word
        finally:
            switch.write(value)
            set_switches(switches)
    assert _torch.engine_word() == word


def test_profiles_are_kept_by_switches(tmp_path):
    cache = ProfileCache(tmp_path)
    cache.get("op")
    names = {cache._file_name()}
    for switch in SWITCHES.values():
        with switch():
            cache.get("op")
            names.add(cache._file_name())
    assert len(names) == 1 + len(SWITCHES)


def test_switches_between_calls_are_captured_apart():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 3))
    step = lowtide.compile(lambda x: model(x).sum(), model=model, on_unsupported="raise")
    x = torch.randn(2, 3, 8, 8)
    chosen = ["mkldnn", "mkldnn float32 conv precision", "float32 precision", "deterministic algorithms"]
    with torch.no_grad():
        for name in (None, *chosen, None, *chosen):
            with SWITCHES[name]() if name else contextlib.nullcontext():
                assert torch.equal(step(x), model(x).sum()), name
    assert (step.stats()["captures"], step.stats()["eager_calls"]) == (1 + len(chosen), 0)
    step.close()


def step_under(switch):
    torch.manual_seed(0)
    model = nn.Linear(64, 64)

    def function(x):
        before = model(x)
        with switch():
            inside = nn.functional.scaled_dot_product_attention(*[model(before)[None, None]] * 3)
        return inside.sum()

    return model, function


@pytest.mark.parametrize("name", ["threads", "mkldnn", "mkldnn float32 matmul precision", "deterministic algorithms"])
def test_a_switch_that_the_function_itself_sets_for_its_operators_makes_the_call_eager(name):
    model, function = step_under(SWITCHES[name])
    step = lowtide.compile(function, model=model)
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(9):
            x = torch.randn(64, 64)
            assert torch.equal(step(x), function(x))
    (said,) = [str(warning.message) for warning in caught if "lowtide:" in str(warning.message)]
    assert f"the step sets how operators compute: {name} (" in said
    assert (step.stats()["calls"], step.stats()["eager_calls"]) == (0, 9)


@pytest.mark.parametrize("name", ["threads", "mkldnn", "deterministic algorithms"])
def test_with_a_budget_a_switch_that_the_function_sets_is_refused_at_once(name):
    model, function = step_under(SWITCHES[name])
    step = lowtide.compile(function, model=model, memory_budget="1GiB")
    with torch.no_grad(), pytest.raises(lowtide.CaptureError, match=rf"the step sets how operators compute: {name}"):
        step(torch.randn(64, 64))


def test_a_switch_that_chooses_operators_may_be_set_within_the_function():
    model, function = step_under(SWITCHES["math attention"])
    step = lowtide.compile(function, model=model, on_unsupported="raise")
    x = torch.randn(64, 64)
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(step(x), function(x))
    step.close()


def test_operators_that_fill_what_they_ask_for_make_nothing_over_an_operand():
    """Deterministic algorithms fill new memory before the operator reads its operands."""

    def train(compiled):
        torch.manual_seed(0)
        layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 32), nn.GELU()]
        model = nn.Sequential(*layers, nn.Dropout(0.1), nn.Linear(32, 4))
        optimizer = torch.optim.Adam(model.parameters())

        def step(x):
            optimizer.zero_grad()
            loss = torch.softmax(model(x), -1).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        if compiled:
            step = lowtide.compile(step, model=model, optimizer=optimizer)
        losses = [step(torch.full((8, 3, 8, 8), 0.1 * count)) for count in range(4)]
        if compiled:
            assert step.stats()["eager_calls"] == 0
        return [*losses, *model.parameters(), *model.buffers()]

    with set_to(torch.use_deterministic_algorithms, True, False):
        expected = train(compiled=False)
        assert not any(tensor.isnan().any() for tensor in expected)
        assert all(map(torch.equal, expected, train(compiled=True)))
