"""Ctrl-C at any moment: the call has not happened, or it says where it stopped; the next call is as if nothing was."""

from __future__ import annotations

import copy
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer

import lowtide
from lowtide._base.interrupts import SignalsHeld
from step_models import pair, same, small_batches


class Naps:
    taken = 0
    interrupted = 0  # the one in which Ctrl-C comes


@torch.library.custom_op("lowtide_test::nap", mutates_args=())
def nap(x: torch.Tensor, armed: torch.Tensor) -> torch.Tensor:
    if armed.item():
        Naps.taken += 1
        if Naps.taken == Naps.interrupted:
            signal.raise_signal(signal.SIGINT)
        time.sleep(0.1)
    return x.clone()


@nap.register_fake
def _(x, armed):
    return torch.empty_like(x)


@pytest.fixture(autouse=True)
def alarm_is_ctrl_c() -> Iterator[None]:
    """An alarm clock rings at the wanted moment to a fraction of a millisecond; its handler is that of Ctrl-C."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@contextmanager
def interrupt_after(seconds: float) -> Iterator[None]:
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)
    )


def trainer(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def everything(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """All that a call could leave in another state than it found it."""
    tensors = [*model.parameters(), *model.buffers()]
    return {
        "model": copy.deepcopy(dict(model.state_dict())),
        "optimizer": copy.deepcopy(optimizer.state_dict()),
        "gradients": [id(tensor.grad) for tensor in tensors],
        "memory": [(tensor.data_ptr(), tensor._version, str(tensor.device)) for tensor in tensors],
        "random": (torch.get_rng_state(), random.getstate()),
        "attributes": sorted(vars(optimizer)),
        "hooks": [len(optimizer._optimizer_step_pre_hooks), len(optimizer._optimizer_step_post_hooks)],
        "global hooks": [
            len(hooks)
            for hooks in (
                torch_optimizer._global_optimizer_pre_hooks,
                torch_optimizer._global_optimizer_post_hooks,
                torch_module._global_forward_hooks,
                torch_module._global_forward_pre_hooks,
            )
        ],
        "functions": [id(f) for f in (torch.autograd.backward, torch.autograd.grad, torch.manual_seed, torch.seed)],
        "modes": [torch._C._len_torch_dispatch_stack(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")],
        "handlers": [id(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGALRM, signal.SIGTERM)],
    }


@pytest.mark.parametrize("with_gradients", [False, True])
def test_an_interrupted_first_call_has_not_happened(with_gradients, tmp_path, monkeypatch):
    x, y = torch.randn(6, 8), torch.randint(0, 4, (6,))

    def fresh() -> tuple[nn.Module, torch.optim.Optimizer, Any]:
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        if with_gradients:
            model(x).sum().backward()
        step = lowtide.compile(trainer(model, optimizer), model=model, optimizer=optimizer, on_unsupported="raise")
        return model, optimizer, step

    model, optimizer, step = fresh()
    function = trainer(model, optimizer)
    torch.manual_seed(5)
    expected = [function(x, y) for _ in range(3)]

    for name in ("warm", "measured"):
        monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path / name))
        begin = time.perf_counter()
        fresh()[2](x, y)
        whole = time.perf_counter() - begin

    seed = random.randrange(10**9)
    moments = random.Random(seed)
    interrupted = 0
    for trial in range(200):
        if interrupted == 6:
            break
        monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path / str(trial)))  # so that operators are profiled
        model, optimizer, step = fresh()
        torch.manual_seed(5)
        before = everything(model, optimizer)
        moment = moments.uniform(0, whole)
        said = f"seed {seed}, after {moment * 1e3:.3f} of {whole * 1e3:.1f} ms"
        try:
            with interrupt_after(moment):
                first = step(x, y)
        except KeyboardInterrupt as error:
            if step.stats()["calls"] == 1:
                continue  # it came when the step was made
            assert not getattr(error, "__notes__", []), said
            interrupted += 1
            after = everything(model, optimizer)
            for key, value in before.items():
                if key != "gradients":  # which the function itself has dropped by then
                    assert same(value, after[key]), f"{key} has changed; {said}"
            first = step(x, y)
        else:
            whole *= 0.9  # it came too late: later moments of a call that takes so long are of no use
        losses = [first, step(x, y), step(x, y)]
        assert same(losses, expected), said
        assert step.stats()["captures"] == 1, said
    assert interrupted == 6


def test_every_place_where_ctrl_c_is_answered_bears_it(tmp_path, monkeypatch):
    """Deterministic: Ctrl-C arrives just before the n-th look, for every n."""
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Dropout(0.1), nn.Tanh())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = torch.randn(6, 8), torch.randint(0, 4, (6,))
    before = everything(model, optimizer)
    own_look = SignalsHeld.look
    looks = 0
    for wanted in range(1, 1000):
        looks = 0

        def look(self, wanted=wanted):
            nonlocal looks
            looks += 1
            if looks == wanted:
                signal.raise_signal(signal.SIGINT)
            own_look(self)

        monkeypatch.setattr(SignalsHeld, "look", look)
        monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path / str(wanted)))
        step = lowtide.compile(trainer(model, optimizer), model=model, optimizer=optimizer, on_unsupported="raise")
        try:
            step(x, y)
            break
        except KeyboardInterrupt:
            after = everything(model, optimizer)
            assert [key for key in before if not same(before[key], after[key])] == [], f"look {wanted}"
    assert 40 < looks == wanted - 1


def test_an_interrupted_capture_of_a_transformer(tmp_path, monkeypatch):
    eager, planned = pair("bert", "adam", small=True)
    batch = next(small_batches("bert", 1))
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path))
    before = everything(planned.model, planned.optimizer)
    for moment in (0.05, 0.2, 0.5):
        with pytest.raises(KeyboardInterrupt), interrupt_after(moment):
            for _ in range(1000):
                planned.step(batch)
        if planned.step.stats()["calls"]:
            break
        after = everything(planned.model, planned.optimizer)
        assert [key for key in before if not same(before[key], after[key])] == []
    if not planned.step.stats()["calls"]:
        torch.manual_seed(3)
        expected = eager.step(batch)
        torch.manual_seed(3)
        assert same(planned.step(batch), expected)
        assert same(eager.state(), planned.state())


def test_an_interrupted_second_call_has_not_happened():
    """The second call plans again: it finds optimizer state."""
    x, y = torch.randn(6, 8), torch.randint(0, 4, (6,))
    for moment in (0.001, 0.002, 0.004, 0.008, 0.016):
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        step = lowtide.compile(trainer(model, optimizer), model=model, optimizer=optimizer, on_unsupported="raise")
        step(x, y)
        before = everything(model, optimizer)
        state = [id(tensor) for values in optimizer.state.values() for tensor in values.values()]
        try:
            with interrupt_after(moment):
                step(x, y)
        except KeyboardInterrupt:
            if step.stats()["calls"] == 1:
                after = everything(model, optimizer)
                changed = [key for key in before if not same(before[key], after[key])]
                assert changed in ([], ["gradients"])  # by the function's own zero_grad()
                assert state == [id(tensor) for values in optimizer.state.values() for tensor in values.values()]
        step(x, y)


def slow_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
    """Twenty naps between the forward and the backward pass."""

    def step(x: torch.Tensor, armed: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        out = model(x)
        late = out.detach()
        for _ in range(20):
            late = torch.ops.lowtide_test.nap(late, armed)
        loss = (out * late).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def test_an_interrupt_in_mid_run_says_where_and_a_checkpoint_goes_on(monkeypatch):
    x, off, on = torch.randn(6, 8), torch.tensor(False), torch.tensor(True)

    def fresh() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = mlp()
        return model, torch.optim.AdamW(model.parameters(), lr=1e-2)

    eager_model, eager_optimizer = fresh()
    eager = slow_step(eager_model, eager_optimizer)
    model, optimizer = fresh()
    step = lowtide.compile(slow_step(model, optimizer), model=model, optimizer=optimizer, on_unsupported="raise")
    torch.manual_seed(1)
    expected = [eager(x, off) for _ in range(4)]

    torch.manual_seed(1)
    got = [step(x, off), step(x, off)]
    checkpoint = copy.deepcopy((model.state_dict(), optimizer.state_dict())), torch.get_rng_state()
    monkeypatch.setattr(Naps, "taken", 0)
    monkeypatch.setattr(Naps, "interrupted", 3)
    with pytest.raises(KeyboardInterrupt) as caught:
        step(x, on)
    assert Naps.taken == 3  # of 20
    note = "\n".join(caught.value.__notes__)
    assert "the step stopped at lowtide_test.nap" in note
    assert "those before the step" in note
    found = {name: checkpoint[0][0][name] for name, _ in model.named_parameters()}
    assert same((found, checkpoint[0][1]), (dict(model.named_parameters()), optimizer.state_dict()))
    (weights, state), random_state = checkpoint
    model.load_state_dict(weights)
    optimizer.load_state_dict(state)
    torch.set_rng_state(random_state)
    got += [step(x, off), step(x, off)]
    assert same(got, expected)
    assert same(dict(model.state_dict()), dict(eager_model.state_dict()))
    assert same(optimizer.state_dict(), eager_optimizer.state_dict())


def test_ctrl_c_stops_a_long_step_of_plain_operators():
    model = nn.Linear(256, 256)
    x = torch.randn(256, 256)

    @lowtide.compile(model=model, on_unsupported="raise")
    def function(x):
        for _ in range(40):
            for _ in range(20):
                x = model(x)
        return x

    with torch.no_grad():
        function(x)
        function(x)  # held against the record, which takes longer
        # In time of this processor, and the shortest: however busy the machine is, no later call takes less by the
        # clock on the wall, and an alarm at a tenth of it rings early in the call.
        taken = []
        for _ in range(3):
            begin = time.thread_time()
            function(x)
            taken.append(time.thread_time() - begin)
        whole = min(taken)
        calls = function.stats()["calls"]
        stopped = 0
        for _ in range(3):
            begin = time.perf_counter()
            with pytest.raises(KeyboardInterrupt), interrupt_after(whole / 10):
                function(x)
                time.sleep(10)
            stopped += function.stats()["calls"] == calls
            assert time.perf_counter() - begin < whole / 10 + 5  # and not ten seconds more
        assert whole < 0.2 or stopped == 3
        assert torch.equal(function(x), function(x))


def test_ctrl_c_in_the_users_own_code_is_answered_at_once():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())

    def function(x, y, patient=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        if not patient:
            time.sleep(30)
        optimizer.step()
        return loss.detach()

    step = lowtide.compile(function, model=model, optimizer=optimizer, on_unsupported="raise")
    x, y = torch.randn(6, 8), torch.randint(0, 4, (6,))
    before = everything(model, optimizer)
    begin = time.perf_counter()
    with pytest.raises(KeyboardInterrupt), interrupt_after(0.3):
        step(x, y, False)
    assert time.perf_counter() - begin < 10
    after = everything(model, optimizer)
    assert [key for key in before if not same(before[key], after[key])] == []
    step(x, y)


def test_a_handler_that_does_not_raise_runs_once_and_the_step_goes_on():
    came: list[int] = []
    own = signal.signal(signal.SIGALRM, lambda number, frame: came.append(number))
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    step = lowtide.compile(slow_step(model, optimizer), model=model, optimizer=optimizer, on_unsupported="raise")
    x = torch.randn(6, 8)
    step(x, torch.tensor(False))
    with interrupt_after(0.1):
        step(x, torch.tensor(True))
    signal.signal(signal.SIGALRM, own)
    assert came == [signal.SIGALRM]
    assert step.stats()["calls"] == 2


def test_a_handler_that_makes_way_for_another_one_has_its_will():
    """As many do: the first Ctrl-C asks for an end after this step, the second is an ordinary one."""

    def make_way(number, frame):
        signal.signal(signal.SIGALRM, signal.default_int_handler)

    signal.signal(signal.SIGALRM, make_way)
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    step = lowtide.compile(slow_step(model, optimizer), model=model, optimizer=optimizer, on_unsupported="raise")
    with interrupt_after(0.1):
        step(torch.randn(6, 8), torch.tensor(True))
    assert step.stats()["calls"] == 1
    assert signal.getsignal(signal.SIGALRM) is signal.default_int_handler


def test_a_step_on_another_thread_is_not_disturbed():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    step = lowtide.compile(slow_step(model, optimizer), model=model, optimizer=optimizer, on_unsupported="raise")
    x = torch.randn(6, 8)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for armed in (False, True):
                step(x, torch.tensor(armed))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    with pytest.raises(KeyboardInterrupt), interrupt_after(0.2):
        time.sleep(10)
    thread.join()
    assert not failures
    assert step.stats()["calls"] == 2


def test_ctrl_c_ends_a_training_script():
    script = """
        import torch, lowtide
        model = torch.nn.Linear(64, 64)
        optimizer = torch.optim.Adam(model.parameters())
        @lowtide.compile(model=model, optimizer=optimizer, on_unsupported="raise")
        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()
        x = torch.randn(64, 64)
        step(x)
        print("ready", flush=True)
        while True:
            step(x)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert errors.rstrip().splitlines()[-1].startswith(("KeyboardInterrupt", "lowtide: the step stopped"))
    assert process.returncode == -signal.SIGINT
