"""`lowtide.adapt`: budgets that hold for every batch, the bits of plain training, and models as they were."""

from __future__ import annotations

import copy
import pickle
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import lowtide
from adapt_models import (
    Block,
    Images,
    Residual,
    Texts,
    assert_same_bits,
    copied,
    random_lengths,
    summed,
    texts,
    trained,
    twins,
)

LENGTHS = random_lengths(26, 10, 60)


def worst_bytes(model: nn.Module, batch: Any, loss=summed) -> int:
    """What the batch takes if nothing is dropped, model and gradients included."""
    with lowtide.measure() as used:
        mirror = copy.deepcopy(model)
        loss(mirror, batch).backward()
    return used.peak_bytes


def within(adapter: lowtide.Adapter) -> lowtide.Adapter:
    adapter.end()
    over = [record.line() for record in adapter.history.records if record.peak_bytes > record.budget_bytes]
    assert not over
    return adapter


# -- bits and budgets -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
def test_keeps_the_budget_and_every_bit(share: float) -> None:
    model, plain = twins(Texts)
    budget = int(worst_bytes(model, texts([60])[0]) * share) + 3 * sum(p.numel() * 4 for p in model.parameters())
    with lowtide.adapt(model, memory_budget=budget) as adapter:
        ours = trained(model, texts(LENGTHS))
        records = within(adapter).history.records
    assert_same_bits(ours, trained(plain, texts(LENGTHS)))
    assert len({record.dropped for record in records if not record.sheltered}) > 1  # lengths differ, and so do plans
    assert adapter.stats()["mean_error"] < 0.01


def test_bits_under_autocast() -> None:
    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(batch).float().square().sum()

    model, plain = twins(Texts)
    budget = int(worst_bytes(model, texts([60])[0], loss) * 0.8) + 3 * sum(p.numel() * 4 for p in model.parameters())
    with lowtide.adapt(model, memory_budget=budget) as adapter:
        ours = trained(model, texts(LENGTHS), loss)
        assert 0 < within(adapter).stats()["dropped_share"] < 1
    assert_same_bits(ours, trained(plain, texts(LENGTHS), loss))
    assert adapter.stats()["mean_error"] < 0.02


def test_bits_with_accumulation() -> None:
    model, plain = twins(Texts)
    with lowtide.adapt(model, memory_budget=worst_bytes(model, texts([60])[0])) as adapter:
        ours = trained(model, texts(LENGTHS), every=4)
        within(adapter)
    assert_same_bits(ours, trained(plain, texts(LENGTHS), every=4))


def test_sheltered_batches_keep_what_is_safe_once_enough_is_known() -> None:
    model, _ = twins(Texts)
    with lowtide.adapt(model, memory_budget="64MiB") as adapter:
        trained(model, texts(LENGTHS))
        records = within(adapter).history.records
    sheltered = [record for record in records if record.sheltered]
    assert all(record.collected for record in sheltered)
    assert all(record.dropped == 5 for record in sheltered[:5])  # three terms, and two more
    longest = 0
    for record in sheltered:
        longest, known = max(longest, record.extents[1]), longest
        if record.extents[1] > 1.02 * known:
            assert record.dropped == 5
    assert [record.dropped for record in sheltered].count(0) > 2


class Codebook(nn.Module):
    """A block whose result depends on a buffer that it replaces as it runs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.register_buffer("mean", torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean((0, 1))
        return x + torch.tanh(self.linear(x) * self.mean)


def spectral(width: int) -> nn.Module:
    return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(width, width)), nn.Tanh())


class Steps(nn.Module):
    """A block that counts in place how often it ran, and depends on it in training."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.steps += 1
        return x + torch.tanh(self.linear(x) / (1 + self.steps))


class PreActivated(nn.Module):
    """A block that changes its argument."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.tanh(x.mul_(0.5)))


class Chancy(nn.Module):
    """A block that draws from generators that PyTorch knows nothing of."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.linear(x) * random.random() * np.random.rand())


def with_others(make: Callable[[int], nn.Module]) -> Callable[[], nn.Module]:
    def texts_with_others() -> nn.Module:
        model = Texts(blocks=3)
        model.others = nn.ModuleList(make(32) for _ in range(2))
        model.layers.extend(model.others)
        return model

    return texts_with_others


@pytest.mark.parametrize(
    ("make", "what"), [(spectral, ".*_u, .*_v are"), (Steps, "steps is"), (PreActivated, "argument 0 is")]
)
def test_blocks_that_change_what_they_depend_on_are_kept(make, what: str) -> None:
    model, plain = twins(with_others(make))
    with lowtide.adapt(model, memory_budget="64MiB", blocks=[*model.layers]) as adapter:
        with pytest.warns(UserWarning, match=f"keeps {type(model.others[0]).__name__}: {what} written to as it runs"):
            model.eval()
            adapter.preflight(texts([20])[0])  # spectral norm and steps change nothing here
            model.train()
            ours = trained(model, texts(LENGTHS))
        assert len(adapter.blocks) == 3
        assert not within(adapter).history.records[-1].sheltered
    assert_same_bits(ours, trained(plain, texts(LENGTHS)))
    assert type(model.others[0].forward) is type(plain.others[0].forward)


@pytest.mark.parametrize("make", [Codebook, Chancy])
def test_blocks_find_in_their_second_run_what_they_found_in_the_first(make) -> None:
    model, plain = twins(with_others(make))
    random.seed(5), np.random.seed(5)
    with lowtide.adapt(model, memory_budget="64MiB", blocks=[*model.layers], shelter=30) as adapter:
        ours = trained(model, texts(LENGTHS))
        assert len(adapter.blocks) == 5
        drawn = random.random(), np.random.rand()
    random.seed(5), np.random.seed(5)
    assert_same_bits(ours, trained(plain, texts(LENGTHS)))
    assert drawn == (random.random(), np.random.rand())


def test_a_block_that_begins_to_change_buffers_is_named() -> None:
    class Late(Steps):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not getattr(self, "armed", False):
                return self.linear(x)
            return super().forward(x)

    model, plain = twins(with_others(Late))
    with lowtide.adapt(model, memory_budget="64MiB", blocks=[*model.layers], shelter=30):
        trained(model, texts(LENGTHS[:3]))
        model.others[1].armed = True
        with pytest.warns(UserWarning, match="keeps .*Late: steps is written to as it runs"):
            ours = trained(model, texts(LENGTHS[:1]))
    trained(plain, texts(LENGTHS[:3]))
    plain.others[1].armed = True
    assert_same_bits(ours, trained(plain, texts(LENGTHS[:1])))


def test_running_statistics_are_updated_once() -> None:
    sizes = random_lengths(22, 20, 48)
    images = [torch.rand(3, 3, size, size + 8) for size in sizes]
    model, plain = twins(Images)
    with lowtide.adapt(model, memory_budget="1GiB") as adapter:
        least = adapter.preflight(torch.rand(3, 3, 48, 56))
    state = 2 * sum(p.numel() * 4 for p in model.parameters())
    with lowtide.adapt(model, memory_budget=int((least + state) * 1.1)) as adapter:
        ours = trained(model, images)
        assert 0 < within(adapter).stats()["dropped_share"] < 1
    assert_same_bits(ours, trained(plain, images))


def test_results_of_the_batch_before_are_counted() -> None:
    """A loop that keeps the last result in a variable has two of them during the forward pass."""

    class Wide(Texts):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.embedding(tokens)
            for layer in self.layers:
                x = layer(x)
            return x.repeat(1, 1, 40)

    model, _ = twins(Wide)
    with lowtide.adapt(model, memory_budget="1GiB") as adapter:
        for batch in texts(LENGTHS):
            result = model(batch)
            result.sum().backward()
            model.zero_grad()
        del result
        adapter.end()
    assert adapter.stats()["mean_error"] < 0.02


def test_memory_is_flat() -> None:
    model, _ = twins(lambda: Texts(3, 16))
    batches = texts(random_lengths(300, 10, 59, seed=3))
    with lowtide.adapt(model, memory_budget="4MiB") as adapter:
        bases = []
        for batch in batches:
            summed(model, batch).backward()
            model.zero_grad()
            bases.append(adapter._memory.level())
    assert max(bases[20:]) <= bases[20]


# -- the model --------------------------------------------------------------------------------------------------------


def test_the_model_is_as_it_was() -> None:
    model, plain = twins(Texts)
    keys = list(model.state_dict())
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    adapter = lowtide.adapt(model, memory_budget="1GiB")
    assert list(model.state_dict()) == keys
    model.load_state_dict(plain.state_dict())
    trained(model, texts([20, 30]))
    adapter.close()
    for name, module in model.named_modules():
        assert vars(module).keys() == before[name].keys()
        assert vars(module)["_forward_hooks"] == before[name]["_forward_hooks"]
    assert model.layers[0].forward.__func__ is Block.forward


def test_a_forward_on_the_instance_comes_back() -> None:
    model, _ = twins(Texts)
    own = model.layers[0].forward = lambda x: x * 2
    lowtide.adapt(model, memory_budget="1GiB").close()
    assert model.layers[0].forward is own


def test_copies_are_plain() -> None:
    model, plain = twins(Texts)
    batch = texts([20])[0]
    with lowtide.adapt(model, memory_budget="1GiB"):
        copied = copy.deepcopy(model)
        stored = pickle.loads(pickle.dumps(model))
    for other in (copied, stored):
        assert other.layers[0].forward.__self__ is other.layers[0]
        assert_same_bits(trained(other, [batch]), trained(copy.deepcopy(plain), [batch]))


def test_evaluation_is_left_alone() -> None:
    model, plain = twins(Texts)
    with lowtide.adapt(model, memory_budget="1GiB") as adapter, torch.no_grad():
        assert torch.equal(model.eval()(texts([20])[0]), plain.eval()(texts([20])[0]))
        adapter.end()
        assert adapter.stats()["batches"] == 0


def test_a_model_is_adapted_once() -> None:
    model, _ = twins(Texts)
    with lowtide.adapt(model, memory_budget="1GiB"), pytest.raises(ValueError, match="adapted already"):
        lowtide.adapt(model, memory_budget="1GiB")


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_of_the_user_stay(reentrant: bool) -> None:
    class Checkpointed(Texts):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.embedding(tokens)
            for i, layer in enumerate(self.layers):
                x = checkpoint(layer, x, use_reentrant=reentrant) if i % 2 else layer(x)
            return self.head(x.mean(1))

    model, plain = twins(Checkpointed)
    with lowtide.adapt(model, memory_budget="1GiB") as adapter:
        ours = trained(model, texts(LENGTHS[:14]))
        within(adapter)
        assert {record.blocks for record in adapter.history.records} == {3}  # those that the user left to us
    assert_same_bits(ours, trained(plain, texts(LENGTHS[:14])))


def test_checkpoints_inside_of_blocks_stay() -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block(32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.block, x, use_reentrant=False)

    def make() -> nn.Module:
        model = Texts()
        model.layers = nn.ModuleList(Inner() for _ in range(4))
        return model

    model, plain = twins(make)
    with lowtide.adapt(model, memory_budget="1GiB") as adapter:
        ours = trained(model, texts(LENGTHS[:14]))
        within(adapter)
    assert_same_bits(ours, trained(plain, texts(LENGTHS[:14])))


def test_frozen_blocks_do_not_count() -> None:
    def make() -> nn.Module:
        model = Texts()
        model.embedding.requires_grad_(False)
        for layer in model.layers[:2]:
            layer.requires_grad_(False)
        return model

    model, plain = twins(make)
    with lowtide.adapt(model, memory_budget="1GiB") as adapter:
        ours = trained(model, texts(LENGTHS[:14]))
        within(adapter)
        assert {record.blocks for record in adapter.history.records} == {3}
        assert not adapter.history.records[-1].sheltered
    assert_same_bits(ours, trained(plain, texts(LENGTHS[:14])))


# -- blocks -----------------------------------------------------------------------------------------------------------


def test_finds_blocks() -> None:
    def names(model: nn.Module, **options: Any) -> list[str]:
        with lowtide.adapt(model, memory_budget="1GiB", **options) as adapter:
            return list(adapter.blocks)

    assert names(Texts(2)) == ["layers.0", "layers.1"]
    assert names(Images()) == ["first.0", "first.1", "first.2", "second.0", "second.1"]
    stages = nn.Sequential(nn.Sequential(Residual(4), Residual(4)), nn.Sequential(Residual(4)))
    assert names(stages) == ["0.0", "0.1", "1.0"]
    assert names(Images(), blocks=Residual) == names(Images())
    assert names(Images(), blocks=["first", "second.1"]) == ["first", "second.1"]
    model = Images()
    assert names(model, blocks=[model.first]) == ["first"]


def test_says_what_is_wrong_with_blocks() -> None:
    with pytest.raises(ValueError, match="has no blocks"):
        lowtide.adapt(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), memory_budget="1GiB")
    with pytest.raises(ValueError, match="no module 'third'"):
        lowtide.adapt(Images(), memory_budget="1GiB", blocks=["third"])
    with pytest.raises(ValueError, match="is no module of the Images"):
        lowtide.adapt(Images(), memory_budget="1GiB", blocks=[Residual(2)])
    with pytest.raises(ValueError, match="memory_budget: expected bytes or text"):
        lowtide.adapt(Texts(), memory_budget=0.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        lowtide.adapt(print, memory_budget="1GiB")  # type: ignore[arg-type]


# -- safety -----------------------------------------------------------------------------------------------------------


def test_a_batch_that_cannot_fit_is_refused_before_it_runs() -> None:
    model, _ = twins(Texts)
    with lowtide.adapt(model, memory_budget=worst_bytes(model, texts([60])[0])) as adapter:
        trained(model, texts(LENGTHS))
        with pytest.raises(lowtide.InfeasibleError, match=r"E304: .* a batch of \[4, 300\] needs at least") as raised:
            summed(model, texts([300])[0])
        within(adapter)
    model.zero_grad()
    # What it says is what it takes.
    model, _ = twins(Texts)
    with lowtide.adapt(model, memory_budget=int(raised.value.bound_bytes * 1.1)) as adapter:
        assert adapter.preflight(texts([300])[0], loss=lambda result: result.square().sum()) <= adapter.budget_bytes


def test_preflight_changes_nothing() -> None:
    model, plain = twins(Images)
    longest = torch.rand(3, 3, 48, 56)
    with lowtide.adapt(model, memory_budget="64MiB") as adapter:
        model(longest).sum().backward()
        plain(longest).sum().backward()
        state = torch.get_rng_state()
        assert 0 < adapter.preflight(longest) < adapter.budget_bytes
        assert torch.equal(torch.get_rng_state(), state)
        for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
            assert ours.grad is not None and theirs.grad is not None and torch.equal(ours.grad, theirs.grad)
        assert_same_bits(
            [copied(t) for t in model.state_dict().values()], [copied(t) for t in plain.state_dict().values()]
        )


def test_preflight_refuses_with_the_minimum() -> None:
    model, _ = twins(Texts)
    optimizer = torch.optim.AdamW(model.parameters())
    with lowtide.adapt(model, memory_budget="1GiB", optimizer=optimizer) as adapter:
        needed = adapter.preflight((texts([200])[0],))
    with (
        lowtide.adapt(model, memory_budget=int(needed * 0.9), optimizer=optimizer) as adapter,
        pytest.raises(lowtide.InfeasibleError, match="E304") as raised,
    ):
        adapter.preflight(lambda: summed(model, texts([200])[0]).backward())
    assert raised.value.bound_bytes == pytest.approx(needed, rel=0.02)


def test_after_preflight_the_longest_batch_may_come_first() -> None:
    model, _ = twins(Texts)
    longest = texts([60])[0]
    budget = int(worst_bytes(model, longest) * 0.8) + 3 * sum(p.numel() * 4 for p in model.parameters())
    lengths = [60, 20, 30, 60, 40, 50, 25, 35, 45, 15, 22, 60, 60, 59]
    with lowtide.adapt(model, memory_budget=budget) as adapter:
        adapter.preflight(longest)
        trained(model, texts(lengths))
        within(adapter)


class Grows(nn.Module):
    """A model of which one block takes far more for some batches of the same extents: no extent tells."""

    def __init__(self, in_backward: bool) -> None:
        super().__init__()
        self.texts = Texts()
        self.much = 1
        self.in_backward = in_backward

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result = self.texts(tokens)
        if self.much > 1:
            if self.in_backward:
                result = result * 1
                result.register_hook(lambda gradient: gradient + torch.zeros(self.much, 2).sum(0) * 0)
            else:
                result = result + torch.zeros(self.much, 2).sum(0)
        return result


@pytest.mark.parametrize("in_backward", [False, True])
def test_memory_that_runs_out_is_tried_again(in_backward: bool) -> None:
    """At the end of the forward pass or the beginning of the backward pass, all that is kept is in the way."""
    model, plain = twins(lambda: Grows(in_backward))
    lengths = [*random_lengths(14, 10, 60), 40, 41, 42]
    parameters = sum(p.numel() * 4 for p in model.parameters())
    budget = worst_bytes(model, texts([60])[0]) + 2 * parameters
    batches = texts(lengths)

    def loss(model: Any, batch: torch.Tensor) -> torch.Tensor:
        model.much = budget // 20 if batch.shape[1] == 40 else 1  # 8 bytes each
        return summed(model, batch)

    with lowtide.adapt(model, memory_budget=budget, enforce=True) as adapter:
        ours = trained(model, batches, loss, around=adapter.run if in_backward else None)
        within(adapter)
        again = [record for record in adapter.history.records if record.extents[1] == 40]
    assert again[-1].dropped == again[-1].blocks
    assert_same_bits(ours, trained(plain, batches, loss))


def test_memory_that_nothing_helps_against() -> None:
    model, _ = twins(Texts)
    budget = 5 * sum(p.numel() * 4 for p in model.parameters())
    notes: list[str] = []
    with lowtide.adapt(model, memory_budget=budget, enforce=True) as adapter:
        try:
            adapter.run(lambda: summed(model, texts([400])[0]).backward())
        except torch.OutOfMemoryError as error:
            notes = error.__notes__
        assert "everything was dropped already" in notes[0]
        adapter.run(lambda: summed(model, texts([10])[0]).backward())


# -- loops of other kinds ---------------------------------------------------------------------------------------------


def test_batches_that_are_said_to_begin() -> None:
    """For loops that call parts of a model."""
    model, _ = twins(Texts)
    with lowtide.adapt(model, memory_budget="1GiB") as adapter:
        for batch in texts(LENGTHS[:14]):
            adapter.begin(batch)
            x = model.embedding(batch)
            for layer in model.layers:
                x = layer(x)
            x.sum().backward()
            model.zero_grad()
            adapter.end()
        records = adapter.history.records
    assert [record.extents for record in records] == [(4, length) for length in LENGTHS[:14]]
    assert not records[-1].sheltered
    assert records[-1].error is not None and records[-1].error < 0.01


def test_features_of_the_user() -> None:
    model, _ = twins(Texts)
    with lowtide.adapt(model, memory_budget="1GiB", features=lambda tokens: [tokens.shape[1]]) as adapter:
        trained(model, texts([10, 20]))
        adapter.end()
        assert [record.extents for record in adapter.history.records] == [(10,), (20,)]


def test_another_path_through_the_model() -> None:
    class Skips(Texts):
        skip = False

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.embedding(tokens)
            for layer in self.layers[2:] if self.skip else self.layers:
                x = layer(x)
            return self.head(x.mean(1))

    model, plain = twins(Skips)

    def loss(model: Any, batch: torch.Tensor) -> torch.Tensor:
        model.skip = batch.shape[1] % 3 == 0
        return summed(model, batch)

    lengths = [*LENGTHS, 40, 41]
    with lowtide.adapt(model, memory_budget="1GiB") as adapter:
        ours = trained(model, texts(lengths), loss)
        assert [record.dropped for record in list(within(adapter).history.records)[-2:]] == [0, 0]
    assert_same_bits(ours, trained(plain, texts(lengths), loss))


def test_two_calls_and_one_backward_pass() -> None:
    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return summed(model, batch) + summed(model, batch[:, :8])

    model, plain = twins(lambda: Texts(2, 8))
    batches = texts(random_lengths(45, 10, 30))
    with lowtide.adapt(model, memory_budget="1GiB") as adapter, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours = trained(model, batches, loss)
        assert adapter.history.records[-1].dropped == 2
    said = [str(warning.message) for warning in caught if "lowtide" in str(warning.message)]
    assert ["cannot plan these batches" in warning for warning in said] == [True]
    assert_same_bits(ours, trained(plain, batches, loss))


# -- reports ----------------------------------------------------------------------------------------------------------


def test_reports(tmp_path, capsys) -> None:
    model, _ = twins(Texts)
    with lowtide.adapt(model, memory_budget="3MiB") as adapter:
        with pytest.raises(ValueError, match="nothing to draw"):
            adapter.plot(tmp_path / "memory.svg")
        trained(model, texts(LENGTHS))
        adapter.end()
        adapter.plot(tmp_path / "memory.svg")
        stats = adapter.stats()
        line = adapter.history.records[-1].line()
    picture = (tmp_path / "memory.svg").read_text()
    assert picture.count("<rect") == len(LENGTHS) + 1 and "budget" in picture
    assert stats["batches"] == len(LENGTHS) and stats["sheltered"] >= 10
    assert line.startswith(f"batch {len(LENGTHS) - 1} [4, {LENGTHS[-1]}]:") and line.endswith("of 3.00 MiB")
