"""What a user may do around a compiled step: keep things, share models, use threads, fail in the middle."""

import gc
import queue
import threading
import warnings

import pytest
import torch
from torch import nn

import lowtide
from step_models import batches, loss_of, pair, plain_step, run_both, same, small_batches


def test_a_kept_output_never_changes():
    def make(model, opt):
        def step(batch):
            opt.zero_grad()
            logits = model(batch["x"])
            loss = nn.functional.cross_entropy(logits, batch["y"])
            loss.backward()
            opt.step()
            return {"loss": loss.detach(), "logits": logits.detach(), "top": logits.detach()[:, :2]}

        return step

    _, planned = pair("cnn", "adam", make)
    kept = []
    for batch in small_batches("cnn", 6):
        out = planned.step(batch)
        kept.append((out, {key: value.clone() for key, value in out.items()}))
    planned.step.close()
    gc.collect()
    for out, copy in kept:
        assert list(out) == ["loss", "logits", "top"]
        assert all(torch.equal(out[key], copy[key]) for key in out)
    first = kept[0][0]
    assert first["top"].untyped_storage().data_ptr() == first["logits"].untyped_storage().data_ptr()  # still a view


def test_kept_gradients_never_change():
    _, planned = pair("mlp", "adam")
    kept = []
    for batch in small_batches("mlp", 4):
        planned.step(batch)
        kept.append([(p.grad, p.grad.clone()) for p in planned.model.parameters()])
    assert all(torch.equal(grad, copy) for grads in kept for grad, copy in grads)


def check_hook_is_detected(keep_in, message):
    """`keep_in` makes a place and gives what puts a tensor there."""
    eager, planned = pair("cnn", "adam", on_unsupported="eager")
    for side in (eager, planned):
        put = keep_in()
        side.model[2].register_forward_hook(lambda _module, _inputs, out, put=put: put(out) and None)
    with pytest.warns(RuntimeWarning, match=message) as caught:
        for index, batch in enumerate(small_batches("cnn", 3)):
            assert same(*run_both(eager, planned, index, batch))
    assert len([w for w in caught if "lowtide" in str(w.message)]) == 1
    assert same(eager.state(), planned.state())


def test_a_forward_hook_that_keeps_an_activation_in_a_list_is_detected():
    places = []

    def keep_in():
        place = []
        places.append(place)
        return lambda out: place.append(out)

    check_hook_is_detected(keep_in, "runs eager: the step changes .*place")
    assert [type(tensor) for place in places for tensor in place] == [torch.Tensor] * 6, "no fake tensor is left in it"


def test_a_forward_hook_that_keeps_an_activation_out_of_sight_is_detected():
    check_hook_is_detected(lambda: queue.SimpleQueue().put, r"keeps the result of aten\.relu_.* in 2 ")


_kept_by_operator = []


@torch.library.custom_op("lowtide_test::keep", mutates_args=())
def keep(x: torch.Tensor) -> torch.Tensor:
    _kept_by_operator.append(x)
    return x * 2


@keep.register_fake
def _(x):
    return torch.empty_like(x)


def test_an_operator_that_keeps_memory_of_the_arena_is_detected_and_its_memory_is_left_alone():
    model = nn.Linear(32, 32)
    data = [torch.randn(16, 32) for _ in range(4)]

    def forward(x):
        h = torch.relu(model(x))
        h = torch.ops.lowtide_test.keep(h)
        for _ in range(6):
            h = torch.tanh(h @ model.weight)
        return h.sum()

    run = lowtide.compile(forward, model=model, on_unsupported="raise")
    with torch.no_grad():
        expected = [forward(x) for x in data]
        _kept_by_operator.clear()
        wanted = [torch.relu(model(x)) for x in data]
        with pytest.warns(RuntimeWarning, match=r"lowtide_test\.keep"):
            run(data[0])
        _kept_by_operator.clear()  # profiles have called the operator too
        got = [run(x) for x in data]
    assert same(expected, got)
    assert same(wanted, [t.detach() for t in _kept_by_operator])
    assert len(run.stats()["escapes"]) == 1
    _kept_by_operator.clear()
    run.close()


@pytest.mark.parametrize("guard", ["0", "all"])
def test_what_an_operator_keeps_is_not_written_over(guard, monkeypatch):
    """`tanh` may make its result in the bytes of `h`, which nobody needs after it but the one who keeps it."""
    monkeypatch.setenv("LOWTIDE_GUARD", guard)
    model = nn.Linear(32, 32)
    data = [torch.randn(16, 32) for _ in range(3)]

    def forward(x):
        h = model(x)
        return (torch.ops.lowtide_test.keep(h) * torch.tanh(h)).sum()

    run = lowtide.compile(forward, model=model, on_unsupported="raise")
    with torch.no_grad():
        expected = [forward(x) for x in data]
        wanted = [model(x) for x in data]
        with pytest.warns(RuntimeWarning, match=r"keeps"):
            run(data[0])
        assert run.plan.arena_bytes < lowtide.plan(run.graph, order="program", reuse=False).arena_bytes
        _kept_by_operator.clear()
        got = [run(x) for x in data]
    assert same(expected, got)
    assert same(wanted, [t.detach() for t in _kept_by_operator])
    _kept_by_operator.clear()
    run.close()


def test_two_functions_that_share_a_model_alternate():
    def make(model, opt):
        return plain_step(model, opt)

    eager, planned = pair("cnn", "adam", make)
    score = lowtide.compile(lambda b: planned.model(b["x"]).softmax(-1), model=planned.model, on_unsupported="raise")
    for index, batch in enumerate(small_batches("cnn", 6)):
        assert same(*run_both(eager, planned, index, batch))
        with torch.no_grad():
            torch.manual_seed(index)
            expected = eager.model(batch["x"]).softmax(-1)
            torch.manual_seed(index)
            assert same(expected, score(batch))
    assert same(eager.state(), planned.state())


def test_two_functions_that_share_a_model_run_from_two_threads():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).eval()
    square = lowtide.compile(lambda x: model(x).square(), model=model, on_unsupported="raise")
    total = lowtide.compile(lambda x: model(x).cumsum(-1), model=model, on_unsupported="raise")
    data = [torch.randn(32, 64) for _ in range(60)]
    with torch.no_grad():
        expected = {"square": [model(x).square() for x in data], "total": [model(x).cumsum(-1) for x in data]}
    got = {"square": [], "total": []}
    failures = []

    def work(name, function):
        try:
            torch.set_num_threads(1)
            with torch.no_grad():
                for x in data:
                    got[name].append(function(x))
        except Exception as error:  # reported below, in the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=pair_) for pair_ in (("square", square), ("total", total))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert same(expected, got)
    assert square.stats()["calls"] == total.stats()["calls"] == 60


def test_training_and_evaluation_from_two_threads():
    _, planned = pair("mlp", "adam")
    model = planned.model
    measured = []
    evaluate = lowtide.compile(lambda b: loss_of(model, b), model=model, on_unsupported="raise")
    data = list(small_batches("mlp", 30))
    failures = []

    def look():
        try:
            with torch.no_grad():
                measured.extend(float(evaluate(batch)) for batch in data)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    losses = [float(planned.step(batch)) for batch in data]
    thread.join()
    assert not failures
    assert len(losses) == len(measured) == 30
    assert all(value == value for value in losses + measured)


def test_a_failure_in_forward_leaves_the_model_and_says_so():
    eager, planned = pair("bert", "adam")
    good = list(small_batches("bert", 4))
    for index in range(2):
        assert same(*run_both(eager, planned, index, good[index]))
    bad = {key: value.clone() for key, value in good[2].items()}
    bad["input_ids"][0, 0] = 10**6
    weights = {key: value.clone() for key, value in planned.model.state_dict().items()}
    import copy

    state = copy.deepcopy(planned.optimizer.state_dict())
    with pytest.raises(IndexError) as caught:
        planned.step(bad)
    note = "\n".join(caught.value.__notes__)
    assert "aten.embedding" in note and "those before the step" in note and "modeling_bert.py" in note
    assert same(weights, dict(planned.model.state_dict()))
    assert same(state, planned.optimizer.state_dict())
    for index in range(2, 4):  # and goes on, equal to eager
        assert same(*run_both(eager, planned, index, good[index]))
    assert same(eager.state(), planned.state())


@torch.library.custom_op("lowtide_test::fuse", mutates_args=())
def fuse(x: torch.Tensor, armed: torch.Tensor) -> torch.Tensor:
    if armed.item():
        raise RuntimeError("planted failure")
    return x.clone()


@fuse.register_fake
def _(x, armed):
    return torch.empty_like(x)


def test_a_failure_after_updates_names_what_was_updated():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    optimizers = [torch.optim.SGD(model[:1].parameters(), lr=0.1), torch.optim.SGD(model[1:].parameters(), lr=0.1)]

    def function(x, armed):
        model.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizers[0].step()
        seen = torch.ops.lowtide_test.fuse(model[0].weight.detach(), armed)
        optimizers[1].step()
        return seen

    step = lowtide.compile(function, model=model, optimizer=optimizers, on_unsupported="raise")
    x = torch.randn(8, 4)
    step(x, torch.tensor(False))
    weight = model[0].weight.detach().clone()
    with pytest.raises(RuntimeError, match="planted failure") as caught:
        step(x, torch.tensor(True))
    note = "\n".join(caught.value.__notes__)
    updated = note.split("updated already: ")[1].split(";")[0].split(", ")
    assert {"0.weight", "0.bias"} <= {*updated}
    assert "1.running_mean" in note
    assert not torch.equal(weight, model[0].weight)
    assert torch.equal(step(x, torch.tensor(False)), model[0].weight)  # usable


def test_a_changed_parameter_is_found_by_name():
    eager, planned = pair("mlp", "sgd")
    data = list(small_batches("mlp", 6))
    for index, batch in enumerate(data):
        if index == 2:
            for side in (eager, planned):
                side.model[0].weight.data = side.model[0].weight.data * 2  # same tensor, other memory
        if index == 4:
            for side in (eager, planned):
                side.model[0].bias.requires_grad_(False)
        assert same(*run_both(eager, planned, index, batch))
    assert same(eager.state()["model"], planned.state()["model"])
    assert planned.step.stats()["captures"] == 2
    assert "requires_grad" in planned.step.explain_guards()


def test_where_most_shapes_are_new_some_run_eager():
    eager, planned = pair("mlp", "adam", on_unsupported="eager")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for index in range(60):
            batch = next(batches("mlp", 1, batch=index % 10 + 2))
            assert same(*run_both(eager, planned, index, batch))
    assert same(eager.state(), planned.state())
    assert not [w for w in caught if "lowtide" in str(w.message)]
    stats = planned.step.stats()
    assert stats["captures"] == 10 and stats["calls"] > 5 * stats["eager_calls"] > 0


def test_decorator_and_summary():
    model = nn.Linear(8, 8)

    @lowtide.compile(model=model, on_unsupported="raise")
    def run(x):
        return model(x)

    with torch.no_grad():
        assert torch.equal(run(torch.ones(2, 8)), model(torch.ones(2, 8)))
    assert run.__name__ == "run"
    assert "eager about" in run.summary() and "1 captures, 0 misses" in run.summary()
    assert "Plan" in type(run.plan).__name__
