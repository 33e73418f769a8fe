"""Steps that swap to a file, against eager: every number equal, within the budget, and tensors that are away are read
and written like any other.
"""

import copy
import gc
import io
import os
import warnings

import pytest
import torch

import lowtide
from bench.step import swap as swap_bench
from bench.zoo import configured
from lowtide._step.swapping import is_away
from step_models import FULL, MODELS, Side, loss_of, pair, pair_of, plain_step, run_both, same, small_batches

STEPS = 20 if FULL else 4
LINK = "1GB/s"


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path)


def check_equal(eager: Side, planned: Side) -> None:
    expected, got = eager.state(), planned.state()
    for part in expected:
        assert same(expected[part], got[part]), part


def resnet50() -> torch.nn.Module:
    """With a third of its layers, and a quarter of their width."""
    return configured.resnet50(10, embedding_size=32, hidden_sizes=[64, 128, 256, 512], depths=[1, 2, 2, 1])


def pictures() -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(8, 3, 32, 32), "labels": torch.randint(10, (8,))}


TRAINED = {"bert": MODELS["bert"], "gpt2": MODELS["gpt2"], "resnet50": (resnet50, pictures)}


def train(model, **options):
    """Everything is made and trained under one measure: gives its peak, what was computed, and the step."""
    make, make_batch = TRAINED[model]
    gc.collect()
    with lowtide.measure() as used:
        torch.manual_seed(0)
        network = make()
        optimizer = torch.optim.Adam(network.parameters())
        step = plain_step(network, optimizer)
        if options:
            step = lowtide.compile(step, model=network, optimizer=optimizer, on_unsupported="raise", **options)
        losses = [step(make_batch()).item() for _ in range(STEPS)]
    return used.peak_bytes, [losses, Side(network, optimizer, step).state(), torch.get_rng_state()], step


@pytest.mark.parametrize("share", [2 / 3, 1 / 3])
@pytest.mark.parametrize("model", list(TRAINED))
def test_a_part_of_all_bytes_on_disk(model, share, folder):
    """Parameters, gradients and Adam's state included: memory is measured from before the model is built."""
    eager_peak, expected, _ = train(model)
    budget = int(share * eager_peak)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        peak, found, step = train(model, memory_budget=budget, swap=folder, link=LINK)
    assert same(found, expected)
    assert peak <= budget
    stats = step.stats()
    assert (stats["calls"], stats["eager_calls"], stats["misses"]) == (STEPS, 0, 0)
    assert step.plan.transfers()
    step.close()


# -- between steps -----------------------------------------------------------------------------------------------------


def mlp() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        *[torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Dropout(0.1)) for _ in range(6)]
    )


def mlp_step(model, optimizer):
    def step(batch):
        loss = model(batch["x"]).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def mlp_pair(folder, **options):
    options = {"memory_budget": 0.3, "swap": folder, "link": LINK, **options}
    return pair_of(mlp(), "adam", mlp_step, **options)


def mlp_batches(count):
    torch.manual_seed(1)
    return [{"x": torch.randn(32, 256)} for _ in range(count)]


def train_with(between, folder, steps=4, **options):
    """Trains both sides, and does `between` to each after every step."""
    eager, planned = mlp_pair(folder, **options)
    for index, batch in enumerate(mlp_batches(steps)):
        expected, got = run_both(eager, planned, index, batch)
        assert same(expected, got), index
        assert any(is_away(p) for p in planned.model.parameters())
        assert same(between(eager), between(planned)), index
    check_equal(eager, planned)
    assert planned.step.stats()["eager_calls"] == 0


def saved(side):
    file = io.BytesIO()
    torch.save({"model": side.model.state_dict(), "optimizer": side.optimizer.state_dict()}, file)
    file.seek(0)
    return torch.load(file)


def loaded(side):
    state = copy.deepcopy(side.model.state_dict())
    for value in state.values():
        value.mul_(0.5)
    side.model.load_state_dict(state)
    side.optimizer.load_state_dict(copy.deepcopy(side.optimizer.state_dict()))
    return side.state()


def clamped_by_data(side):
    for parameter in side.model.parameters():
        parameter.data.clamp_(-0.01, 0.01)


def scaled_by_numpy(side):
    for parameter in side.model.parameters():
        array = parameter.detach().numpy()
        array *= 0.99


def replaced_data(side):
    side.model[0][0].weight.data = torch.full((256, 256), 0.01)


def evaluated(side):
    side.model.eval()
    with torch.no_grad():
        result = side.model(torch.ones(3, 256))
    side.model.train()
    return result


def copied(side):
    return copy.deepcopy(side.model)(torch.ones(3, 256)).sum() * 0 + sum(
        p.sum() for p in copy.deepcopy(side.model).parameters()
    )


def trained_eagerly(side):
    loss = side.model(torch.ones(2, 256)).sum() * 0
    loss.backward()
    side.optimizer.step()
    side.optimizer.zero_grad()


def moved_in_dtype(side):
    return [p.to(torch.float64).sum() for p in side.model.parameters()]


@pytest.mark.parametrize(
    "between",
    [
        lambda side: side.state(), saved, loaded, clamped_by_data, scaled_by_numpy, replaced_data, evaluated, copied,
        trained_eagerly, moved_in_dtype,
    ],
)  # fmt: skip
def test_what_is_away_is_read_and_written_as_always(between, folder):
    train_with(between, folder)


def test_another_compiled_step_on_the_same_model(folder):
    eager, planned = mlp_pair(folder)

    def score(model):
        def run(x):
            with torch.no_grad():
                return model(x).sum()

        return run

    scored = lowtide.compile(score(planned.model), model=planned.model)
    for index, batch in enumerate(mlp_batches(4)):
        expected, got = run_both(eager, planned, index, batch)
        assert same(expected, got)
        torch.manual_seed(5)
        expected = score(eager.model)(batch["x"])
        torch.manual_seed(5)
        assert same(expected, scored(batch["x"]))
    check_equal(eager, planned)


def test_a_step_that_fails_on_the_way(folder):
    """What was updated by then is, and what was not is not, as in eager."""
    eager, planned = mlp_pair(folder)
    for index, batch in enumerate(mlp_batches(2)):
        run_both(eager, planned, index, batch)
    before = copy.deepcopy(planned.state())
    with pytest.raises(lowtide.CaptureError, match="reduction dim"):
        planned.step({"x": torch.randn(32, 255)})
    assert same(before, planned.state())
    for index, batch in enumerate(mlp_batches(3)):
        expected, got = run_both(eager, planned, index, batch)
        assert same(expected, got), index
    check_equal(eager, planned)


@pytest.mark.parametrize("kind", ["short_transfer", "io_error", "no_space", "flipped_byte"])
def test_faults_at_every_transfer_of_a_step(kind, folder):
    """A step completes with equal bits or raises; afterwards the next ones are right, or raise."""
    eager, planned = mlp_pair(folder)
    batch = mlp_batches(1)[0]
    run_both(eager, planned, 0, batch)
    run_both(eager, planned, 1, batch)
    file = planned.step._swap.file
    transfers = len(planned.step.plan.transfers())
    completed = raised = 0

    def restore(kept):
        for side in (eager, planned):
            side.model.load_state_dict(kept[0]["model"])
            side.optimizer.load_state_dict(copy.deepcopy(kept[0]["optimizer"]))

    for index in range(0, transfers, 1 if FULL else 7):
        with warnings.catch_warnings(action="ignore"), planned.step.gather():
            kept = copy.deepcopy((eager.state(), planned.state()))
        assert same(*kept)
        random_state = torch.get_rng_state()
        expected = eager.step(batch)
        torch.set_rng_state(random_state)
        file.set_faults({index: kind})
        try:
            got = planned.step(batch)
            completed += 1
        except Exception:
            raised += 1
            file.set_faults({})
            restore(kept)
            continue
        finally:
            file.set_faults({})
        assert same(expected, got), index
        try:  # what is stored is verified when it is loaded
            with warnings.catch_warnings(action="ignore"), planned.step.gather():
                check_equal(eager, planned)
        except OSError:
            assert kind == "flipped_byte"
            restore(kept)
    assert completed + raised > 3
    assert completed > 0 or kind != "short_transfer"


def test_a_weight_can_be_kept_by_a_result(folder):
    """An output that is a view of what is away shows later steps' values, as in eager."""
    model = mlp()
    other = copy.deepcopy(model)
    sides = []
    for m in (model, other):
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1)

        def step(batch, m=m, optimizer=optimizer):
            loss = m(batch["x"]).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss, m[0][0].weight.detach()[0]

        sides.append((m, optimizer, step))
    planned = lowtide.compile(
        sides[1][2], model=other, optimizer=sides[1][1], memory_budget=0.5, swap=folder, link=LINK
    )
    for batch in mlp_batches(3):
        torch.manual_seed(2)
        expected = sides[0][2](batch)
        torch.manual_seed(2)
        got = planned(batch)
        assert same([t.detach().clone() for t in expected], [t.detach().clone() for t in got])


def test_a_step_that_pauses(folder):
    """A transformer step that reads its loss with .item() on the way, which pauses the program."""

    def make(model, optimizer):
        def step(batch):
            loss = loss_of(model, batch)
            loss.backward()
            value = loss.item()
            optimizer.step()
            optimizer.zero_grad()
            return value

        return step

    eager, planned = pair("bert", "adam", make, memory_budget=0.5, swap=folder, link=LINK)
    for index, batch in enumerate(small_batches("bert", 4)):
        expected, got = run_both(eager, planned, index, batch)
        assert expected == got
    check_equal(eager, planned)


def test_who_has_an_address_keeps_it(folder):
    """A NumPy array of a weight would not follow: that weight stays in memory."""
    eager, planned = mlp_pair(folder, memory_budget=0.5)
    arrays = [side.model[0][0].weight.detach().numpy() for side in (eager, planned)]
    for index, batch in enumerate(mlp_batches(3)):
        expected, got = run_both(eager, planned, index, batch)
        assert same(expected, got)
        assert (arrays[0] == arrays[1]).all()
    assert not is_away(planned.model[0][0].weight)
    check_equal(eager, planned)


def arrays_of(side):
    return [parameter.detach().numpy() for parameter in side.model.parameters()]


def borrowed(side):
    return [torch.from_dlpack(parameter.detach()) for parameter in side.model.parameters()]


@pytest.mark.parametrize("show", [arrays_of, borrowed])
def test_an_array_of_what_is_away_follows_later_steps(show, folder):
    """The next step may be planned with another choice of what is away, and gather() would exchange all memory."""
    eager, planned = mlp_pair(folder)
    for index, batch in enumerate(mlp_batches(4)):
        expected, got = run_both(eager, planned, index, batch)
        assert same(expected, got)
        if index == 0:
            shown = [show(side) for side in (eager, planned)]
        if index == 1:
            with warnings.catch_warnings(action="ignore"), planned.step.gather():
                assert all(map(torch.equal, *[map(torch.as_tensor, arrays) for arrays in shown]))
        assert all(map(torch.equal, *[map(torch.as_tensor, arrays) for arrays in shown])), index
    check_equal(eager, planned)


def test_an_array_made_in_gather_is_never_stale(folder):
    eager, planned = mlp_pair(folder, memory_budget=0.9)
    run_both(eager, planned, 0, mlp_batches(1)[0])
    lowtide.put_away(planned.model, folder)
    with warnings.catch_warnings(action="ignore"), planned.step.gather():
        shown = arrays_of(planned)
    planned.model[0][0].weight.data.fill_(3)
    assert (shown[0] == 3).all()


def test_gather_follows_views_and_says_what_it_leaves(folder):
    _, planned = mlp_pair(folder, memory_budget=0.9)
    lowtide.put_away(planned.model, folder)
    views = planned.model.state_dict()
    with planned.step.gather():
        assert not any(map(is_away, planned.model.parameters()))
    assert all(is_away(value) for value in views.values() if value.dim() == 2)
    shown = arrays_of(planned)
    with pytest.warns(RuntimeWarning, match="leaves 6 tensors on the disk"), planned.step.gather():
        planned.model[0][0].weight.data.fill_(3)
    assert (shown[0] == 3).all()


def test_memory_of_an_array_is_not_exchanged(folder):
    eager, planned = mlp_pair(folder, memory_budget=0.35)
    arrays = []
    for side in (eager, planned):
        array = side.model[0][0].weight.detach().numpy().copy()
        side.model[0][0].weight.data = torch.from_numpy(array)
        arrays.append(array)
    for index, batch in enumerate(mlp_batches(3)):
        expected, got = run_both(eager, planned, index, batch)
        assert same(expected, got)
    assert (arrays[0] == arrays[1]).all()


def test_shared_memory_stays_shared(folder):
    """From the step on that finds it: within the budget, or refused."""
    eager, planned = mlp_pair(folder, memory_budget=0.6)
    for index, batch in enumerate(mlp_batches(4)):
        expected, got = run_both(eager, planned, index, batch)
        assert same(expected, got)
        if index == 1:
            planned.model[0].share_memory()
        assert index == 0 or planned.model[0][0].weight.is_shared()
    check_equal(eager, planned)
    planned.model.share_memory()
    _, tight = mlp_pair(folder, memory_budget=0.3)
    tight.step(mlp_batches(1)[0])
    tight.model.share_memory()
    with pytest.raises(lowtide.InfeasibleError) as refused:
        tight.step(mlp_batches(1)[0])
    assert any("may hold the memory of 0.0.weight" in note for note in refused.value.__notes__)


@pytest.mark.parametrize("begin", [0, 3])
def test_a_weight_that_becomes_a_part_of_what_is_away(begin, folder):
    """What is beside it in that storage stays as it is."""
    eager, planned = pair_of(
        torch.nn.Sequential(*[torch.nn.Linear(168, 168) for _ in range(5)]), "adam", mlp_step,
        memory_budget=0.3, swap=folder, link=LINK,
    )  # fmt: skip
    wholes = []
    for index in range(4):
        expected, got = run_both(eager, planned, index, {"x": torch.ones(8, 168)})
        assert same(expected, got)
        assert all((whole[begin + 168 * 168 :] == 7).all() for whole in wholes)
        if index != 1:
            continue
        for side in (eager, planned):
            for layer in side.model:
                whole = torch.full((begin + 2 * 168 * 168,), 7.0)
                whole[begin : begin + 168 * 168] = layer.weight.detach().flatten()
                if side is planned:
                    lowtide.put_away([whole], folder)
                layer.weight.data = whole[begin : begin + 168 * 168].view(168, 168)
                wholes.append(whole)
    check_equal(eager, planned)


def test_views_follow(folder):
    """`weight.data` in a list does not keep the weight in memory, and shows it wherever it is."""
    eager, planned = mlp_pair(folder)
    views = [parameter.data for parameter in planned.model.parameters()]
    for index, batch in enumerate(mlp_batches(3)):
        expected, got = run_both(eager, planned, index, batch)
        assert same(expected, got)
        assert all(map(torch.equal, views, eager.model.parameters()))
    assert any(map(is_away, planned.model.parameters()))
    check_equal(eager, planned)


def test_a_fork_is_warned_of(folder):
    """Its copy of what is away would change with later steps; what loaders start has no business with that."""
    _, planned = mlp_pair(folder)
    planned.step(mlp_batches(1)[0])
    with pytest.warns(RuntimeWarning, match="forked"):
        child = os.fork()
        if child == 0:
            os._exit(0)
    os.waitpid(child, 0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        loader = torch.utils.data.DataLoader(torch.arange(4), num_workers=1)
        assert [int(x) for x in loader] == [0, 1, 2, 3]
    assert not any("forked" in str(each.message) for each in said)


def test_put_away_leaves_what_has_no_storage(folder):
    tensors = [torch.ones(200, 200).to_sparse(), torch.empty(200, 200, device="meta"), torch.ones(200, 200)]
    lowtide.put_away(tensors, folder)
    assert is_away(tensors[2]) and torch.equal(tensors[0].to_dense(), tensors[2])


def test_what_does_not_fit(tmp_path):
    """Two layers of GPT-2 XL and their state, built one by one, within two budgets: the same numbers."""
    size = {**swap_bench.TENTH, "layers": 2}
    small, large = [swap_bench.train(size, budget, str(tmp_path)) for budget in ("600MiB", "1200MiB")]
    assert swap_bench.losses(small) == swap_bench.losses(large) and small["checksum"] == large["checksum"]
    for result in (small, large):
        for row in result["rows"]:
            assert row["arena_bytes"] + row["resident_bytes"] <= lowtide._core.parse_bytes(result["budget"])
    assert small["rows"][-1]["stored_bytes"] > large["rows"][-1]["stored_bytes"]


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_memory_is_no_place_to_swap_to():
    model = mlp()
    with pytest.raises(OSError, match="memory"):
        lowtide.compile(lambda x: model(x), model=model, memory_budget=0.5, swap="/dev/shm", link=LINK)


def test_arguments_are_checked(folder):
    model = mlp()
    with pytest.raises(ValueError, match="memory_budget"):
        lowtide.compile(lambda x: model(x), model=model, swap=folder)
    with pytest.raises(ValueError, match="folder"):
        lowtide.compile(lambda x: model(x), model=model, memory_budget=0.5, swap=folder + "/none", link=LINK)
    for link in ("16GB", "fast", "0B/s"):
        with pytest.raises(ValueError):
            lowtide.compile(lambda x: model(x), model=model, memory_budget=0.5, swap=folder, link=link)


def test_a_budget_below_what_one_operator_needs(folder):
    _, planned = mlp_pair(folder, memory_budget=0.01)
    with pytest.raises(lowtide.InfeasibleError, match="leaves memory"):
        planned.step(mlp_batches(1)[0])
