"""A PyTorch whose internals were changed: eager with one warning, never other numbers. And the trial that sees it."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import lowtide
from lowtide._compile.compile import compile
from lowtide._trust import verdict
from lowtide._trust.trial import trial

# Prints warnings, calls that ran eager, and whether training left the same numbers as in a PyTorch that is unchanged.
TRAIN = """
import warnings
import torch

def train(wrap):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step, model, optimizer)
    losses = [step(torch.randn(6, 8)) for _ in range(4)]
    return [*losses, *(p.detach() for p in model.parameters())], step

expected, _ = train(lambda step, model, optimizer: step)
{change}
import lowtide
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    found, step = train(lambda step, model, optimizer: lowtide.compile(step, model=model, optimizer=optimizer))
said = [str(w.message) for w in caught if "lowtide" in str(w.message)]
print(len(said), step.stats()["eager_calls"], all(map(torch.equal, expected, found)), *said)
"""

EAGER = "1 4 True lowtide: train.<locals>.step runs eager: "
CHANGES = {
    "a function that is gone": ("del torch._C._current_autograd_node", "there is no torch._C._current_autograd_node"),
    "a class by another name": (
        "import torch._subclasses.fake_tensor as f; f.FakeMode = f.FakeTensorMode; del f.FakeTensorMode",
        "there is no torch._subclasses.fake_tensor.FakeTensorMode",
    ),
    "a value of another form": (
        "import torch.nn.utils.parametrize as p; p._cache_enabled = False",
        "torch.nn.utils.parametrize._cache_enabled is a bool instead of a int",
    ),
    "an argument that is gone": (
        "import torch.autograd\n"
        "run = torch.autograd._engine_run_backward\n"
        "torch.autograd._engine_run_backward = lambda outputs, *more, **options: run(outputs, *more, **options)",
        "torch.autograd._engine_run_backward takes no t_outputs",
    ),
    "a module that does not load": (
        "import sys; sys.modules['torch._functorch.pyfunctorch'] = None",
        "there is no torch._functorch.pyfunctorch",
    ),
    "shapes that are wrong": (
        "import torch._subclasses.fake_tensor as f\n"
        "own = f.FakeTensorMode.dispatch\n"
        "def dispatch(self, func, types, args=(), kwargs=None):\n"
        "    made = own(self, func, types, args, kwargs)\n"
        "    wrong = isinstance(made, torch.Tensor) and made.dim() == 2 and 'addmm' in str(func)\n"
        "    return own(self, torch.ops.aten.expand.default, types, (made[:1], [7, 3, -1])) if wrong else made\n"
        "f.FakeTensorMode.dispatch = dispatch",
        "a trial step",
    ),
    "a function that fails": (
        "def swap(one, other): raise RuntimeError('another layout')\ntorch._C._swap_tensor_impl = swap",
        "a trial step fails: RuntimeError: another layout",
    ),
    "an operator with other numbers where a step is planned": (
        "import lowtide._step.captured_step as s\n"
        "own = s.CapturedStep.run\n"
        "def run(self, leaves, numbers):\n"
        "    result = own(self, leaves, numbers)\n"
        "    with torch.no_grad():\n"
        "        result[0].mul_(1 + 1e-6) if isinstance(result[0], torch.Tensor) else result[0][0].mul_(1 + 1e-6)\n"
        "    return result\n"
        "s.CapturedStep.run = run",
        "a trial step",
    ),
}


def run(code: str, cache: Path) -> str:
    package = Path(lowtide.__file__).parent.parent
    variables = {**os.environ, "PYTHONPATH": str(package), "LOWTIDE_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("change", CHANGES)
def test_changed_internals_end_in_eager_with_one_warning(change, tmp_path):
    code, reason = CHANGES[change]
    said = run(TRAIN.replace("{change}", code), tmp_path)
    assert said.startswith(f"{EAGER}{reason}"), said
    assert not list(tmp_path.glob("trials/*")) and len(said.splitlines()) == 1


def test_the_unchanged_one_is_planned_and_a_pass_is_kept(tmp_path):
    assert run(TRAIN.replace("{change}", ""), tmp_path) == "0 0 True"
    kept = list(tmp_path.glob("trials/*"))
    assert len(kept) == 1 and torch.__version__ in kept[0].read_text()
    never = "import lowtide._trust.verdict as v\ndef trial(*_): raise AssertionError('tried again')\nv.trial = trial"
    assert run(TRAIN.replace("{change}", never), tmp_path) == "0 0 True"


@pytest.fixture
def untried(tmp_path, monkeypatch):
    """As in a new installation."""
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(verdict, "_known", {})
    return tmp_path


@pytest.mark.usefixtures("untried")
def test_all_doors_close_when_the_trial_fails(monkeypatch):
    monkeypatch.setattr(verdict, "trial", lambda compile, device: "a trial step has another loss")
    model = torch.nn.Linear(3, 3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with lowtide.replay() as replay:
            model(torch.ones(2, 3))
        with lowtide.adapt(model, memory_budget="1GiB"):
            model(torch.ones(2, 3))
        lowtide.compile(model.forward, model=model)(torch.ones(2, 3))
    assert replay.stats().iterations == 0
    assert [str(w.message).partition(" runs eager: a trial step has another loss")[0] for w in caught] == [
        "lowtide: the loop in lowtide.replay()", "lowtide: Linear", "lowtide: Linear.forward",
    ]  # fmt: skip
    with pytest.raises(lowtide.CaptureError, match="another loss"):
        lowtide.compile(model.forward, model=model, memory_budget="90%")(torch.ones(2, 3))


def surroundings() -> list[object]:
    return [
        torch.get_rng_state().tolist(), torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"),
        torch.get_num_threads(), warnings.filters[:], torch.initial_seed(),
    ]  # fmt: skip


AROUND = {
    "nothing": lambda: torch.enable_grad(),
    "no_grad": lambda: torch.no_grad(),
    "inference_mode": lambda: torch.inference_mode(),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "default device": lambda: torch.device("cpu"),
}


@pytest.mark.parametrize("around", AROUND)
def test_the_trial_leaves_everything_as_it_is(around, capfd, monkeypatch):
    monkeypatch.delenv("LOWTIDE_QUIET")
    monkeypatch.setenv("LOWTIDE_LOGS", "all")
    torch.manual_seed(11)
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with AROUND[around]():
            before = surroundings()
            assert trial(compile, torch.device("cpu")) == ""
            assert surroundings() == before
    finally:
        torch.set_default_dtype(dtype)
    assert "lowtide" not in capfd.readouterr().err


def test_no_trial_under_the_hooks_of_others(untried):
    seen = []
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: seen.append(1))
    try:
        assert verdict.why_untrusted(torch.device("cpu"), compile) == ""
    finally:
        handle.remove()
    assert not seen and not list(untried.glob("trials/*"))
    assert verdict.why_untrusted(torch.device("cpu"), compile) == ""
    assert list(untried.glob("trials/*"))
