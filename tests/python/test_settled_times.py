"""Operators' times settle in the first steps: once, to what the step took, and nothing else changes."""

import pytest
import torch
from torch import nn

import lowtide
from lowtide.profiles import ProfileCache
from step_models import pair, run_both, same, small_batches

RUNS = 6  # one that warms up, five that are timed


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Nothing has settled before."""
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path))


def variant_of(step):
    return step._current.current


def compiled_again(side):
    return lowtide.compile(side.step.__wrapped__, model=side.model, optimizer=side.optimizer, on_unsupported="raise")


@pytest.mark.parametrize(("model", "optimizer"), [("mlp", "sgd"), ("cnn", "adam"), ("bert", "adamw")])
def test_the_next_plan_takes_what_this_step_took(model, optimizer):
    eager, planned = pair(model, optimizer, small=True)
    data = list(small_batches(model, RUNS + 3))
    for index, batch in enumerate(data[:-1]):  # the first step of an optimizer is another program
        assert same(*run_both(eager, planned, index, batch))
    first = variant_of(planned.step)
    taken = first.program.runtime.call_nanos
    assert len(taken) == len(first.plan.order)
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
    settled = [stored.get(signature) for signature in variant_of(again).signatures]
    assert all(profile.settled for profile in settled)
    assert [profile.time_ns for profile in settled] == times[0]


def test_a_step_with_the_same_calls_takes_the_times_that_settled_first():
    data = list(small_batches("mlp", RUNS + 2))
    sides = [pair("mlp", "sgd")[1] for _ in range(2)]
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
    assert all(ProfileCache().get(signature).settled for signature in variant.signatures)


def test_within_a_budget_a_settled_step_is_planned_once(tmp_path):
    _, planned = pair("cnn", "sgd", memory_budget=0.7)
    batch = next(small_batches("cnn", 1, batch=16))

    def train(step):
        """Steps until times have settled: graphs and plans at both ends, and the plans on disk."""
        step(batch)  # the first step of an optimizer may be another program
        step(batch)
        begin = step.graph.fingerprint, step.plan
        for _ in range(RUNS):
            step(batch)
        assert (step.graph.fingerprint, step.plan) == begin, "a plan that runs stays"
        return begin[0], step.plan.order, sorted(path.name for path in (tmp_path / "plans").iterdir())

    def again():
        return lowtide.compile(
            planned.step.__wrapped__, model=planned.model, optimizer=planned.optimizer, memory_budget=0.7
        )

    alone, second, third = train(planned.step), train(again()), train(again())
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
