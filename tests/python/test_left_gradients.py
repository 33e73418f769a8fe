"""Gradients that a step leaves in its arena: who holds them then, and what else runs."""

from __future__ import annotations

import copy
import gc
import mmap
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import lowtide
from bench.lib.models import MODELS
from lowtide._compile.memory_budget import SCALAR_BYTES
from step_models import pair, same, small_batches

Step = Callable[..., torch.Tensor]
SCALARS = 4096  # of losses and counts, a page of the arena


class Trained:
    """A model and its compiled step, beside their eager twins."""

    def __init__(
        self,
        optimizer: Any = torch.optim.AdamW,
        width: int = 64,
        look: Callable[[nn.Module], None] = lambda model: None,
        in_pause: Callable[[], None] | None = None,
        rows: int = 64,
        **options: Any,
    ) -> None:
        """`look` is called after the backward pass, and `in_pause` before it, where the loss is read."""
        torch.manual_seed(0)
        layers = [layer for _ in range(3) for layer in (nn.Linear(32, width), nn.GELU(), nn.Linear(width, 32))]
        self.model = nn.Sequential(*layers)
        self.twin = copy.deepcopy(self.model)
        self.make_optimizer, self.look, self.in_pause, self.rows = optimizer, look, in_pause, rows
        planned, optimizer = self.make_step(self.model)
        self.step = lowtide.compile(planned, model=self.model, optimizer=optimizer, on_unsupported="raise", **options)
        self.eager, _ = self.make_step(self.twin)

    def make_step(self, model: nn.Module) -> tuple[Step, torch.optim.Optimizer]:
        optimizer = self.make_optimizer(model.parameters())

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            if self.in_pause is not None and loss.item() >= 0:
                self.in_pause()
            loss.backward()
            self.look(model)
            optimizer.step()
            if self.in_pause is not None:
                optimizer.zero_grad()
            return loss

        return step, optimizer

    def train(self, steps: int = 1) -> None:
        for _ in range(steps):
            x = torch.randn(self.rows, 32)
            assert same(self.step(x), self.eager(x))
            assert same(self.gradients(), [parameter.grad for parameter in self.twin.parameters()])
            assert same(self.model.state_dict(), self.twin.state_dict())

    def gradients(self) -> list[torch.Tensor | None]:
        return [parameter.grad for parameter in self.model.parameters()]

    def lends(self) -> bool:
        """Whether the gradients are in the arena."""
        return self.step.stats()["gradient_bytes"] == 0


@pytest.fixture
def before() -> int:
    """Bytes of the arena that other tests have left."""
    gc.collect()
    return lowtide._torch.arena_usable_bytes()


def has_room_for_one(before: int, *steps: Any) -> bool:
    """Whether the arena is as large as the largest of the steps needs it, in whole pages, or as it was before."""
    gc.collect()
    largest = max(step.stats()["arena_bytes"] for step in steps)
    return lowtide._torch.arena_usable_bytes() < max(before, largest) + mmap.PAGESIZE


def test_they_lie_in_the_arena_and_each_step_finds_their_place_again(before: int):
    trained = Trained()
    trained.train(4)
    assert trained.lends() and trained.step.stats()["misses"] == 0
    assert has_room_for_one(before, trained.step)


def hold(gradient: torch.Tensor) -> Any:
    return gradient


def hold_an_array(gradient: torch.Tensor) -> Any:
    return gradient.numpy()


def hold_a_capsule(gradient: torch.Tensor) -> Any:
    return torch.utils.dlpack.to_dlpack(gradient)


def hold_a_window(gradient: torch.Tensor) -> Any:
    return gradient[..., 1:]


def hold_a_storage(gradient: torch.Tensor) -> Any:
    return gradient.untyped_storage()


def shown(held: Any, like: torch.Tensor) -> torch.Tensor:
    if isinstance(held, torch.UntypedStorage):
        return torch.empty(0).set_(held).reshape(like.shape)
    return held if isinstance(held, torch.Tensor) else torch.from_dlpack(held)


@pytest.mark.parametrize("how", [hold, hold_an_array, hold_a_capsule, hold_a_window, hold_a_storage])
def test_what_is_held_stays_as_it_is(how: Callable[[torch.Tensor], Any]):
    trained = Trained()
    trained.train(2)
    held = [how(gradient) for gradient in trained.gradients() if gradient is not None]
    copies = [gradient.clone() for gradient in trained.gradients() if gradient is not None]
    trained.train(2)
    assert not trained.lends(), "from then on they lie beside the arena"
    expected = [copy if how is not hold_a_window else copy[..., 1:] for copy in copies]
    assert same([shown(one, like) for one, like in zip(held, expected, strict=True)], expected)
    del held
    trained.train(2)
    assert not trained.lends()


def test_another_step_in_between_has_them_moved_out(before: int):
    trained, other = Trained(), Trained()
    trained.train(2)
    places = [gradient.data_ptr() for gradient in trained.gradients() if gradient is not None]
    copies = [gradient.clone() for gradient in trained.gradients() if gradient is not None]
    other.train(1)
    gradients = [gradient for gradient in trained.gradients() if gradient is not None]
    assert all(gradient.data_ptr() != place for gradient, place in zip(gradients, places, strict=True))
    assert same(gradients, copies)
    assert has_room_for_one(before, trained.step, other.step)
    del gradients
    for _ in range(2):
        trained.train()
        other.train()
    assert not trained.lends() and not other.lends()


def test_a_step_without_gradients_in_between(before: int):
    trained = Trained()

    def evaluate(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return trained.model(x).square().mean()

    evaluated = lowtide.compile(evaluate, model=trained.model, on_unsupported="raise")
    for _ in range(3):
        trained.train()
        x = torch.randn(64, 32)
        assert same(evaluated(x), evaluate(x))
    assert has_room_for_one(before, trained.step, evaluated)
    assert not trained.lends()


def test_a_region_that_begins_in_between():
    torch._dynamo.reset()
    trained = Trained()
    model = nn.Sequential(nn.Linear(32, 32), nn.Tanh())
    call = torch.compile(model, backend="lowtide", options={"on_unsupported": "raise"})
    for _ in range(3):
        trained.train()
        call(torch.randn(8, 32)).sum().backward()
    trained.train()
    assert not trained.lends()


def test_a_budget_is_kept_beside_gradients_of_a_model_that_is_done():
    first = Trained()
    first.train(2)
    first.step.close()
    second = Trained(memory_budget=0.8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        second.train(3)
    assert same(first.gradients(), [parameter.grad for parameter in first.twin.parameters()])


def test_gradients_that_somebody_holds_are_not_of_another_steps_budget():
    first = Trained()
    first.train(2)
    held = first.gradients()
    second = Trained(memory_budget=0.8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        second.train(3)
    del held


def least_budget(graph: lowtide.Graph) -> int:
    """That some plan keeps, to a hundredth."""
    refused, kept = graph.resident_bytes, graph.eager_bytes
    while kept - refused > kept // 100:
        budget = (refused + kept) // 2
        try:
            lowtide.plan(graph, memory_budget=budget)
        except lowtide.InfeasibleError:
            refused = budget
        else:
            kept = budget
    return kept


def test_a_budget_that_holding_them_breaks_says_so():
    alone = Trained()
    alone.train(2)
    trained = Trained(memory_budget=least_budget(alone.step.graph) + SCALAR_BYTES)
    trained.train(2)
    assert trained.lends()
    held = trained.gradients()
    with pytest.raises(lowtide.InfeasibleError) as caught:
        trained.train(1)
    assert any("somebody held gradients of an earlier call" in note for note in caught.value.__notes__)
    del held


def test_they_outlive_their_step():
    trained = Trained()
    trained.train(2)
    model, copies = trained.model, [g.clone() for g in trained.gradients() if g is not None]
    trained.step.close()
    del trained
    gc.collect()
    Trained().train(2)
    assert same([parameter.grad for parameter in model.parameters()], copies)


def test_a_loop_that_adds_to_them_has_them_beside():
    torch.manual_seed(0)
    model = nn.Linear(32, 32)
    twin = copy.deepcopy(model)

    def step_of(model: nn.Module) -> tuple[Step, torch.optim.Optimizer]:
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x: torch.Tensor) -> torch.Tensor:
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return step, optimizer

    planned, optimizer = step_of(model)
    eager, _ = step_of(twin)
    step = lowtide.compile(planned, model=model, optimizer=optimizer, on_unsupported="raise")
    for turn in range(6):
        x = torch.randn(16, 32)
        assert same(step(x), eager(x))
        assert same([p.grad for p in model.parameters()], [p.grad for p in twin.parameters()])
        if turn >= 3:
            for one in (model, twin):
                one.zero_grad(set_to_none=turn == 4)


def test_gradients_of_another_thread_are_moved_out():
    trained, other = Trained(), Trained()
    worker = threading.Thread(target=trained.train, args=(2,))
    worker.start()
    worker.join()
    places = [gradient.data_ptr() for gradient in trained.gradients() if gradient is not None]
    other.train(2)
    assert not {gradient.data_ptr() for gradient in trained.gradients() if gradient is not None} & {*places}
    trained.train(2)
    assert not trained.lends()


def test_a_gradient_that_another_thread_adds_to_stays_until_it_is_done():
    trained, other = Trained(), Trained()
    trained.train(2)
    adds, has_run = threading.Event(), threading.Event()
    added = trained.model[2].weight
    place = added.grad.data_ptr()
    x = torch.randn(16, 32)

    class Waits(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.add_.Tensor and args[0].data_ptr() == place:
                adds.set()
                assert has_run.wait(60)
            return func(*args, **(kwargs or {}))

    def backward() -> None:
        with Waits():
            trained.model(x).square().mean().backward()

    worker = threading.Thread(target=backward)
    worker.start()
    assert adds.wait(60)
    other.train(1)
    assert added.grad.data_ptr() == place
    has_run.set()
    worker.join()
    trained.twin(x).square().mean().backward()
    assert same(trained.gradients(), [parameter.grad for parameter in trained.twin.parameters()])
    trained.train(1)


kept: list[torch.Tensor] = []  # by an operator


@torch.library.custom_op("lowtide_test::keep_gradient", mutates_args=())
def keep(gradient: torch.Tensor) -> torch.Tensor:
    kept.append(gradient)
    return gradient.sum()


keep.register_fake(lambda gradient: gradient.new_empty(()))


def test_what_an_operator_keeps_of_them_stays_as_it_is():
    def look(model: nn.Module) -> None:
        for parameter in model.parameters():
            torch.ops.lowtide_test.keep_gradient(parameter.grad)

    trained = Trained(look=look)
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    for _ in range(4):
        kept.clear()
        trained.train(1)
        assert same(kept[: len(kept) // 2], kept[len(kept) // 2 :])
        found += [(tensor, tensor.clone()) for tensor in kept[: len(kept) // 2]]
        assert all(torch.equal(tensor, copied) for tensor, copied in found)


def test_a_step_that_asserts_on_them_is_planned():
    def look(model: nn.Module) -> None:
        for parameter in model.parameters():
            torch._assert_async(parameter.grad.isfinite().all())

    trained = Trained(look=look)
    trained.train(3)
    assert trained.step.stats()["eager_calls"] == 0


class KeepsGradients(torch.optim.Optimizer):
    """The next update reads the gradient of this one; numbers depend on shapes, so the rule is called as it is."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            before = self.state[parameter].get("before", parameter.grad)
            parameter.sub_(
                1.5 * parameter.grad - 0.5 * before.view_as(parameter), alpha=0.01 / parameter.numel() ** 0.5
            )
            self.state[parameter]["before"] = self.kept(parameter.grad)

    @staticmethod
    def kept(gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class KeepsViews(KeepsGradients):
    @staticmethod
    def kept(gradient: torch.Tensor) -> torch.Tensor:
        return gradient.detach().view(-1)


@pytest.mark.parametrize("optimizer", [KeepsGradients, KeepsViews])
def test_a_rule_that_keeps_them_finds_them_again(optimizer: type[KeepsGradients]):
    Trained(optimizer).train(5)


def test_a_pause_in_which_earlier_ones_are_let_go_of():
    """The paused step lies behind them, in memory that nobody else needs."""
    first = Trained(width=512)
    held: list[Any] = []

    def let_go() -> None:
        held.clear()
        gc.collect()

    second = Trained(width=512, in_pause=let_go, rows=256)
    for turn in range(5):
        first.train(1)
        held[:] = first.gradients() if turn >= 2 else []
        first.model.zero_grad()
        first.twin.zero_grad()
        second.train(1)


@pytest.mark.parametrize("name", [*MODELS])
def test_no_step_needs_more_than_eager(name: str):
    eager, planned = pair(name, small=True, layers=2)
    peaks: list[int] = []
    for index, batch in enumerate(small_batches(name, 3, batch=8)):
        peaks = []
        for side in (eager, planned):
            torch.manual_seed(index)
            with lowtide.measure() as used:
                side.step(batch)
            peaks.append(used.peak_bytes)
    assert same(eager.state(), planned.state())
    assert planned.step.stats()["gradient_bytes"] == 0 and peaks[1] <= peaks[0] + SCALARS
