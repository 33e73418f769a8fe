"""Will it fit: what is said of a device that is not here, beside what steps take that are."""

import json

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

import lowtide
from lowtide import _core
from lowtide.fit_report import EXPANDABLE, Infeasible, Planned
from lowtide.largest import LIMIT, largest_that_fits

MIB = 2**20
WIDTH = 256


def network(layers: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(64, WIDTH), *(Block() for _ in range(layers)), nn.Linear(WIDTH, 10))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(F.gelu(self.linear(x)))


def training(model: nn.Module):
    optimizer = torch.optim.Adam(model.parameters())

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, optimizer


def example(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, 64), torch.randint(10, (batch,))


def ask(rows: int = 1024, **options) -> lowtide.FitReport:
    model = network()
    step, optimizer = training(model)
    options = {"example": example(rows), "reserve": 0, **options}
    return lowtide.fit(step, model=model, optimizer=optimizer, **options)


def test_the_step_that_fits_as_it_is() -> None:
    report = ask(device="L4", reserve="1GiB", largest_batch=False)
    assert report.fits and report.plain.fits and report.planned.fits and report.budget is None
    assert report.plain.live_bytes <= report.plain.allocated_bytes <= report.plain.reserved_bytes
    assert report.planned.total_bytes == report.planned.resident_bytes + report.planned.arena_bytes
    assert report.planned.total_bytes < report.plain.live_bytes
    assert report.planned.seconds is not None and report.planned.slowdown == 0
    assert (report.capacity_bytes, report.usable_bytes) == (24 * 2**30, 23 * 2**30)
    assert report.next_steps[0].startswith("run it as it is: 22.")


def test_predictions_are_what_steps_take() -> None:
    report = ask(device="L4", largest_batch=False)
    model = network()
    step, optimizer = training(model)
    compiled = lowtide.compile(step, model=model, optimizer=optimizer, keep_grads=False)
    batches = [example(1024) for _ in range(3)]
    for function, predicted in ((step, report.plain.live_bytes), (compiled, report.planned.total_bytes)):
        peaks = []
        for batch in batches:
            optimizer.zero_grad()
            with lowtide.measure() as used:
                function(*batch)
            peaks.append(used.peak_bytes)
        state = 3 * sum(p.numel() * p.element_size() for p in model.parameters())  # with both moments of Adam
        batch_bytes = sum(tensor.nbytes for tensor in batches[0])
        assert max(peaks[1:]) + state + batch_bytes == pytest.approx(predicted, rel=0.02)
    compiled.close()


def test_gradients_are_there_until_all_parameters_are_updated() -> None:
    model = network()
    step, optimizer = training(model)
    few = example(4)  # so that the peak is where parameters are updated
    kept, dropped = (
        lowtide.fit(function, model=model, optimizer=optimizer, example=few, device="L4", largest_batch=False)
        for function in (step, dropping(step, optimizer))
    )
    assert kept.plain == dropped.plain
    assert kept.planned == dropped.planned, "keep_grads=False"
    gradients = sum(p.numel() * p.element_size() for p in model.parameters())
    assert kept.plain.live_bytes > kept.planned.resident_bytes + gradients


def test_a_plan_and_a_budget_where_pytorch_does_not_fit() -> None:
    free = ask(device="80GiB", largest_batch=False)
    planned = ask(device=free.planned.total_bytes, largest_batch=False)
    assert planned.fits and not planned.plain.fits and planned.planned.fits and planned.budget is None
    assert any("lowtide.compile(step" in step and "memory_budget" not in step for step in planned.next_steps)
    assert planned.plain.stopped_at is not None and "test_fit.py:" in planned.plain.stopped_at

    budget = int(0.9 * free.planned.total_bytes)
    report = ask(device=budget, largest_batch=False)
    assert report.fits and not report.planned.fits and isinstance(report.budget, Planned)
    assert report.budget.total_bytes <= budget
    assert report.budget.seconds is None and report.budget.slowdown is None, "no device, no times"
    assert any(f"memory_budget={budget}" in step for step in report.next_steps)


def test_the_advice_can_be_followed() -> None:
    free = ask(device="80GiB", largest_batch=False)
    budget = int(0.9 * free.planned.total_bytes)
    model = network()
    step, optimizer = training(model)
    compiled = lowtide.compile(step, model=model, optimizer=optimizer, keep_grads=False, memory_budget=budget)
    compiled(*example(1024))
    assert compiled.plan.resident_bytes + compiled.plan.arena_bytes <= budget
    compiled.close()


def test_times_of_a_known_device_say_how_much_slower() -> None:
    free = ask(device="L4", largest_batch=False)
    report = ask(device="L4", reserve=24 * 2**30 - int(0.85 * free.planned.total_bytes), largest_batch=False)
    assert isinstance(report.budget, Planned) and report.budget.slowdown is not None
    assert 0 < report.budget.slowdown < 0.5
    assert "slower by the device's roofline" in str(report)


def test_where_nothing_fits() -> None:
    report = ask(device=2 * MIB)
    assert not report.fits and isinstance(report.budget, Infeasible)
    assert report.budget.bound_bytes > 2 * MIB
    assert report.plain.stopped_at == "the parameters and the batch"
    assert report.largest_batch is not None and report.largest_batch.plain == 0
    assert "take a device of" in report.next_steps[-1]


def test_the_largest_batches_fit_and_the_next_do_not() -> None:
    capacity = 64 * MIB
    report = ask(100, device=capacity, slowdown=0.1)
    largest = report.largest_batch
    assert largest is not None and 100 < largest.plain < largest.planned < largest.budget
    graphs = {}
    for batch in {b + more for b in (largest.plain, largest.planned, largest.budget) for more in (0, 1)}:
        model = network()
        step, optimizer = training(model)
        graphs[batch] = [
            lowtide.capture(function, model=model, optimizer=optimizer, example=example(batch), device="A100")
            for function in (step, dropping(step, optimizer))
        ]
    total = {}
    for name, more in ((name, more) for name in ("plain", "planned", "budget") for more in (0, 1)):
        kept, dropped = graphs[getattr(largest, name) + more]
        if name == "plain":
            total[name, more] = _core.run_eager(kept, "", capacity).fits
            continue
        plan = lowtide.plan(dropped)
        if name == "budget":
            plan = lowtide.plan(dropped, latency_budget=1.1 * plan.time_ns / 1e6)
        total[name, more] = plan.resident_bytes + plan.arena_bytes <= capacity
    assert total == {(name, more): not more for name in ("plain", "planned", "budget") for more in (0, 1)}


def dropping(step, optimizer):
    def dropped(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = step(x, y)
        optimizer.zero_grad()
        return loss

    return dropped


@pytest.mark.parametrize("start", [1, 7, 64, 5000])
@pytest.mark.parametrize("noise", [0, 1, 5])
def test_largest_asks_rarely_and_is_right(start: int, noise: int) -> None:
    asked = []

    def needed(number: int) -> int:
        return 1000 + 37 * number + noise * (number * 7919 % 11)

    def probe(number: int) -> tuple[bool, int]:
        asked.append(number)
        return needed(number) + 20 * noise <= 50_000, needed(number)

    found = largest_that_fits(probe, 50_000, [start])
    assert probe(found)[0] and not probe(found + 1)[0]
    assert len(set(asked)) == len(asked) - 2 <= (4 if not noise else 12)


def test_largest_of_what_never_or_always_fits() -> None:
    assert largest_that_fits(lambda number: (False, 10 + number), 5, [32]) == 0
    assert largest_that_fits(lambda number: (True, 10), 50, [32]) == LIMIT


def test_the_batch_is_found_or_asked_for() -> None:
    found = ask(48, device="1GiB", largest_batch=False)
    given = ask(example=example, batch=48, device="1GiB", largest_batch=False)
    other = ask(5, batch=48, device="1GiB", largest_batch=False)
    assert found == given == other and found.batch == 48
    with pytest.raises(TypeError, match="needs a batch to ask for"):
        ask(example=example, device="1GiB")
    two = (torch.randn(5, 64), torch.randint(10, (6,)))
    with pytest.raises(ValueError, match=r"no common size in dimension 0; give a function"):
        ask(example=two, batch=4, device="1GiB")
    sizes = {"x": torch.randn(6, 64), "n": 3}
    model = nn.Linear(64, 64)
    forward = torch.no_grad()(lambda sizes, *_: model(sizes["x"] if isinstance(sizes, dict) else sizes).sum())
    report = lowtide.fit(forward, model=model, example=(sizes,), device="1GiB", reserve=0)
    assert report.batch == 6 and report.largest_batch is not None
    report = lowtide.fit(forward, model=model, example=two, device="1GiB", reserve=0)
    assert report.batch is None and report.largest_batch is None
    assert "largest not looked for: the example's tensors have no common size" in str(report)


def test_a_model_without_weights() -> None:
    wanted = ask(48, device="L4", largest_batch=False)
    for place in (FakeTensorMode(), torch.device("meta")):
        with place:
            model = network()
            inputs = example(48)
        step, optimizer = training(model)
        before = [*model.parameters(), *optimizer.param_groups[0]["params"]]
        report = lowtide.fit(
            step, model=model, optimizer=optimizer, example=inputs, device="L4", reserve=0, largest_batch=False
        )
        assert report == wanted
        after = [*model.parameters(), *optimizer.param_groups[0]["params"]]
        assert all(map(lambda one, other: one is other, before, after)) and not optimizer.state


def make() -> dict[str, object]:
    model = network()
    step, optimizer = training(model)
    return {"function": step, "model": model, "optimizer": optimizer, "example": example, "batch": 48}


def test_a_function_that_makes_it_all() -> None:
    wanted = ask(48, device="L4", largest_batch=False)
    with lowtide.measure() as used:
        assert lowtide.fit(make, device="L4", reserve=0, largest_batch=False) == wanted
    assert used.peak_bytes < 64 * 1024, "no weights"
    assert lowtide.fit(make, device="L4", batch=7, largest_batch=False).batch == 7
    with pytest.raises(TypeError, match="is to return a dict of function, model, optimizer, example, batch"):
        lowtide.fit(lambda: 3, device="L4")


def test_models_whose_initial_values_are_drawn_until_they_fit() -> None:
    transformers = pytest.importorskip("transformers")

    def build() -> dict[str, object]:
        sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
        model = transformers.ViTForImageClassification(transformers.ViTConfig(image_size=32, patch_size=8, **sizes))
        return {
            "function": torch.no_grad()(lambda x: model(x).logits.sum()),
            "model": model,
            "example": lambda batch: torch.randn(batch, 3, 32, 32),
            "batch": 2,
        }

    assert lowtide.fit(build, device="L4").fits


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no device is called 'B200'; there are A100, .* give its memory as bytes"):
        ask(device="B200")
    with pytest.raises(ValueError, match="leaves nothing of"):
        ask(device="1GiB", reserve="1GiB")
    with pytest.raises(lowtide.CaptureError, match=r"at batch 4: .*test_fit.py"):
        model = nn.Linear(64, 64)
        lowtide.fit(lambda x: model(x).sum().item(), model=model, example=(torch.randn(4, 64),), device="L4")


def test_settings_of_the_allocator() -> None:
    plain, expandable = (ask(4000, device="L4", allocator=s, largest_batch=False) for s in ("", EXPANDABLE))
    assert plain.plain.live_bytes == expandable.plain.live_bytes
    assert plain.plain.allocated_bytes > expandable.plain.allocated_bytes, "large blocks are split more often"


def test_as_plain_data() -> None:
    report = ask(device="L4", largest_batch=False)
    data = json.loads(json.dumps(report.to_dict()))
    assert data["fits"] is True and data["plain"]["reserved_bytes"] == report.plain.reserved_bytes
    assert data["next_steps"] == list(report.next_steps)
