"""Eager loops served from one arena: the same bits, every request at its known place, no byte wasted."""

import copy
import dataclasses
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import lowtide
from bench import zoo
from bench.lib.measured_run import measure as measure_process

MODELS = (
    "alexnet",
    "googlenet",
    "resnet50",
    "inception_resnet_v2",
    "bert_base",
    "gpt2",
    "t5_base",
    "lstm_seq2seq",
)
STEPS = 20


def same_bits(first: Any, second: Any) -> bool:
    pairs = zip(pytree.tree_leaves(first), pytree.tree_leaves(second), strict=True)
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


def batches_of(job: zoo.Job, count: int) -> Iterator[dict[str, torch.Tensor]]:
    """Sequences of two lengths in turn for the recurrent model, and batches of one shape for the others."""
    other = dataclasses.replace(job, extent=job.extent - 5) if job.row.name == "lstm_seq2seq" else job
    for number in range(count):
        yield (other if number % 2 else job).make_batch(job.batch_size, number)


def trained(job: zoo.Job, model: nn.Module, after_step: Callable[[], None] = lambda: None) -> Any:
    torch.manual_seed(7)
    optimizer = torch.optim.Adam(model.parameters())
    step = job.train_step(model, optimizer)
    losses = []
    for batch in batches_of(job, STEPS):
        losses.append(step(batch))
        after_step()
    return losses, model.state_dict(), optimizer.state_dict()


@pytest.mark.parametrize("name", MODELS)
def test_training_is_replayed_bit_for_bit(name: str) -> None:
    job = zoo.build(name)
    expected = trained(job, copy.deepcopy(job.model))
    misses = []
    with lowtide.replay() as replay:

        def after_step() -> None:
            replay.settle()
            misses.append(replay.stats().misses)

        found = trained(job, job.model, after_step)
        profiles = replay.profiles()
    stats = replay.stats()
    assert same_bits(expected, found)
    assert misses[-1] == misses[9], "every request had its place, once each way to go had been seen"
    assert stats.replayed >= STEPS - 4
    assert stats.hits > 10 * stats.outside, "almost nothing outlives an iteration"
    for profile in profiles:
        assert profile.arena_bytes - profile.bound_bytes < 64, "no arena is smaller, but for alignment"
        assert profile.arena_bytes - profile.peak_bytes < 0.01 * profile.arena_bytes, "what alignment takes"
        assert profile.arena_bytes <= profile.pooled_bytes


@pytest.mark.parametrize("name", MODELS)
def test_inference_is_replayed_bit_for_bit(name: str) -> None:
    job = zoo.build(name)
    model = job.model.train(name == "googlenet")  # which has its helpers' losses in training alone

    @torch.no_grad()
    def losses(after: Callable[[], None] = lambda: None) -> list[torch.Tensor]:
        torch.manual_seed(7)
        found = []
        for batch in batches_of(job, STEPS):
            found.append(job.row.task.loss(model, batch).clone())
            after()
        return found

    expected = losses()
    with lowtide.replay() as replay:

        def after() -> None:
            replay.step()
            replay.settle()

        found = losses(after)
    assert same_bits(expected, found)
    stats = replay.stats()
    assert stats.replayed >= STEPS - 4
    assert stats.misses <= stats.hits // 10, "when another way to go is seen first"


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))


Loop = Callable[[nn.Module, Sequence[torch.Tensor], Callable[[], None]], Any]


def plain_loop(model: nn.Module, inputs: Sequence[torch.Tensor], after_step: Callable[[], None]) -> list[torch.Tensor]:
    torch.manual_seed(3)
    optimizer = torch.optim.Adam(model.parameters())
    losses = []
    for x in inputs:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().clone())
        after_step()
    return losses


def check_loop(loop: Loop, inputs: Sequence[torch.Tensor], **options: Any) -> lowtide.ReplayStats:
    """Runs a loop eager and replayed; the parameters must be the same."""
    first, second = mlp(), mlp()
    expected = loop(first, inputs, lambda: None)
    with lowtide.replay(**options) as replay:
        found = loop(second, inputs, replay.settle)
    assert same_bits((expected, first.state_dict()), (found, second.state_dict()))
    return replay.stats()


def inputs_of(*sizes: int) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    return [torch.randn(size, 64, generator=random) for size in sizes]


def test_gradients_are_zeroed_where_users_zero_them() -> None:
    def after_forward(model: nn.Module, inputs: Sequence[torch.Tensor], after_step: Callable[[], None]) -> None:
        torch.manual_seed(3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for x in inputs:
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            after_step()

    def at_the_end(model: nn.Module, inputs: Sequence[torch.Tensor], after_step: Callable[[], None]) -> None:
        torch.manual_seed(3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for x in inputs:
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            after_step()

    for loop in (after_forward, at_the_end):
        stats = check_loop(loop, inputs_of(*[32] * 10))
        assert (stats.misses, stats.escaped) == (0, 0)
        assert stats.replayed >= 7


def test_gradients_are_accumulated_over_several_calls() -> None:
    def loop(model: nn.Module, inputs: Sequence[torch.Tensor], after_step: Callable[[], None]) -> None:
        torch.manual_seed(3)
        optimizer = torch.optim.Adam(model.parameters())
        for number, x in enumerate(inputs):
            (model(x).square().mean() / 4).backward()
            if number % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
                after_step()

    stats = check_loop(loop, inputs_of(*[32] * 40))
    assert stats.iterations == 10
    assert (stats.misses, stats.escaped) == (0, 0)
    assert stats.replayed >= 7


def test_two_optimizers_take_turns() -> None:
    def loop(model: nn.Module, inputs: Sequence[torch.Tensor], after_step: Callable[[], None]) -> None:
        torch.manual_seed(3)
        first = torch.optim.Adam(model[0].parameters())
        second = torch.optim.SGD(model[3].parameters(), lr=0.1)
        for x in inputs:
            for optimizer, weight in ((first, 1.0), (second, -1.0)):
                model.zero_grad()
                (weight * model(x).square().mean()).backward()
                optimizer.step()
                after_step()

    stats = check_loop(loop, inputs_of(*[32] * 10))
    assert stats.misses == 0
    assert stats.profiles == 2


def test_a_loop_without_modules() -> None:
    weights = torch.randn(64, 64, requires_grad=True)
    with lowtide.replay() as replay:
        for x in inputs_of(*[32] * 8):
            loss = (x @ weights).relu().sum()
            loss.backward()
            weights.grad = None
            replay.step()
            replay.settle()
    assert replay.stats().misses == 0
    assert replay.stats().replayed >= 3

    with lowtide.replay() as replay:
        for x in inputs_of(*[32, 16] * 6):
            replay.begin(x)
            (x @ weights).relu().sum().backward()
            weights.grad = None
            replay.step()
            replay.settle()
    assert replay.stats().misses <= 3, "when the larger one comes"
    assert replay.stats().replayed >= 5


def test_keyword_arguments_are_part_of_the_signature() -> None:
    job = zoo.build("gpt2")
    lengths = [dataclasses.replace(job, extent=extent) for extent in (16, 12)]
    optimizer = torch.optim.Adam(job.model.parameters())
    with lowtide.replay() as replay:
        for number in range(12):
            batch = lengths[number % 2].make_batch(2, number)
            optimizer.zero_grad()
            job.model(**batch).loss.backward()
            optimizer.step()
            replay.settle()
        signatures = len(replay.profiles())
    assert replay.stats().misses == 0
    assert signatures == 2 or replay.stats().replayed >= 9, "the shorter one may fit where the longer one did"


class PackedAtOnce:
    """Instead of the thread that packs: one that has always finished before anybody looks."""

    def __init__(self, **options: Any) -> None:
        pass

    def submit(self, pack: Callable[..., Any], *arguments: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(pack(*arguments))
        return done

    def shutdown(self, **options: Any) -> None:
        pass


def test_how_long_packing_takes_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def counts(inputs: Sequence[torch.Tensor]) -> list[int]:
        stats = check_loop(plain_loop, inputs)
        return [stats.replayed, stats.hits, stats.outside, stats.misses, stats.unplanned, stats.escaped, stats.departed]

    loops = [inputs_of(*sizes) for sizes in ([32] * 8, [16, 32] * 6, [32, 16] * 6, [16] * 4 + [32] * 6)]
    expected = [counts(inputs) for inputs in loops]
    monkeypatch.setattr("lowtide._replay.profiles.ThreadPoolExecutor", PackedAtOnce)
    assert [counts(inputs) for inputs in loops] == expected


def test_a_smaller_batch_is_served_in_place() -> None:
    stats = check_loop(plain_loop, inputs_of(*[32] * 4, 31, 30, 29, 8, 1, 32))
    assert (stats.misses, stats.profiles) == (0, 1)
    assert stats.replayed >= 7


def test_a_larger_batch_is_packed_again() -> None:
    stats = check_loop(plain_loop, inputs_of(*[16] * 4, *[32] * 6))
    assert stats.misses > 0, "the first larger one"
    assert stats.profiles == 2
    before = check_loop(plain_loop, inputs_of(*[16] * 4, *[32] * 4))
    assert stats.misses == before.misses, "and none after it"


def test_a_departing_iteration_is_served_as_far_as_it_goes() -> None:
    class Departing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            if self.calls == 6:
                x = torch.cat([x, x])[: x.shape[0]] + 0.0
            return self.inner(x)

    first, second = Departing(), Departing()
    inputs = inputs_of(*[32] * 12)
    expected = plain_loop(first, inputs, lambda: None)
    with lowtide.replay() as replay:
        found = plain_loop(second, inputs, replay.settle)
    assert same_bits((expected, first.state_dict()), (found, second.state_dict()))
    stats = replay.stats()
    assert 0 < stats.misses < 30, "the arena is as large as the peak, and more is alive now"
    assert stats.hits > 500
    assert (stats.departed, stats.departed_at) == (1, "aten::linear"), "where torch.cat was called instead"
    assert "1 iterations went another way than those known before, the last where aten::linear was expected" in str(
        stats
    )


def test_parts_are_paused() -> None:
    model = mlp()
    with lowtide.replay() as replay:

        def after_step() -> None:
            with replay.paused(), replay.paused():
                torch.randn(int(torch.randint(1, 1000, ())), 10)
            replay.settle()

        plain_loop(model, inputs_of(*[32] * 10), after_step)
    assert replay.stats().misses == 0


def test_what_runs_in_other_threads_is_counted() -> None:
    model = mlp()
    with lowtide.replay() as replay:

        def after_step() -> None:
            threads = [threading.Thread(target=lambda: torch.randn(1000).sum()) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            replay.settle()

        plain_loop(model, inputs_of(*[32] * 10), after_step)
    assert replay.stats().misses == 0
    assert replay.stats().other_threads >= 20


def test_measured_bytes_are_those_of_the_arena() -> None:
    model = mlp()
    with lowtide.measure() as used:
        with lowtide.replay() as replay:
            plain_loop(model, inputs_of(*[256] * 6), replay.settle)
            (profile,) = replay.profiles()
            assert profile.peak_bytes <= used.arena_bytes <= profile.arena_bytes
        assert used.arena_bytes == 0, "it is given back"


def test_a_compiled_step_runs_inside() -> None:
    eager, model, compiled = mlp(), mlp(), mlp()
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)

    def train(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = compiled(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step = lowtide.compile(train, model=compiled, optimizer=optimizer, on_unsupported="raise")
    inputs = inputs_of(*[32] * 8)
    expected = plain_loop(eager, inputs, lambda: None)
    gc.collect()  # what other tests have left of the arena
    with lowtide.replay() as replay:

        def after_step() -> None:
            with torch.random.fork_rng():
                assert step(inputs[0]).isfinite()
            replay.settle()

        found = plain_loop(model, inputs, after_step)
    assert same_bits((expected, eager.state_dict()), (found, model.state_dict()))
    assert replay.stats().misses == 0
    assert step.stats()["misses"] == 0
    step.close()


def test_the_first_iterations_may_spill_to_disk(tmp_path: Path) -> None:
    stats = check_loop(plain_loop, inputs_of(*[512] * 8), spill=tmp_path)
    assert stats.misses == 0
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError, match="cannot make a file in"), lowtide.replay(spill=tmp_path / "missing"):
        pass
    with lowtide.replay():
        pass


SPILLING = """
import resource, sys
import torch, lowtide
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(24)])
x = torch.randn(4096, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
used = int([line for line in open("/proc/self/status") if line.startswith("VmData")][0].split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + (64 << 20), -1))  # the iteration needs 100 MiB
with lowtide.replay(spill=sys.argv[1] or None) as replay:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
print("done")
"""


def test_an_iteration_that_does_not_fit_memory_is_looked_at(tmp_path: Path) -> None:
    import sys

    without = measure_process([sys.executable, "-c", SPILLING, ""])
    assert without.code != 0 and "memory" in without.stderr, without.stderr
    spilled = measure_process([sys.executable, "-c", SPILLING, str(tmp_path)])
    assert (spilled.code, spilled.stdout) == (0, "done\n"), spilled.stderr


def test_statistics_are_read_by_people() -> None:
    stats = check_loop(plain_loop, inputs_of(*[32] * 8))
    text = str(stats)
    assert f"8 iterations, {stats.replayed} replayed; 1 profiles" in text
    assert "0 missed" in text
    assert f"{100 * stats.fragmentation:.2f} % fragmentation" in text
    assert stats.nanos_per_request is not None and stats.ordinary_nanos_per_request is not None
    assert "ns for a request and its release" in text
