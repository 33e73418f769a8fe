"""Values that Python asks for before backward(): the planned step pauses there, and everything is as it is eagerly."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import lowtide
from both_ways import Run, equal_both_ways, state_of
from lowtide import _torch
from lowtide._live.deferring import Program
from lowtide._live.paused import PausedRun
from lowtide._step.captured_step import CapturedStep

CALLS = 6
counted_runs = [0]


@torch.library.custom_op("lowtide_test::counted_forward", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:
    counted_runs[0] += 1
    return x.clone()


@counted.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


counted.register_autograd(lambda ctx, grad: grad)


class Net(nn.Module):
    """It draws random numbers, and has buffers that it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.norm = nn.BatchNorm1d(32)
        self.drop = nn.Dropout(0.25)
        self.last = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.drop(self.norm(F.relu(self.first(x)))))


@dataclass
class Loop:
    """What a step is given of its loop: a step is a function of it and of the batch."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    call: int = 0

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.model(x), y)

    def update(self, loss: torch.Tensor) -> None:
        loss.backward()
        self.optimizer.step()


Step = Callable[[Loop, torch.Tensor, torch.Tensor], Any]


def looped(
    step: Step,
    make: Callable[[], nn.Module] = Net,
    *,
    bad: tuple[int, ...] = (),
    wrong: tuple[int, ...] = (),
    adam: bool = True,
    cleared: bool = True,
) -> Any:
    """A scenario: calls of the step, of which the `bad` ones get a batch that makes the loss infinite.

    The `wrong` ones get a class that there is not. If `cleared`, each call begins without gradients.
    """

    def scenario(run: Run) -> None:
        model = make()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2) if adam else torch.optim.SGD(model.parameters(), 0.1)
        loop = Loop(model, optimizer)

        def whole(x: torch.Tensor, y: torch.Tensor) -> Any:
            if cleared:
                optimizer.zero_grad()
            return step(loop, x, y)

        compiled = run.wrap(whole, model, optimizer)
        batches = torch.Generator().manual_seed(5)
        for call in range(CALLS):
            x, y = torch.randn(8, 16, generator=batches), torch.randint(4, (8,), generator=batches)
            x[0, 0] = float("nan") if call in bad else x[0, 0]
            y[0] = 99 if call in wrong else y[0]
            loop.call = call
            try:
                run.note(compiled(x, y))
            except (ArithmeticError, IndexError) as error:
                run.note(repr(error))
            run.note(state_of(model, optimizer), optimizer.param_groups[0]["lr"])

    return scenario


class Counts:
    """How often a step was begun, gone on with and put back, and values were computed by themselves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = self.finished = self.put_back = self.peeks = 0
        self._count(monkeypatch, CapturedStep, "begin", "begun")
        self._count(monkeypatch, CapturedStep, "_go_on", "finished")
        self._count(monkeypatch, PausedRun, "put_back", "put_back")
        self._count(monkeypatch, Program, "_value_by_peek", "peeks")

    def _count(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, counter: str) -> None:
        own = getattr(owner, name)

        def call(*args: Any) -> Any:
            given = own(*args)
            setattr(self, counter, getattr(self, counter) + 1)
            return given

        monkeypatch.setattr(owner, name, call)

    def __eq__(self, other: object) -> bool:
        return (self.begun, self.finished, self.put_back, self.peeks) == other

    def __repr__(self) -> str:
        return repr((self.begun, self.finished, self.put_back, self.peeks))

    __hash__ = None  # type: ignore[assignment]


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    return Counts(monkeypatch)


def checked(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> Any:
    loss = loop.loss(x, y)
    if not torch.isfinite(loss):
        return None
    loop.update(loss)
    return loss.item()


def test_from_the_second_call_on_the_step_pauses(counts: Counts) -> None:
    run = equal_both_ways(looped(checked))
    assert (run.planned, run.eager) == (CALLS, 0)
    assert counts == (CALLS - 1, CALLS - 1, 0, 1)


@pytest.mark.parametrize("bad", [(0,), (1,), (3, 4), (2, 5)])
def test_a_skipped_update_leaves_buffers_and_random_numbers_as_eager_does(bad: tuple[int, ...]) -> None:
    run = equal_both_ways(looped(checked, bad=bad))
    assert (run.planned, run.eager) == (CALLS, 0)


def test_there_is_one_forward_pass() -> None:
    class Counted(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(counted(x))

    runs: list[int] = []

    def step(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> float:
        runs.append(counted_runs[0])
        loss = loop.loss(x, y)
        before = loss.item()
        loop.update(loss)
        return before

    run = equal_both_ways(looped(step, Counted))
    assert run.eager == 0
    compiled = [*runs[-CALLS:], counted_runs[0]]
    assert [after - before for before, after in pairwise(compiled[2:])] == [1] * (CALLS - 2)


def raising(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> float:
    loss = loop.loss(x, y)
    if loss.item() > 0 and loop.call in (2, 4):
        raise ArithmeticError("the user's own")
    loop.update(loss)
    return loss.item()


def returning(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> Any:
    loss = loop.loss(x, y)
    if loss.item() > 0 and loop.call in (2, 4):
        return loss, x  # with its graph
    loop.update(loss)
    return loss.item()


def branching(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> float:
    loss = loop.loss(x, y)
    if loss.item() > 0 and loop.call in (2, 4):
        loss = loss + F.dropout(loop.model(x), 0.5).pow(2).mean()
    loop.update(loss)
    return loss.item()


def looking_at_buffers(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    loss = loop.loss(x, y)
    seen = loss.item()
    mean = loop.model.norm.running_mean.sum().item() if loop.call in (2, 4) else 0.0
    loop.update(loss)
    return seen, mean


def backward_only(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> float:
    loss = loop.loss(x, y)
    seen = loss.item()
    loss.backward()
    if loop.call % 2:
        loop.optimizer.step()
        loop.optimizer.zero_grad()
    return seen


def loading(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> float:
    loss = loop.loss(x, y)
    seen = loss.item()
    if loop.call in (2, 4):
        loop.optimizer.load_state_dict(copy.deepcopy(loop.optimizer.state_dict()))
    loop.update(loss)
    return seen


def moving(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> float:
    loss = loop.loss(x, y)
    seen = loss.item()
    if loop.call in (2, 4):
        loop.model.last.weight.data = torch.full((4, 32), 0.5)
    loop.update(loss)
    return seen


@pytest.mark.parametrize("adam", [True, False])
@pytest.mark.parametrize("step", [raising, returning, branching, looking_at_buffers, backward_only, loading, moving])
def test_what_follows_a_pause_may_be_anything(step: Step, adam: bool, counts: Counts) -> None:
    equal_both_ways(looped(step, adam=adam, cleared=step is not backward_only))
    assert counts.begun > 0
    assert counts.begun == counts.finished + counts.put_back


def test_the_optimizer_has_the_learning_rate_of_its_step(counts: Counts) -> None:
    def step(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> float:
        loss = loop.loss(x, y)
        seen = loss.item()
        for group in loop.optimizer.param_groups:
            group["lr"] = 1e-2 / (1 + seen)
        loop.update(loss)
        return seen

    assert equal_both_ways(looped(step)).eager == 0
    assert counts == (CALLS - 1, CALLS - 1, 0, 1)


def test_another_rule_than_was_begun_runs_from_the_start(counts: Counts) -> None:
    def step(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> float:
        loss = loop.loss(x, y)
        seen = loss.item()
        if loop.call == 3:
            loop.optimizer.state.clear()
        loop.update(loss)
        return seen

    equal_both_ways(looped(step))
    assert counts.put_back == 1


def test_two_pauses(counts: Counts) -> None:
    def step(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
        logits = loop.model(x)
        spread = logits.std().item()
        loss = F.cross_entropy(F.dropout(logits, 0.5), y)
        seen = loss.item()
        loop.update(loss)
        return spread, seen

    assert equal_both_ways(looped(step)).eager == 0
    assert counts == (CALLS - 1, CALLS - 1, 0, 2)


def test_a_second_value_that_is_another_one(counts: Counts) -> None:
    def step(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
        logits = loop.model(x)
        spread = logits.std().item()
        loss = F.cross_entropy(F.dropout(logits, 0.5), y)
        seen = loss.item() if loop.call % 2 else logits.mean().item()
        loop.update(loss)
        return spread, seen

    assert equal_both_ways(looped(step)).eager == 0
    assert counts.begun == CALLS - 1


def test_tensors_that_come_after_the_pause(counts: Counts) -> None:
    weights = torch.rand(8, generator=torch.Generator().manual_seed(1))

    def step(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> float:
        losses = F.cross_entropy(loop.model(x), y, reduction="none")
        seen = losses.max().item()
        loop.update((losses * (weights + seen if loop.call < 0 else weights)).mean())
        return seen

    assert equal_both_ways(looped(step)).eager == 0
    assert counts == (CALLS - 1, CALLS - 1, 0, 1)


@pytest.mark.parametrize("late", [True, False])
def test_a_random_state_that_is_set_in_mid_step(late: bool) -> None:
    def step(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> float:
        logits = loop.model(x)
        if not late:
            torch.manual_seed(loop.call)
        seen = logits.mean().item()
        if late:
            torch.manual_seed(loop.call)
        loop.update(F.cross_entropy(logits, y))
        return seen

    equal_both_ways(looped(step))


def test_random_numbers_after_a_pause_are_of_the_state_that_was_set() -> None:
    def step(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> float:
        logits = loop.model(x)
        seen = logits.mean().item()
        if loop.call > 0:  # what is recorded has drawn its numbers in one go
            torch.manual_seed(loop.call)
        loop.update(F.cross_entropy(F.dropout(logits, 0.5), y))
        return seen

    equal_both_ways(looped(step))


def other_program() -> Callable[[], Any]:
    """Runs a program of another step in the arena, as if on its own."""
    other = nn.Sequential(nn.Linear(16, 256), nn.GELU(), nn.Linear(256, 16))
    infer = lowtide.compile(lambda x: other(x), model=other)
    with torch.no_grad():
        infer(torch.ones(8, 16))
    batch = torch.full((8, 16), 3.0)

    def run() -> Any:
        variant = infer._current.current
        for buffer, _ in variant.inputs:
            variant.program.runtime.bind(buffer, batch, transient=True)
        return variant.program.runtime.run([])

    return run


def test_a_random_state_that_is_set_between_two_pauses() -> None:
    def step(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
        logits = loop.model(x)
        spread = logits.std().item()
        if loop.call in (2, 4):
            torch.manual_seed(loop.call)
        loss = F.cross_entropy(logits, y)
        seen = loss.item()
        if loop.call in (2, 5):
            raise ArithmeticError("the user's own")
        loop.update(loss)
        return spread, seen

    equal_both_ways(looped(step))


@pytest.mark.parametrize("by", ["another program", "nobody: it is emptied"])
def test_an_arena_that_was_used_meanwhile(by: str, counts: Counts) -> None:
    use = other_program() if by == "another program" else _torch.empty_arena

    def step(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> float:
        loss = loop.loss(x, y)
        seen = loss.item()
        if loop.call % 2:
            use()
        loop.update(loss)
        return seen

    assert equal_both_ways(looped(step)).eager == 0
    assert counts == (CALLS - 1, CALLS // 2 - 1, CALLS // 2, 1)


def test_another_compiled_step_in_between() -> None:
    other = nn.Linear(16, 16)
    infer = lowtide.compile(lambda x: other(x), model=other)

    def step(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
        loss = loop.loss(x, y)
        seen = loss.item()
        with torch.no_grad():
            told = infer(x)
        loop.update(loss)
        return seen, told.sum().item()

    with torch.no_grad():
        infer(torch.ones(8, 16))
    equal_both_ways(looped(step))


def test_gradients_that_were_there_before_add_up(counts: Counts) -> None:
    def step(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> float:
        loss = loop.loss(x, y)
        seen = loss.item()
        loss.backward()
        loop.optimizer.step()
        return seen

    assert equal_both_ways(looped(step, cleared=False)).eager == 0
    assert counts == (CALLS - 2, CALLS - 2, 0, 2)  # the first call has found no gradients


def test_checkpoints_and_autocast(counts: Counts) -> None:
    class Checkpointed(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(checkpoint(lambda h: self.drop(F.relu(self.first(h))), x, use_reentrant=False))

    def step(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> float:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loop.loss(x, y)
            seen = loss.item()
        loop.update(loss)
        return seen

    assert equal_both_ways(looped(step, Checkpointed)).eager == 0
    assert counts == (CALLS - 1, CALLS - 1, 0, 1)


@pytest.mark.parametrize("after", [False, True])
def test_an_operator_that_fails_on_either_side_of_the_pause(after: bool, counts: Counts) -> None:
    def step(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> float:
        logits = loop.model(x)
        if not after:
            logits = logits[y]
        seen = logits.mean().item()
        loop.update(F.cross_entropy(logits, y))
        return seen

    equal_both_ways(looped(step, wrong=(3,)))
    assert counts.begun == CALLS - 2 + after


@pytest.mark.parametrize("guarded", [False, True])
def test_the_budget_is_kept(guarded: bool, monkeypatch: pytest.MonkeyPatch, counts: Counts) -> None:
    if guarded:
        monkeypatch.setenv("LOWTIDE_GUARD", "1")

    def wide() -> nn.Module:
        return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.BatchNorm1d(64), nn.Linear(64, 4))

    def step(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> float:
        loss = loop.loss(x.repeat(64, 1), y.repeat(64))
        seen = loss.item()
        loop.update(loss)
        return seen

    run = equal_both_ways(looped(step, wide), memory_budget=0.9)
    assert (run.planned, run.eager, run.said) == (CALLS, 0, [])
    assert counts == (CALLS - 1, CALLS - 1, 0, 1)
    stats = run.steps[0].stats()
    assert stats["planned_bytes"] <= stats["budget_bytes"]
