"""Will it fit: what is said of a device that is not here, beside what steps take that are."""

import json
import math
import os
from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import lowtide
from lowtide import _core
from lowtide._fit import fit as fitting
from lowtide._fit import question as fit_question
from lowtide._fit.largest import LIMIT, largest_that_fits
from lowtide._fit.report import EXPANDABLE, Infeasible, Planned
from lowtide._lower import graph as assembly

MIB = 2**20
WIDTH = 256
FULL = bool(os.environ.get("LOWTIDE_FULL"))


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


def ask(rows: int = 1024, layers: int = 8, **options) -> lowtide.FitReport:
    model = network(layers)
    step, optimizer = training(model)
    options = {"example": example(rows), "reserve": 0, **options}
    return lowtide.fit(step, model=model, optimizer=optimizer, **options)


def test_the_step_that_fits_as_it_is() -> None:
    report = ask(device="L4", reserve="1GiB", largest=False)
    assert report.fits and report.plain.fits and report.planned.fits and report.budget is None
    assert report.plain.live_bytes <= report.plain.allocated_bytes <= report.plain.reserved_bytes
    assert report.planned.total_bytes == report.planned.resident_bytes + report.planned.arena_bytes
    assert report.planned.total_bytes < report.plain.live_bytes
    assert report.planned.seconds is not None and report.planned.slowdown == 0
    assert (report.capacity_bytes, report.usable_bytes) == (22.5 * 2**30, 21.5 * 2**30)
    assert report.next_steps[0].startswith("run it as it is: 21.")


@pytest.mark.parametrize("device", ["24GiB", "cpu"])
def test_predictions_are_what_steps_take(device: str) -> None:
    report = ask(device=device, largest=False)
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


def test_a_link_makes_it_fit() -> None:
    """Less than parameters and state need: no operator that runs again helps."""
    free = ask(8, device="24GiB", largest=False)
    memory = free.planned.total_bytes // 3
    alone = ask(8, device=memory, largest=False)
    assert not alone.fits and alone.swapped is None and "swap" not in str(alone)
    report = ask(8, device=memory, largest=False, link="16GB/s")
    assert report.fits and isinstance(report.budget, Infeasible) and isinstance(report.swapped, Planned)
    assert report.swapped.total_bytes <= memory < report.swapped.total_bytes + report.swapped.swapped_bytes
    assert "swap       fits: " in str(report) and "in the host's memory at 16GB/s" in str(report)
    assert any('swap="host")' in step for step in report.next_steps)
    assert not any("give it a budget" in step for step in report.next_steps)
    assert ask(8, device="24GiB", largest=False, link="16GB/s").swapped is None, "it fits as it is"
    with pytest.raises(ValueError, match="link: E502: '16GB' is not an amount: a rate is bytes a second"):
        ask(8, device="24GiB", link="16GB")


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    def about(device: str) -> lowtide.FitReport:
        arguments = {"model": model, "optimizer": optimizer, "example": (torch.randn(4, 8, 32, 32),)}
        return lowtide.fit(step, device=device, reserve=0, **arguments)

    taken = []
    own = assembly.take_profile

    def take(*arguments, **options):
        taken.append(arguments[0])
        return own(*arguments, **options)

    monkeypatch.setattr(assembly, "take_profile", take)
    elsewhere = about("24GiB")
    assert not taken, "nothing is computed"
    here = about("CPU")
    assert torch.ops.aten.convolution_backward.default in taken and here.device == "cpu"
    assert here.plain.live_bytes > elsewhere.plain.live_bytes, "workspaces of convolutions"
    assert here.planned.total_bytes > elsewhere.planned.total_bytes
    assert here.planned.seconds is not None and here.planned.slowdown == 0
    assert here.capacity_bytes > 2**30
    assert "PyTorch    fits: " in str(here) and "alive at once" in str(here) and "CUDA" not in str(here)
    assert "largest not looked for: on a CPU operators run to be known" in str(here)
    monkeypatch.setattr(fitting, "_memory_here", lambda: here.planned.total_bytes - 1)
    small = about("cpu")
    assert not small.plain.fits and not small.planned.fits and small.budget is not None
    assert small.plain.stopped_at is None and not small.plain.fits_expandable
    assert all("lowtide.compile(" in step or "take a machine" in step for step in small.next_steps)
    assert len(small.next_steps) == 1


def test_gradients_are_there_until_all_parameters_are_updated() -> None:
    model = network()
    step, optimizer = training(model)
    few = example(4)  # so that the peak is where parameters are updated
    kept, dropped = (
        lowtide.fit(function, model=model, optimizer=optimizer, example=few, device="L4", largest=False)
        for function in (step, dropping(step, optimizer))
    )
    assert kept.plain == dropped.plain
    assert kept.planned == dropped.planned, "keep_grads=False"
    assert ", with keep_grads=False\n" in str(kept)
    gradients = sum(p.numel() * p.element_size() for p in model.parameters())
    assert kept.plain.live_bytes > kept.planned.resident_bytes + gradients


def updating(**options):
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8)))
    optimizer = torch.optim.Adam(model.parameters(), **options)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    x = torch.randn(4, 256)  # so few rows that the peak is at the update
    return step, {"model": model, "optimizer": optimizer, "example": (x,), "reserve": 0, "largest": False}


@pytest.mark.parametrize("foreach", [False, True])
def test_an_update_of_lists_takes_what_is_predicted(foreach: bool) -> None:
    step, options = updating(foreach=foreach)
    predicted = lowtide.fit(step, device="1GiB", **options).plain.live_bytes
    for _ in range(2):
        options["optimizer"].zero_grad()
        with lowtide.measure() as used:
            step(*options["example"])
    state = 3 * sum(p.nbytes for p in options["model"].parameters())  # with both moments of Adam
    assert used.peak_bytes + state + options["example"][0].nbytes == pytest.approx(predicted, rel=0.01)


def test_updates_of_all_parameters_are_the_default_of_a_gpu() -> None:
    live = {}
    for foreach, device in ((None, "1GiB"), (None, "L4"), (False, "L4"), (True, "L4")):
        step, options = updating(foreach=foreach)
        live[foreach, device] = lowtide.fit(step, device=device, **options).plain.live_bytes
    assert live[None, "L4"] == live[True, "L4"] > live[False, "L4"] > live[None, "1GiB"]
    matrices = sum(p.nbytes for p in options["model"].parameters())
    # A square root for every parameter, instead of two temporaries of the largest.
    assert live[None, "L4"] - live[False, "L4"] == pytest.approx(matrices - 2 * matrices / 8, rel=0.02)
    workspaces = 2 * 8320 * 1024  # of cuBLAS, less a count of steps for each parameter, which the host has
    assert live[False, "L4"] - live[None, "1GiB"] == pytest.approx(workspaces, rel=0.001)


def test_reports_say_whose_operators_they_are_of(monkeypatch) -> None:
    step, options = updating()
    assert any("those that PyTorch takes on a GPU" in note for note in lowtide.fit(step, device="L4", **options).notes)
    wanted = lowtide.fit(step, device="1GiB", **options)
    assert any(note.startswith("operators are those of a CPU") for note in wanted.notes)

    @contextmanager
    def refusing(_optimizers, _device):
        raise lowtide.CaptureError("no fake of a fused kernel")
        yield

    monkeypatch.setattr(fit_question, "gpu_operators", refusing)
    report = lowtide.fit(step, device="L4", **options)
    assert report.plain.live_bytes == wanted.plain.live_bytes
    assert any(note.endswith("with those of a GPU: no fake of a fused kernel") for note in report.notes)


@pytest.mark.parametrize(("device", "each"), [("t4", 8320 * 1024), ("4090", 8320 * 1024), ("H100", 32 * MIB)])
def test_workspaces_of_cublas_are_counted(device: str, each: int) -> None:
    step, options = updating()
    report = lowtide.fit(step, device=device, **options)
    assert report.workspace_bytes == (each, each), "of the step's thread and of autograd's"
    assert f"BLAS       {_core.format_bytes(2 * each)} in 2 workspaces of {_core.format_bytes(each)}" in str(report)
    bare = lowtide.fit(step, device="24GiB", **options)
    assert not bare.workspace_bytes and "BLAS       " not in str(bare)
    counts = 2 * len(list(options["model"].parameters())) * 4  # of steps, which a GPU leaves on the host
    assert report.planned.resident_bytes - bare.planned.resident_bytes == pytest.approx(2 * each, abs=counts)
    assert report.plain.live_bytes > bare.plain.live_bytes + 2 * each - counts


def test_what_the_step_leaves_alone_is_there_too() -> None:
    step, options = updating()
    used = lowtide.fit(step, device="L4", **options)
    options["model"].register_buffer("unused", torch.zeros(256, 256))
    report = lowtide.fit(step, device="L4", **options)
    more = options["model"].unused.nbytes
    assert report.plain.live_bytes == used.plain.live_bytes + more
    assert report.planned.resident_bytes == used.planned.resident_bytes + more


def test_checkpoints_lower_what_pytorch_holds() -> None:
    model = network()

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        for block in model[:-1]:
            x = checkpoint(block, x, use_reentrant=False)
        F.cross_entropy(model[-1](x), y).backward()

    def plain_step(x: torch.Tensor, y: torch.Tensor) -> None:
        F.cross_entropy(model(x), y).backward()

    recomputed, plain = (
        lowtide.fit(one, model=model, example=example(4096), device="L4", largest=False).plain.live_bytes
        for one in (step, plain_step)
    )
    results = 4096 * WIDTH * 4
    assert plain - recomputed > 5 * results, "of eight blocks, what lies inside"


def test_a_plan_and_a_budget_where_pytorch_does_not_fit() -> None:
    free = ask(device="80GiB", largest=False)
    planned = ask(device=free.planned.total_bytes, largest=False)
    assert planned.fits and not planned.plain.fits and planned.planned.fits and planned.budget is None
    assert (
        "on a CPU, plan it: lowtide.compile(step, model=model, optimizer=optimizer, keep_grads=False)"
        in planned.next_steps
    )
    assert planned.plain.stopped_at is not None and "test_fit.py:" in planned.plain.stopped_at

    budget = int(0.9 * free.planned.total_bytes)
    report = ask(device=budget, largest=False)
    assert report.fits and not report.planned.fits and isinstance(report.budget, Planned)
    assert report.budget.total_bytes <= budget
    assert report.budget.seconds is None and report.budget.slowdown is None, "no device, no times"
    assert any("on a CPU, give it a budget: lowtide.compile(" in step for step in report.next_steps)
    assert any(f"memory_budget={budget}" in step for step in report.next_steps)


def test_advice_for_a_gpu_can_be_followed_there() -> None:
    """Planned steps run on a CPU only: for a GPU there is `adapt`, if the model has blocks to drop."""
    for layers, recompute in [(1, "recompute parts of the model: torch.utils.checkpoint"), (8, "recompute blocks")]:
        free = ask(device="L4", layers=layers, largest=False)
        assert free.plain.fits
        for saved in (0, free.planned.arena_bytes // 20):
            needed = free.planned.total_bytes - saved
            report = ask(device="L4", layers=layers, reserve=int(22.5 * 2**30) - needed, largest=False)
            assert report.fits and not report.plain.fits
            steps = report.next_steps
            assert not any("lowtide.compile" in step for step in steps), steps
            assert any(step.startswith(recompute) for step in steps), steps
            at_least = f"or take a device of {_core.format_bytes(report.plain.reserved_bytes + report.reserve_bytes)}"
            assert steps[-1] == f"{at_least} or more, for plain PyTorch" or report.plain.fits_expandable


def test_the_advice_can_be_followed() -> None:
    free = ask(device="80GiB", largest=False)
    budget = int(0.9 * free.planned.total_bytes)
    model = network()
    step, optimizer = training(model)
    compiled = lowtide.compile(step, model=model, optimizer=optimizer, keep_grads=False, memory_budget=budget)
    compiled(*example(1024))
    assert compiled.plan.resident_bytes + compiled.plan.arena_bytes <= budget
    compiled.close()


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        *(("batch", wrong) for wrong in (0, -1, 1.5, True, "8")),
        *(("slowdown", wrong) for wrong in (math.nan, math.inf, -0.1)),
        *(("reserve", wrong) for wrong in (-1, 1e9, "-1GiB", "much", math.nan)),
        *(("device", wrong) for wrong in (-1, 24e9, None, "24 elephants", "1e400GiB")),
    ],
)
def test_numbers_that_make_no_sense(option: str, wrong: object) -> None:
    with pytest.raises(ValueError, match=f"{option}: "):
        ask(**{"device": "L4", option: wrong})


def test_a_step_that_does_nothing() -> None:
    report = lowtide.fit(lambda x: x, model=network(1), example=(torch.ones(4),), device="L4", largest=False)
    assert report.fits and report.planned.slowdown == 0


def test_times_of_a_known_device_say_how_much_slower() -> None:
    free = ask(device="L4", largest=False)
    report = ask(device="L4", reserve=int(22.5 * 2**30) - int(0.85 * free.planned.total_bytes), largest=False)
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
    layers = 8 if FULL else 4
    capacity = 8 * layers * MIB
    report = ask(100, layers, device=capacity, slowdown=0.1)
    largest = report.largest_batch
    assert largest is not None and 100 < largest.plain < largest.planned < largest.budget
    graphs = {}
    for batch in {b + more for b in (largest.plain, largest.planned, largest.budget) for more in (0, 1)}:
        model = network(layers)
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


@pytest.mark.parametrize("ceiling", [700, 900, 1300, 5000])
def test_largest_where_some_cannot_be_told(ceiling: int) -> None:
    asked = []

    def probe(number: int) -> tuple[bool, int | None]:
        asked.append(number)
        return (40 * number <= 50_000, 40 * number) if number <= ceiling else (False, None)

    assert largest_that_fits(probe, 50_000, [8]) == min(ceiling, 1250)
    assert len(set(asked)) == len(asked) <= 14


class Tokens(nn.Module):
    """Knows places up to a limit, and scores every pair of tokens."""

    def __init__(self, places: int) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.places = nn.Parameter(torch.zeros(places, 32))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens) + self.places[: tokens.shape[1]]
        return ((x @ x.transpose(1, 2)).softmax(-1) @ x).square().mean()


def make_tokens(places: int) -> dict[str, object]:
    model = Tokens(places)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(tokens: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(tokens).backward()
        optimizer.step()

    def tokens(batch: int, length: int) -> tuple[torch.Tensor]:
        return (torch.zeros(batch, length, dtype=torch.long),)

    sizes = {"batch": 4, "length": 100}
    return {"function": step, "model": model, "optimizer": optimizer, "example": tokens, **sizes}


def test_the_largest_length_fits_and_the_next_does_not() -> None:
    about = {"device": "16MiB", "reserve": 0}
    report = lowtide.fit(lambda: make_tokens(5000), **about)
    batch, length = report.largest_batch, report.largest_length
    assert (report.batch, report.length) == (4, 100) and batch is not None and length is not None
    assert 4 < batch.plain < batch.planned and 100 < length.plain < length.planned and not length.refused
    assert (batch.step, length.step) == (1, 4) and length.plain % 4 == length.planned % 4 == 0
    for kind in ("plain", "planned"):
        for name, largest in (("batch", batch), ("length", length)):
            for more in (0, largest.step):
                size = {"batch": 4, "length": 100, name: getattr(largest, kind) + more}
                other = lowtide.fit(lambda: make_tokens(5000), largest=False, **about, **size)
                assert (other.batch, other.length) == tuple(size.values())
                assert getattr(other, kind).fits is not bool(more)
    said = str(report)
    assert said.startswith("device     a device: 16.00 MiB, of which 0 B set aside, batch 4, length 100\n")
    assert f"\nlength     largest: PyTorch {length.plain}, planned {length.planned}, " in said
    assert f"or raise the length, to at most {length.plain}" in report.next_steps


def test_lengths_that_a_step_does_not_take_do_not_fit() -> None:
    report = lowtide.fit(lambda: make_tokens(128), device="16MiB", reserve=0)
    length = report.largest_length
    assert length is not None and length.plain == length.planned == length.budget == 128
    assert length.refused.startswith("at batch 4, length 132: ") and "test_fit.py:" in length.refused
    assert f"\n           cannot be captured {length.refused}\n" in str(report)
    with pytest.raises(lowtide.CaptureError, match="at batch 4, length 200: "):
        lowtide.fit(lambda: make_tokens(128), device="16MiB", reserve=0, length=200)

    def choosy(batch: int, length: int) -> tuple[torch.Tensor]:
        if length > 111:
            raise ValueError("no more than 111")
        return (torch.zeros(batch, length, dtype=torch.long),)

    report = lowtide.fit(lambda: {**make_tokens(128), "example": choosy}, device="16MiB", reserve=0)
    assert report.largest_length is not None and report.largest_length.planned == 108
    assert report.largest_length.refused == "at batch 4, length 112: the example fails: ValueError: no more than 111"
    with pytest.raises(TypeError, match="a length needs an example that is a function of both"):
        ask(5, length=3, device="L4")


def test_the_batch_is_found_or_asked_for() -> None:
    found = ask(48, device="1GiB", largest=False)
    given = ask(example=example, batch=48, device="1GiB", largest=False)
    other = ask(5, batch=48, device="1GiB", largest=False)
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
    wanted = ask(48, device="L4", largest=False)
    for place in (FakeTensorMode(), torch.device("meta")):
        with place:
            model = network()
            inputs = example(48)
        step, optimizer = training(model)
        before = [*model.parameters(), *optimizer.param_groups[0]["params"]]
        report = lowtide.fit(
            step, model=model, optimizer=optimizer, example=inputs, device="L4", reserve=0, largest=False
        )
        assert report == wanted
        after = [*model.parameters(), *optimizer.param_groups[0]["params"]]
        assert all(map(lambda one, other: one is other, before, after)) and not optimizer.state


def make() -> dict[str, object]:
    model = network()
    step, optimizer = training(model)
    return {"function": step, "model": model, "optimizer": optimizer, "example": example, "batch": 48}


def test_a_function_that_makes_it_all() -> None:
    wanted = ask(48, device="L4", largest=False)
    with lowtide.measure() as used:
        assert lowtide.fit(make, device="L4", reserve=0, largest=False) == wanted
    assert used.peak_bytes < 64 * 1024, "no weights"
    assert lowtide.fit(make, device="L4", batch=7, largest=False).batch == 7
    with pytest.raises(TypeError, match="is to return a dict of function, model, optimizer, example, batch, length"):
        lowtide.fit(lambda: 3, device="L4")


def test_models_that_are_converted_as_they_are_built() -> None:
    def build(convert, *, optimizer_first: bool = False):
        def make_converted() -> dict[str, object]:
            model = network()
            model = model if optimizer_first else convert(model)
            step, optimizer = training(model)
            if optimizer_first:
                assert convert(model) is model

            def inputs(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
                x, y = example(batch)
                return x.to(model[0].weight.dtype), y

            return {"function": step, "model": model, "optimizer": optimizer, "example": inputs, "batch": 48}

        return make_converted

    def ask_about(make_one) -> lowtide.FitReport:
        return lowtide.fit(make_one, device="L4", reserve=0, largest=False)

    single = ask_about(build(lambda model: model))
    assert ask_about(build(lambda model: model.to("cpu"))) == single
    first, last = (ask_about(build(nn.Module.bfloat16, optimizer_first=early)) for early in (True, False))
    assert first == last
    tensors = [one.planned.resident_bytes - sum(one.workspace_bytes) for one in (first, single)]
    assert tensors[0] == pytest.approx(tensors[1] / 2, rel=0.01)


def test_code_that_names_the_gpu() -> None:
    def make_on_cuda() -> dict[str, object]:
        model = network().cuda()
        with torch.device("cuda"):
            scale = torch.ones(64)
        step, optimizer = training(model.to("cuda:0"))

        def moving(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return step(x.to("cuda", non_blocking=True), y.cuda()).cpu()

        def inputs(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.randn(batch, 64, device="cuda") * scale, torch.randint(
                10, (batch,), device=torch.device("cuda")
            )

        return {"function": moving, "model": model, "optimizer": optimizer, "example": inputs, "batch": 48}

    wanted = lowtide.fit(make, device="L4", largest=False)
    assert lowtide.fit(make_on_cuda, device="L4", largest=False) == wanted


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
    with pytest.raises(ValueError, match=r"no device is called 'B300'; there are A100, .* give its memory as bytes"):
        ask(device="B300")
    with pytest.raises(ValueError, match="leaves nothing of"):
        ask(device="1GiB", reserve="1GiB")
    with pytest.raises(lowtide.CaptureError, match=r"at batch 4: .*test_fit.py"):
        model = nn.Linear(64, 64)
        lowtide.fit(lambda x: model(x).sum().item(), model=model, example=(torch.randn(4, 64),), device="L4")


def test_settings_of_the_allocator() -> None:
    plain, expandable = (ask(4000, device="L4", allocator=s, largest=False) for s in ("", EXPANDABLE))
    assert plain.plain.live_bytes == expandable.plain.live_bytes
    assert plain.plain.allocated_bytes > expandable.plain.allocated_bytes, "large blocks are split more often"


def test_as_plain_data() -> None:
    report = ask(device="L4", largest=False)
    data = json.loads(json.dumps(report.to_dict()))
    assert data["fits"] is True and data["plain"]["reserved_bytes"] == report.plain.reserved_bytes
    assert data["next_steps"] == list(report.next_steps)
