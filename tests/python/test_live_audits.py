"""Audits find what atoms compute differently because of something that nobody watches."""

from __future__ import annotations

import collections
import ctypes
import decimal
import gc
import io
import os
import queue
import signal
import socket
import sqlite3
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import lowtide
from lowtide._live.audits import Audits


class Planted(NamedTuple):
    """A number that a model looks at, how it is changed, and how it is put back."""

    look: Callable[[], float]
    change: Callable[[], Any]
    put_back: Callable[[], Any] = lambda: None


planted: dict[str, Callable[[Path], Planted]] = {}


def plant(make: Callable[[Path], Planted]) -> Callable[[Path], Planted]:
    planted[make.__name__] = make
    return make


@plant
def text_of_a_file(folder: Path) -> Planted:
    file = folder / "weight"
    file.write_text("1.0")
    return Planted(lambda: float(file.read_text()), lambda: file.write_text("2.0"))


@plant
def presence_of_a_file(folder: Path) -> Planted:
    file = folder / "flag"
    return Planted(lambda: 2.0 if file.exists() else 1.0, file.touch)


@plant
def time_of_a_file(folder: Path) -> Planted:
    file = folder / "touched"
    file.touch()
    os.utime(file, (1, 1))
    return Planted(lambda: os.stat(file).st_mtime, lambda: os.utime(file, (2, 2)))


@plant
def position_in_a_file(folder: Path) -> Planted:
    file = io.BytesIO(b"12")
    return Planted(lambda: file.tell() + 1.0, lambda: file.seek(1))


@plant
def text_in_memory(folder: Path) -> Planted:
    text = io.StringIO("1.0")
    return Planted(lambda: float(text.getvalue()), lambda: (text.seek(0), text.write("2.0")))


@plant
def database(folder: Path) -> Planted:
    table = sqlite3.connect(":memory:", isolation_level=None)
    table.execute("create table weights (w real)")
    table.execute("insert into weights values (1.0)")
    return Planted(
        lambda: float(table.execute("select w from weights").fetchone()[0]),
        lambda: table.execute("update weights set w = 2.0"),
        table.close,
    )


@plant
def working_directory(folder: Path) -> Planted:
    before = Path.cwd()
    return Planted(lambda: float(len(os.getcwd())), lambda: os.chdir("/"), lambda: os.chdir(before))


@plant
def limit_of_recursion(folder: Path) -> Planted:
    limit = sys.getrecursionlimit()
    return Planted(
        lambda: float(sys.getrecursionlimit()),
        lambda: sys.setrecursionlimit(limit + 1000),
        lambda: sys.setrecursionlimit(limit),
    )


@plant
def precision_of_decimals(folder: Path) -> Planted:
    context = decimal.getcontext()
    precision = context.prec

    def put_back() -> None:
        context.prec = precision

    def change() -> None:
        context.prec = precision + 1

    return Planted(lambda: float(decimal.getcontext().prec), change, put_back)


@plant
def count_of_threads(folder: Path) -> Planted:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="planted", daemon=True)

    def put_back() -> None:
        end.set()
        thread.join()

    # Not those that other tests have left, which may end at any time.
    return Planted(
        lambda: float([each.name for each in threading.enumerate()].count("planted")), thread.start, put_back
    )


@plant
def collector(folder: Path) -> Planted:
    before = gc.get_threshold()
    return Planted(
        lambda: float(gc.get_threshold()[2]),
        lambda: gc.set_threshold(*before[:2], before[2] + 1),
        lambda: gc.set_threshold(*before),
    )


@plant
def handler_of_a_signal(folder: Path) -> Planted:
    def set_to(handler: Any) -> None:
        signal.signal(signal.SIGUSR2, handler)

    return Planted(
        lambda: 1.0 if signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL else 2.0,
        lambda: set_to(signal.SIG_IGN),
        lambda: set_to(signal.SIG_DFL),
    )


@plant
def switch_interval(folder: Path) -> Planted:
    interval = sys.getswitchinterval()
    return Planted(
        sys.getswitchinterval, lambda: sys.setswitchinterval(2 * interval), lambda: sys.setswitchinterval(interval)
    )


@plant
def timeout_of_a_socket(folder: Path) -> Planted:
    one, other = socket.socketpair()
    one.settimeout(1.0)
    return Planted(lambda: one.gettimeout() or 0.0, lambda: one.settimeout(2.0), lambda: (one.close(), other.close()))


@plant
def size_of_a_queue(folder: Path) -> Planted:
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    return Planted(lambda: waiting.qsize() + 1.0, lambda: waiting.put(1))


@plant
def count_of_weak_references(folder: Path) -> Planted:
    one = nn.Identity()
    held: list[Any] = []
    return Planted(lambda: weakref.getweakrefcount(one) + 1.0, lambda: held.append(weakref.ref(one, lambda _: None)))


@plant
def state_of_a_lock(folder: Path) -> Planted:
    lock = threading.Lock()
    return Planted(lambda: 2.0 if lock.locked() else 1.0, lock.acquire)


@plant
def numbers_of_numpy(folder: Path) -> Planted:
    numbers = np.random.RandomState(0)
    return Planted(lambda: float(numbers.get_state()[1][0] % 7 + 1), lambda: numbers.seed(12))


@plant
def environment_of_c(folder: Path) -> Planted:
    c = ctypes.CDLL(None)
    c.getenv.restype = ctypes.c_char_p
    c.setenv(b"LOWTIDE_TEST_WEIGHT", b"1.0", 1)
    return Planted(lambda: float(c.getenv(b"LOWTIDE_TEST_WEIGHT")), lambda: c.setenv(b"LOWTIDE_TEST_WEIGHT", b"2.0", 1))


@plant
def memory_behind_a_pointer(folder: Path) -> Planted:
    number = ctypes.c_double(1.0)
    address = ctypes.addressof(number)
    weight = ctypes.cast(address, ctypes.POINTER(ctypes.c_double))

    def change() -> None:
        number.value = 2.0

    return Planted(lambda: float(weight[0]), change)


@plant
def element_of_a_large_array(folder: Path) -> Planted:
    numbers = np.ones(1 << 18)
    return Planted(lambda: float(numbers[7]), lambda: numbers.__setitem__(7, 2.0))


class Looking(nn.Module):
    """A layer whose factor comes from where nobody watches."""

    def __init__(self, look: Callable[[], float]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.look = look

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.look()


class Loop:
    """A step of such a model; `calls` gives results beside those of eager."""

    def __init__(self, look: Callable[[], float], **options: Any) -> None:
        torch.manual_seed(0)
        self.model = Looking(look)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.x = torch.ones(2, 4)
        self.step = lowtide.compile(self.train, model=self.model, optimizer=self.optimizer, **options)

    def train(self) -> torch.Tensor:
        loss = self.model(self.x).sum()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def call(self) -> bool:
        """Whether the step gives what the model gives."""
        expected = self.model(self.x).sum().detach()
        return torch.equal(self.step(), expected)

    def captures(self) -> int:
        return int(self.step.stats()["captures"])


@pytest.fixture
def every_call_is_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWTIDE_AUDIT", "all")


@pytest.mark.parametrize("what", planted)
def test_what_nobody_watches_is_found_at_the_next_audit(what: str, tmp_path: Path, every_call_is_audited: None) -> None:
    look, change, put_back = planted[what](tmp_path)
    loop = Loop(look)
    try:
        with warnings.catch_warnings():
            assert loop.call()
            assert loop.call()
            assert loop.captures() == 1
            change()
            with pytest.warns(RuntimeWarning, match=r"aten\.mul.*test_live_audits\.py:\d+.* is not what it was"):
                assert loop.call()
            assert loop.captures() == 2
            assert loop.call()
            assert (loop.captures(), loop.step.stats()["eager_calls"]) == (2, 0)
    finally:
        put_back()


def test_most_of_the_planted_changes_are_seen_by_no_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWTIDE_AUDIT", "off")
    unseen = []
    for what, make in planted.items():
        look, change, put_back = make(tmp_path)
        loop = Loop(look)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loop.step()
            change()
            loop.step()
            put_back()
        if loop.captures() == 1:
            unseen.append(what)
    assert len(unseen) >= 20


def test_the_second_call_is_audited() -> None:
    hidden: queue.SimpleQueue[int] = queue.SimpleQueue()
    loop = Loop(lambda: hidden.qsize() + 1.0)
    assert loop.call()
    hidden.put(1)
    with pytest.warns(RuntimeWarning, match=r"an audit of Loop\.train found"):
        assert loop.call()


def test_what_is_another_one_at_every_call_runs_eager(every_call_is_audited: None) -> None:
    hidden: queue.SimpleQueue[int] = queue.SimpleQueue()
    loop = Loop(lambda: hidden.qsize() + 1.0)
    assert loop.call()
    hidden.put(1)
    with pytest.warns(RuntimeWarning, match="an audit of"):
        assert loop.call()
    hidden.put(1)
    with pytest.warns(RuntimeWarning, match="runs eager: aten.mul.Tensor .*for the second time"):
        assert loop.call()
    hidden.put(1)
    assert loop.call()
    assert loop.step.stats()["eager_calls"] == 2


def test_another_shape_is_made_eagerly(every_call_is_audited: None) -> None:
    hidden: queue.SimpleQueue[int] = queue.SimpleQueue()
    loop = Loop(lambda: 1.0)
    forward = loop.model.linear.forward
    loop.model.linear.forward = lambda x: torch.cat([forward(x)] * (hidden.qsize() + 1))  # type: ignore[method-assign]
    assert loop.call()
    hidden.put(1)
    with pytest.warns(RuntimeWarning, match=r"Looking .*test_live_audits.py:\d+.* is not what it was"):
        assert loop.call()
    assert loop.call()
    assert loop.step.stats()["eager_calls"] == 1


def test_steps_that_ask_for_values_are_audited(every_call_is_audited: None) -> None:
    hidden: queue.SimpleQueue[int] = queue.SimpleQueue()
    loop = Loop(lambda: hidden.qsize() + 1.0)
    values = []

    def train() -> torch.Tensor:
        loss = loop.model(loop.x).sum()
        values.append(loss.item())
        loss.backward()
        loop.optimizer.step()
        loop.optimizer.zero_grad()
        return loss.detach()

    loop.step = lowtide.compile(train, model=loop.model, optimizer=loop.optimizer)
    assert loop.call()
    assert loop.call()
    hidden.put(1)
    with pytest.warns(RuntimeWarning, match="is not what it was"):
        assert loop.call()  # what it gives; the value was asked for before the audit
    assert loop.call()
    assert loop.call()
    assert loop.step.stats()["eager_calls"] == 1


class Telling(nn.Module):
    """Gives a number that is not equal to itself, beside its tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, float]:
        return self.linear(x), float("nan")


class CountingOptimizer(torch.optim.SGD):
    """Its step gives a table."""

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        return {"steps": 1, "skipped": 0}


def test_what_cannot_be_compared_is_no_difference(every_call_is_audited: None) -> None:
    model = Telling()
    optimizer = CountingOptimizer(model.parameters(), 0.1)

    def train() -> float:
        optimizer.zero_grad()
        y, told = model(torch.ones(2, 4))
        y.sum().backward()
        optimizer.step()
        return told

    step = lowtide.compile(train, model=model, optimizer=optimizer, on_unsupported="raise")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            assert step() != step()
    assert step.stats()["captures"] == 1


def test_two_results_that_are_one_tensor_are_no_difference(every_call_is_audited: None) -> None:
    FakeTensorMode.cache_clear()
    model = nn.LSTM(8, 8)  # oneDNN gives one gradient for its two biases
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x)[0].square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = lowtide.compile(train, model=model, optimizer=optimizer, on_unsupported="raise")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            step(torch.randn(4, 2, 8))
    assert step.stats()["captures"] == 1


def test_budgets_are_kept_or_the_call_is_refused(every_call_is_audited: None) -> None:
    hidden: queue.SimpleQueue[int] = queue.SimpleQueue()
    loop = Loop(lambda: hidden.qsize() + 1.0, memory_budget="1 GiB")
    loop.step()
    hidden.put(1)
    with pytest.warns(RuntimeWarning, match="an audit of"):
        loop.step()
    hidden.put(1)
    with pytest.raises(lowtide.CaptureError, match="for the second time"):
        loop.step()


def test_audits_take_a_hundredth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("lowtide._live.audits.time.monotonic", lambda: now[0])
    step: Any = collections.namedtuple("Step", "record")(collections.namedtuple("Record", "calls")(2))
    audits = Audits("step")
    taken = 0.0
    while now[0] < 10_000:
        if audits.is_due(step):
            with audits.timed():
                now[0] += 3
                taken += 3
        now[0] += 0.7
    assert 0.009 < taken / now[0] <= 0.0105


@pytest.fixture
def no_audits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LOWTIDE_AUDIT", "off")
    yield


def test_audits_can_be_switched_off(no_audits: None) -> None:
    hidden: queue.SimpleQueue[int] = queue.SimpleQueue()
    loop = Loop(lambda: hidden.qsize() + 1.0)
    assert loop.call()
    hidden.put(1)
    assert not loop.call()


def test_other_switches_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWTIDE_AUDIT", "sometimes")
    with pytest.raises(ValueError, match='LOWTIDE_AUDIT is "off" or "all", not \'sometimes\''):
        Loop(lambda: 1.0)
