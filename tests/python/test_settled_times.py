"""Times settle in the first steps: once, to what operators and step took, and nothing else changes."""

import itertools
import time

import pytest
import torch
from torch import nn

import lowtide
from lowtide._lower.graph import can_run_alone
from lowtide._lower.profiles import ProfileCache
from step_models import pair, run_both, same, small_batches

RUNS = 6  # one that warms up, five that are timed


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Nothing has settled before."""
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path))


def variant_of(step):
    return step._current.current


def has_times(variant):
    """By operator: whether times are kept for it. Handing gradients out takes none."""
    return [can_run_alone(operator) for operator in variant.lowered.operators]


def compiled_again(side):
    return lowtide.compile(side.step.__wrapped__, model=side.model, optimizer=side.optimizer, on_unsupported="raise")


@pytest.mark.parametrize(("model", "optimizer"), [("mlp", "sgd"), ("cnn", "adam"), ("bert", "adamw")])
def test_the_next_plan_takes_what_this_step_took(model, optimizer):
    eager, planned = pair(model, optimizer, small=True)
    data = list(small_batches(model, RUNS + 3))
    for index, batch in enumerate(data[:-1]):  # the first step of an optimizer is another program
        assert same(*run_both(eager, planned, index, batch))
    first = variant_of(planned.step)
    nanos = first.program.runtime.call_nanos
    assert len(nanos) == len(first.plan.order)
    taken = [time for time, op in zip(nanos, first.program.operators, strict=True) if has_times(first)[op]]
    before = planned.step.plan.time_ns

    planned.step = compiled_again(planned)
    assert same(*run_both(eager, planned, RUNS + 2, data[-1]))
    assert same(eager.state(), planned.state())
    assert planned.step.plan.time_ns == pytest.approx(sum(taken), abs=len(taken))  # means are rounded
    assert first.plan.time_ns == before, "a plan that is there stays as it is"
    stats = planned.step.stats()
    assert (stats["misses"], stats["served_bytes"]) == (0, stats["arena_bytes"])


def test_times_settle_once():
    _, planned = pair("mlp", "sgd")
    data = list(small_batches("mlp", 2 * RUNS + 2))
    for batch in data[: RUNS + 1]:
        planned.step(batch)
    again = compiled_again(planned)
    times = []
    for batch in data:
        again(batch)
        times.append([profile.time_ns for profile in variant_of(again).profiles])
    assert variant_of(again).program.runtime.call_nanos == []
    assert all(row == times[0] for row in times)
    stored = ProfileCache()
    variant = variant_of(again)
    settled = [stored.get(signature) for signature in itertools.compress(variant.signatures, has_times(variant))]
    assert all(profile.settled for profile in settled)
    assert [profile.time_ns for profile in settled] == list(itertools.compress(times[0], has_times(variant)))


def test_a_step_with_the_same_calls_takes_the_times_that_settled_first():
    data = list(small_batches("mlp", RUNS + 2))
    sides = [pair("mlp", "sgd", keep_grads=False)[1] for _ in range(2)]
    for side in sides:
        for batch in data[:2]:  # both plan before anything has settled; the first step is another program
            side.step(batch)
    for side in sides:
        for batch in data:
            side.step(batch)
    first = variant_of(sides[0].step).program.runtime.call_nanos
    assert variant_of(sides[1].step).program.runtime.call_nanos, "it has been timed too"
    again = compiled_again(sides[1])
    again(data[0])
    assert again.plan.time_ns == pytest.approx(sum(first), abs=len(first))


def train(step, batch, steps=RUNS + 1):
    """The variant of the last step; the first step of an optimizer is another program."""
    for _ in range(steps):
        step(batch)
    return variant_of(step)


def test_what_a_step_takes_outside_its_operators_settles_too():
    _, planned = pair("mlp", "adam")
    batch = next(small_batches("mlp", 1))
    first = train(planned.step, batch)
    stats = planned.step.stats()
    assert (stats["outside_seconds"], stats["predicted_seconds"]) == (0, first.plan.time_ns / 1e9), "as it was planned"

    again = compiled_again(planned)
    train(again, batch)
    stats = again.stats()
    taken = sorted(first.outside[1:])
    assert taken[0] <= stats["outside_seconds"] <= taken[-1]
    assert stats["predicted_seconds"] == pytest.approx(again.plan.time_ns / 1e9 + stats["outside_seconds"])
    assert f" and {stats['outside_seconds'] * 1e3:.1f} ms outside of them" in again.summary()
    assert variant_of(again).outside == [], "it has settled"


def test_time_outside_is_that_of_python():
    model = nn.Linear(4, 4)

    def slowed(optimizer, args, kwargs):
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass

    optimizer = torch.optim.SGD(model.parameters())
    optimizer.register_step_pre_hook(slowed)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    for expected in (0.0, 0.02):
        planned = lowtide.compile(step, model=model, optimizer=optimizer, on_unsupported="raise")
        train(planned, torch.ones(2, 4), RUNS)
        assert expected <= planned.stats()["outside_seconds"] < expected + 0.5
        planned.close()


def test_steps_with_other_eager_optimizers_are_other_steps():
    signatures = []
    for kind in (torch.optim.SGD, torch.optim.Adam):
        torch.manual_seed(0)
        model = nn.Linear(4, 4)
        optimizer = kind(model.parameters())
        optimizer.register_step_pre_hook(lambda *_: None)

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

        planned = lowtide.compile(step, model=model, optimizer=optimizer, on_unsupported="raise")
        planned(torch.ones(2, 4))
        signatures.append((variant_of(planned).signatures, variant_of(planned).signature))
        planned.close()
    assert signatures[0][0] == signatures[1][0]
    assert signatures[0][1] != signatures[1][1]


def test_a_latency_budget_covers_what_a_step_takes_outside_its_operators():
    _, planned = pair("cnn", "sgd")
    batch = next(small_batches("cnn", 1))
    planned.step(batch)
    planned.step(batch)
    outside_ns = 10**9
    cache = ProfileCache()
    cache.settle_outside(variant_of(planned.step).signature, outside_ns)
    cache.save()

    def within(milliseconds):
        step = lowtide.compile(
            planned.step.__wrapped__, model=planned.model, optimizer=planned.optimizer, latency_budget=milliseconds
        )
        step(batch)
        return step

    for budget in (900, 1000.001):  # less than it takes outside, and hardly more
        with pytest.raises(lowtide.InfeasibleError, match="E302") as caught:
            within(budget)
        assert caught.value.__notes__ == [
            "lowtide: outside its operators the step takes 1000000000 ns of the latency budget's "
            f"{int(budget * 1e6)} ns"
        ]
    operators_ns = int(1.2 * planned.step.plan.time_ns)
    step = within((outside_ns + operators_ns) / 1e6)
    assert step.plan.order == lowtide.plan(step.graph, latency_budget=operators_ns / 1e6).order
    assert step.plan.time_ns > planned.step.plan.time_ns, "there is time to run something again"


def test_a_failed_step_does_not_count():
    model = nn.Embedding(10, 4)
    step = lowtide.compile(lambda ids: model(ids).sum(), model=model, on_unsupported="raise")
    good, bad = torch.tensor([1, 2]), torch.tensor([1, 20])
    with torch.no_grad():
        for run in range(RUNS):
            assert not run or variant_of(step).program.runtime.call_nanos == []
            step(good)
            with pytest.raises(IndexError):
                step(bad)
    assert variant_of(step).program.runtime.call_nanos != []
    step.close()


def test_an_operator_that_runs_again_is_a_call_too():
    eager, planned = pair("cnn", "sgd", memory_budget=0.7)
    data = list(small_batches("cnn", RUNS + 3, batch=16))
    for index, batch in enumerate(data):
        assert same(*run_both(eager, planned, index, batch))
    variant = variant_of(planned.step)
    assert len(variant.plan.order) > variant.graph.num_ops
    assert len(variant.program.runtime.call_nanos) == len(variant.plan.order)
    signatures = itertools.compress(variant.signatures, has_times(variant))
    assert all(ProfileCache().get(signature).settled for signature in signatures)


def test_within_a_budget_a_settled_step_is_planned_once(tmp_path):
    _, planned = pair("cnn", "sgd", memory_budget=0.7)
    batch = next(small_batches("cnn", 1, batch=16))

    def planned_by(step):
        """Graph and plan, which stay while times settle, and the plans on disk."""
        train(step, batch, 2)
        begin = step.graph.fingerprint, step.plan
        train(step, batch)
        assert (step.graph.fingerprint, step.plan) == begin
        return begin[0], step.plan.order, sorted(path.name for path in (tmp_path / "plans").iterdir())

    def again():
        return lowtide.compile(
            planned.step.__wrapped__, model=planned.model, optimizer=planned.optimizer, memory_budget=0.7
        )

    alone, second, third = planned_by(planned.step), planned_by(again()), planned_by(again())
    assert alone[0] != second[0]
    assert set(alone[2]) < set(second[2])
    assert second == third


def test_a_guarded_step_is_not_timed(monkeypatch):
    monkeypatch.setenv("LOWTIDE_GUARD", "1")
    _, planned = pair("mlp", "sgd")
    for batch in small_batches("mlp", RUNS + 2):
        planned.step(batch)
    variant = variant_of(planned.step)
    assert variant.program.runtime.call_nanos == []
    with pytest.raises(RuntimeError, match="guarded"):
        variant.program.runtime.time_calls()


def test_taking_times_allocates_nothing():
    _, planned = pair("cnn", "adam")
    used = []
    for batch in small_batches("cnn", RUNS + 4):
        with lowtide.measure() as memory:
            planned.step(batch)
        used.append((memory.peak_bytes, memory.allocations))
    assert len(set(used[2:])) == 1, used  # timed or not
