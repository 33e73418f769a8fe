"""Ten steps through lowtide.compile against eager: every number equal, bit for bit.

The plain step is tried with all models x all optimizers, the others with the `pairings` of a turn each.
"""

import pytest
import torch

import lowtide
from step_models import (
    FULL,
    LAYERS,
    MODELS,
    OPTIMIZERS,
    SMALL,
    Side,
    batches,
    loss_of,
    pair,
    pairings,
    run_both,
    same,
    small_batches,
)

STEPS = 10


def check_equal(eager: Side, planned: Side) -> None:
    expected, got = eager.state(), planned.state()
    for part in expected:
        assert same(expected[part], got[part]), part


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_ten_steps(model, optimizer):
    small = model in SMALL and (model, optimizer) != ("gpt2", "adam") and not FULL
    eager, planned = pair(model, optimizer, small=small, layers=LAYERS)
    for index, batch in enumerate((small_batches if small else batches)(model, STEPS)):
        expected, got = run_both(eager, planned, index, batch)
        assert same(expected, got), f"loss of step {index}"
    check_equal(eager, planned)
    stats = planned.step.stats()
    assert (stats["calls"], stats["eager_calls"], stats["captures"], stats["misses"]) == (STEPS, 0, 1, 0)


@pytest.mark.parametrize(("model", "optimizer"), pairings(0))
def test_scheduler_and_clipping(model, optimizer):
    def make(module, opt):
        parameters = list(module.parameters())  # references taken outside the function work

        def step(batch):
            opt.zero_grad()
            loss = loss_of(module, batch)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            opt.step()
            return loss.detach(), norm

        return step

    eager, planned = pair(model, optimizer, make, small=True, layers=LAYERS)
    schedules = [
        torch.optim.lr_scheduler.OneCycleLR(s.optimizer, max_lr=0.01, total_steps=20) for s in (eager, planned)
    ]
    for index, batch in enumerate(small_batches(model, STEPS)):
        assert same(*run_both(eager, planned, index, batch))
        for schedule in schedules:
            schedule.step()
    check_equal(eager, planned)
    assert schedules[0].get_last_lr() == schedules[1].get_last_lr()
    assert planned.step.stats()["captures"] == 1


@pytest.mark.parametrize(("model", "optimizer"), pairings(1))
def test_zero_grad_at_the_end(model, optimizer):
    def make(module, opt):
        def step(batch):
            loss = loss_of(module, batch)
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss.detach()

        return step

    eager, planned = pair(model, optimizer, make, small=True, layers=LAYERS)
    for index, batch in enumerate(small_batches(model, STEPS)):
        assert same(*run_both(eager, planned, index, batch))
    check_equal(eager, planned)
    assert all(parameter.grad is None for parameter in planned.model.parameters())
    assert planned.step.stats()["captures"] == 1


@pytest.mark.parametrize(
    ("set_to_none", "model", "optimizer"),
    [(True, *names) for names in pairings(2)] + [(False, *names) for names in pairings(3)],
)
def test_accumulation_inside(set_to_none, model, optimizer):
    def make(module, opt):
        def step(micro_batches):
            opt.zero_grad(set_to_none=set_to_none)
            total = 0.0
            for batch in micro_batches:
                loss = loss_of(module, batch) / len(micro_batches)
                loss.backward()
                total = total + loss.detach()
            opt.step()
            return total

        return step

    eager, planned = pair(model, optimizer, make, small=True, layers=LAYERS)
    data = list(small_batches(model, 2 * STEPS))
    for index in range(STEPS):
        assert same(*run_both(eager, planned, index, data[2 * index : 2 * index + 2]))
    check_equal(eager, planned)
    assert planned.step.stats()["eager_calls"] == 0


@pytest.mark.parametrize(("model", "optimizer"), pairings(4))
def test_accumulation_across_calls(model, optimizer):
    def make(module, opt):
        def step(batch, update):
            loss = loss_of(module, batch) / 2
            loss.backward()
            if update:
                opt.step()
                opt.zero_grad()
            return loss.detach()

        return step

    eager, planned = pair(model, optimizer, make, small=True, layers=LAYERS)
    for index, batch in enumerate(small_batches(model, STEPS)):
        assert same(*run_both(eager, planned, index, batch, update=index % 2 == 1))
        assert same(eager.state()["gradients"], planned.state()["gradients"])
    check_equal(eager, planned)
    assert planned.step.stats()["captures"] == 2


@pytest.mark.parametrize(
    ("where", "model", "optimizer"),
    [("inside", *names) for names in pairings(5)] + [("outside", *names) for names in pairings(6)],
)
def test_bfloat16_autocast(where, model, optimizer):
    def make(module, opt):
        def step(batch):
            opt.zero_grad()
            with torch.autocast(
                "cpu", dtype=torch.bfloat16, enabled=where == "inside" or torch.is_autocast_enabled("cpu")
            ):
                loss = loss_of(module, batch)
            loss.backward()
            opt.step()
            return loss.detach()

        return step

    eager, planned = pair(model, optimizer, make, small=True, layers=LAYERS)
    for index, batch in enumerate(small_batches(model, STEPS)):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=where == "outside"):
            assert same(*run_both(eager, planned, index, batch))
    check_equal(eager, planned)
    assert planned.step.stats()["eager_calls"] == 0


@pytest.mark.parametrize(("model", "optimizer"), pairings(7))
def test_two_alternating_shapes(model, optimizer):
    eager, planned = pair(model, optimizer, small=True, layers=LAYERS)
    small, large = list(small_batches(model, STEPS)), list(small_batches(model, STEPS, batch=3))
    for index in range(STEPS):
        batch = (small, large)[index % 2][index]
        assert same(*run_both(eager, planned, index, batch))
    check_equal(eager, planned)
    assert planned.step.stats()["captures"] == 2


@pytest.mark.parametrize(("model", "optimizer"), pairings(8))
def test_load_state_dict_in_the_middle(model, optimizer):
    import copy

    eager, planned = pair(model, optimizer, small=True, layers=LAYERS)
    saved = None
    for index, batch in enumerate(small_batches(model, STEPS)):
        if index == 3:
            saved = [
                (copy.deepcopy(s.model.state_dict()), copy.deepcopy(s.optimizer.state_dict())) for s in (eager, planned)
            ]
        if index == 6:
            for side, (weights, state) in zip((eager, planned), saved, strict=True):
                side.model.load_state_dict(weights)
                side.optimizer.load_state_dict(state)
        assert same(*run_both(eager, planned, index, batch))
    check_equal(eager, planned)
    assert planned.step.stats()["captures"] == 1


@pytest.mark.parametrize("model", MODELS)
def test_inference(model):
    torch.manual_seed(0)
    module = MODELS[model][0]().eval()
    infer = lowtide.compile(lambda batch: loss_of(module, batch), model=module, on_unsupported="raise")
    with torch.no_grad():
        for batch in small_batches(model, 3):
            assert same(loss_of(module, batch), infer(batch))
    assert infer.stats()["captures"] == 1


def test_train_and_eval_alternate():
    eager, planned = pair("cnn", "adam")
    evaluate = lowtide.compile(lambda batch: planned.model(batch["x"]), model=planned.model, on_unsupported="raise")
    for index, batch in enumerate(batches("cnn", 6)):
        assert same(*run_both(eager, planned, index, batch))
        for side in (eager, planned):
            side.model.eval()
        with torch.no_grad():
            assert same(eager.model(batch["x"]), evaluate(batch))
        for side in (eager, planned):
            side.model.train()
    check_equal(eager, planned)
