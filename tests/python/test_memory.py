"""By lowtide.measure(): what a step takes is what its plan says, from the first step on."""

import gc

import pytest
import torch

import lowtide
from step_models import FULL, MODELS, OPTIMIZERS, SMALL, batches, pair, small_batches

UNPLANNED_LIMIT = 64 * 1024
# Models, optimizers and threads: each transformer, at full size, with each optimizer and with each number of threads.
MEASURED = [
    (model, optimizer, threads)
    for model in MODELS
    for optimizer in ("adam", "adam_fused")
    for threads in (1, 2)
    if FULL or model not in SMALL or (model == "bert") == ((optimizer == "adam") == (threads == 1))
]


def kept_bytes(step):
    """Bytes that the planned step makes and the caller keeps: outputs, gradients, new optimizer state."""
    return sum(b.nbytes for b in step._current.current.lowered.buffers if b.kind == "made")


@pytest.mark.parametrize(("model", "optimizer", "threads"), MEASURED)
def test_predicted_is_measured_on_every_step(model, optimizer, threads):
    torch.set_num_threads(threads)
    _, planned = pair(model, optimizer)
    size = {} if threads == 1 else {"batch": 4, "length": 32}
    for index, batch in enumerate(batches(model, 4, **size)):
        if index == 0:
            # Profiles are taken before the first step: take them on another copy, so that the step is measured alone.
            _, other = pair(model, optimizer)
            other.step(batch)
            other.step.close()
        with lowtide.measure() as used:
            loss = planned.step(batch)
        plan, stats = planned.step.plan, planned.step.stats()
        assert used.arena_bytes == plan.arena_bytes == stats["served_bytes"], index
        assert stats["misses"] == 0 and stats["unplanned_bytes"] == 0, index
        unplanned = used.peak_bytes - plan.arena_bytes - kept_bytes(planned.step)
        assert unplanned <= UNPLANNED_LIMIT, (index, unplanned)
        del loss


def test_planned_beats_eager_where_the_update_has_temporaries():
    """foreach updates make temporaries as large as all parameters; planned per parameter they vanish."""

    def many(p):
        return torch.optim.Adam(p, foreach=True)

    eager, planned = pair("bert", many, keep_grads=False)
    peaks = []
    for side in (eager, planned):
        for index, batch in enumerate(small_batches("bert", 3)):
            with lowtide.measure() as used:
                side.step(batch)
            if index == 2:
                peaks.append(used.peak_bytes)
    assert peaks[1] < peaks[0]


def test_memory_stays_flat_over_many_steps_and_the_batch_is_let_go():
    _, planned = pair("cnn", "adam")
    for batch in small_batches("cnn", 3):
        planned.step(batch)
    with lowtide.measure() as used:
        seen = []
        for _ in range(100):
            batch = next(small_batches("cnn", 1))
            planned.step(batch)
            planned.optimizer.zero_grad()
            del batch
            seen.append(used.current_bytes)
    assert len(set(seen)) == 1, seen


def test_measure_counts_eager_code_exactly():
    with lowtide.measure() as used:
        a = torch.empty(1000, dtype=torch.float32)
        b = torch.empty(500, dtype=torch.float64)
        assert used.current_bytes == 8000
        del a
        assert used.current_bytes == 4000
        c = torch.empty(250, dtype=torch.float32)
    assert (used.current_bytes, used.peak_bytes, used.allocations) == (5000, 8000, 3)
    del b, c


def test_measure_ignores_what_was_there_before_and_nests():
    before = torch.empty(1000)
    with lowtide.measure() as outer:
        with lowtide.measure() as inner:
            inside = torch.empty(10)
        del before
        assert inner.current_bytes == 40
        assert outer.current_bytes == 40
        del inside
        assert outer.current_bytes == 0
    assert outer.peak_bytes == 40


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_close_gives_the_memory_back(optimizer):
    from lowtide import _torch

    gc.collect()  # steps of other tests that nobody holds any more
    before = _torch.arena_usable_bytes()
    _, planned = pair("cnn", optimizer)
    with lowtide.measure() as used:
        for batch in small_batches("cnn", 2):
            planned.step(batch)
        assert _torch.arena_usable_bytes() >= planned.step.plan.arena_bytes
        arena = used.arena_bytes
        planned.step.close()
        assert used.arena_bytes <= max(0, before)
    assert arena > 0
    assert _torch.arena_usable_bytes() == before
    planned.step(next(small_batches("cnn", 1)))  # still works, eager
    assert planned.step.stats()["eager_calls"] == 1


def test_budget_is_hard_and_says_what_is_missing():
    _, planned = pair("cnn", "adam", memory_budget="100KB")
    before = {key: value.clone() for key, value in planned.model.state_dict().items()}
    with pytest.raises(lowtide.InfeasibleError) as caught:
        planned.step(next(small_batches("cnn", 1)))
    error = caught.value
    assert error.bound_bytes > 100_000
    assert error.culprits
    assert all(torch.equal(before[key], value) for key, value in planned.model.state_dict().items())
    assert not planned.optimizer.state


@pytest.mark.parametrize("budget", ["6GiB", 6 * 2**30, 1.0])
def test_budget_that_fits(budget):
    _, planned = pair("mlp", "adam", memory_budget=budget)
    planned.step(next(small_batches("mlp", 1)))
    assert planned.step.stats()["eager_calls"] == 0


@pytest.mark.parametrize(("budget", "message"), [("6 elephants", "6 elephants"), (1.5, "1.5"), (-0.5, "-0.5")])
def test_malformed_budget_is_refused_at_once(budget, message):
    with pytest.raises(ValueError, match=message):
        pair("mlp", "adam", memory_budget=budget)


def test_plan_takes_budgets_as_people_write_them():
    model = torch.nn.Linear(64, 64)
    graph = lowtide.capture(lambda x: model(x).sum().detach(), model=model, example=(torch.randn(8, 64),))
    assert lowtide.plan(graph, memory_budget="1MiB").arena_bytes <= 2**20
    with pytest.raises(lowtide.InfeasibleError):
        lowtide.plan(graph, memory_budget="1KiB")
    with pytest.raises(lowtide.InfeasibleError):
        lowtide.plan(graph, memory_budget=0.1)
    lowtide.plan(graph, latency_budget="1s")
