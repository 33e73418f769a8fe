"""What the user wishes to be kept or made again: `lowtide.keep`, `lowtide.recompute` and PyTorch's checkpoints."""

import copy
import gc
import json
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, dropout, gelu
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import lowtide
from step_models import FULL, Side, pair_of, run_both, same

WIDTH = 32
DEPTH = 10 if FULL else 5  # layers where a budget is below what checkpoints need


class Layer(nn.Module):
    """A layer of an encoder: attention and a perceptron, each with dropout and a norm behind a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).chunk(3, -1)
        weights = dropout(torch.softmax(q @ k.transpose(1, 2) / WIDTH**0.5, -1), 0.1)
        x = self.norms[0](x + dropout(self.out(weights @ v), 0.1))
        return self.norms[1](x + dropout(self.narrow(gelu(self.wide(x))), 0.1))


Run = Callable[[nn.Module, torch.Tensor], torch.Tensor]


def plainly(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return layer(x)


class Encoder(nn.Module):
    """Layers between an embedding and a head; `run` calls a layer."""

    def __init__(self, run: Run = plainly, layers: int = 4, make_layer: Callable[[], nn.Module] = Layer) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, WIDTH)
        self.layers = nn.Sequential(*(make_layer() for _ in range(layers)))
        self.head = nn.Linear(WIDTH, 50)
        self.run = run

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = self.run(layer, x)
        return self.head(x)


class Sequential(Encoder):
    """All layers in two segments."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(checkpoint_sequential(self.layers, 2, self.embed(ids), use_reentrant=self.run is plainly))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, parts: int = 1, around: Any = nullcontext) -> Any:
    """A step that leaves no gradients behind; `around` is the context of the forward pass."""

    def step(ids: torch.Tensor) -> torch.Tensor:
        for part in ids.chunk(parts):
            with around():
                loss = cross_entropy(model(part).flatten(0, 1).float(), part.flatten())
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def sides(model: nn.Module, make: Any = train, **options: Any) -> tuple[Side, Side]:
    return pair_of(model, "adam", make, **options)


def train_both(eager: Side, planned: Side, batch: int = 8, steps: int = 3) -> tuple[int, int]:
    """Trains both, bit for bit, and gives the most bytes that a step of each has needed."""
    peaks = []
    for index in range(steps):
        torch.manual_seed(index)
        ids = torch.randint(0, 50, (batch, 48))
        loss, expected = run_both(eager, planned, index, ids)
        assert same(loss, expected)
        assert same(eager.state(), planned.state()), f"step {index}"
        with lowtide.measure() as needed:
            torch.manual_seed(7)
            eager.step(ids)
        with lowtide.measure() as planned_needs:
            torch.manual_seed(7)
            planned.step(ids)
        peaks.append((needed.peak_bytes, planned_needs.peak_bytes))
    return max(peak for peak, _ in peaks), max(peak for _, peak in peaks)


def graph_of(planned: Side, tmp_path: Path) -> dict[str, Any]:
    planned.step.graph.save(tmp_path / "graph.json")
    return json.loads((tmp_path / "graph.json").read_text())


def repeated(planned: Side) -> set[int]:
    """The ops that run more than once."""
    return {op for op, times in Counter(planned.step.plan.order).items() if times > 1}


reentrant = partial(checkpoint, use_reentrant=True)
not_reentrant = partial(checkpoint, use_reentrant=False)


def nested(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return not_reentrant(lambda y: not_reentrant(layer, y), x)


def to_the_end(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return not_reentrant(layer, x, early_stop=False, determinism_check="none")


def changed_behind(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return not_reentrant(layer, x).mul_(1.5)


MODELS = {
    "reentrant": partial(Encoder, reentrant),
    "not reentrant": partial(Encoder, not_reentrant),
    "nested": partial(Encoder, nested),
    "to the end": partial(Encoder, to_the_end),
    "changed behind": partial(Encoder, changed_behind),
    "sequential": Sequential,
    "sequential, not reentrant": partial(Sequential, not_reentrant),
}


@pytest.mark.parametrize("name", MODELS)
def test_checkpoints_with_dropout_are_planned(name, tmp_path):
    torch.manual_seed(0)
    eager, planned = sides(MODELS[name]())
    expected, needed = train_both(eager, planned)
    assert needed <= expected
    graph = graph_of(planned, tmp_path)
    again = repeated(planned)
    assert again
    assert all(graph["ops"][op].get("region") for op in again), "only what is in a checkpoint runs again"


@pytest.mark.parametrize("run", [reentrant, not_reentrant], ids=["reentrant", "not reentrant"])
def test_steps_with_checkpoints_are_collected(run):
    _, planned = sides(Encoder(run))
    # It accumulates into the gradients that it finds: a first capture is given up in the midst of its backward pass.
    planned.step(torch.randint(8, (4, 6)))
    assert planned.step.stats()["captures"] == 1
    gone = weakref.ref(planned.model)
    planned.step.close()
    del planned
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("run", [reentrant, not_reentrant], ids=["reentrant", "not reentrant"])
@pytest.mark.parametrize("inside", [False, True], ids=["backward outside", "backward inside"])
def test_checkpoints_under_autocast(run, inside):
    around = partial(torch.autocast, "cpu", torch.bfloat16)

    def make(model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
        if not inside:
            return train(model, optimizer, around=around)
        step = train(model, optimizer)

        def whole(ids: torch.Tensor) -> torch.Tensor:
            with around():
                return step(ids)

        return whole

    torch.manual_seed(0)
    eager, planned = sides(Encoder(run), make)
    train_both(eager, planned)
    assert repeated(planned)


@pytest.mark.parametrize("run", [reentrant, not_reentrant], ids=["reentrant", "not reentrant"])
def test_every_backward_pass_of_a_step_has_its_checkpoints(run):
    """Each pass runs its own layers again, wherever the step as a whole turns."""
    torch.manual_seed(0)
    eager, planned = sides(Encoder(run), partial(train, parts=3))
    expected, needed = train_both(eager, planned, batch=12)
    assert needed <= expected


def test_a_second_run_with_other_random_numbers_is_a_run_of_its_own():
    torch.manual_seed(0)
    eager, planned = sides(Encoder(partial(not_reentrant, preserve_rng_state=False)))
    train_both(eager, planned)
    assert not repeated(planned)


def test_running_statistics_are_updated_twice():
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(WIDTH, WIDTH)
            self.norm = nn.BatchNorm1d(48)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(torch.tanh(self.linear(x)))

    torch.manual_seed(0)
    eager, planned = sides(Encoder(not_reentrant, make_layer=Normed))
    train_both(eager, planned)
    assert eager.model.layers[0].norm.num_batches_tracked == 12
    assert not repeated(planned)


def test_what_a_policy_saves_stays(tmp_path):
    """Selective checkpoints: products are saved, everything else is made again."""

    class Plain(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.project(x).chunk(3, -1)
            x = self.norms[0](x + self.out(torch.softmax(q @ k.transpose(1, 2), -1) @ v))
            return self.norms[1](x + self.narrow(gelu(self.wide(x))))

    saved = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default]

    def policy(_context: Any, op: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if op in saved else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = partial(create_selective_checkpoint_contexts, policy)
    torch.manual_seed(0)
    eager, planned = sides(Encoder(partial(not_reentrant, context_fn=contexts), make_layer=Plain))
    train_both(eager, planned)
    graph = graph_of(planned, tmp_path)
    again = {graph["ops"][op]["name"] for op in repeated(planned)}
    assert "aten.gelu.default" in again
    assert again.isdisjoint(map(str, saved))


def test_marked_modules_are_made_again():
    torch.manual_seed(0)
    model = Encoder()
    unmarked = sides(copy.deepcopy(model))
    marked = copy.deepcopy(model)
    for layer in marked.layers:
        assert lowtide.recompute(layer) is layer
    checkpointed = copy.deepcopy(model)
    checkpointed.run = not_reentrant

    plain, needed = train_both(unmarked[0], sides(marked)[1])
    with_checkpoints, _ = train_both(*sides(checkpointed))
    assert needed <= with_checkpoints < plain


def test_a_mark_between_two_steps_counts():
    torch.manual_seed(0)
    eager, planned = sides(Encoder())
    train_both(eager, planned, steps=1)
    assert not repeated(planned)
    for layer in planned.model.layers:
        lowtide.recompute(layer)
    train_both(eager, planned, steps=1)
    assert repeated(planned)


def test_marked_modules_within_a_budget():
    torch.manual_seed(0)
    model = Encoder(layers=DEPTH)
    for layer in model.layers:
        lowtide.recompute(layer)
    eager, planned = sides(copy.deepcopy(model))
    train_both(eager, planned)
    as_asked, again = planned.step.plan, repeated(planned)
    budget = as_asked.resident_bytes + as_asked.arena_bytes * 9 // 10
    eager, planned = sides(model, memory_budget=budget)
    train_both(eager, planned)
    assert planned.step.plan.resident_bytes + planned.step.plan.arena_bytes <= budget
    assert again < repeated(planned)


class Kept(Layer):
    """Keeps what the attention gives."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).chunk(3, -1)
        kept = lowtide.keep({"weights": torch.softmax(q @ k.transpose(1, 2), -1), "scale": 2.0})
        x = self.norms[0](x + dropout(self.out(kept["weights"] @ v), 0.1))
        return self.norms[1](x + dropout(self.narrow(gelu(self.wide(x))), 0.1))


@pytest.mark.parametrize("marked", [False, True], ids=["plain", "in marked modules"])
def test_what_is_kept_is_never_made_again(marked, tmp_path):
    torch.manual_seed(0)
    model = Encoder(layers=DEPTH, make_layer=Kept)
    if marked:
        for layer in model.layers:
            lowtide.recompute(layer)
    _, free = sides(copy.deepcopy(model))
    free.step(torch.randint(0, 50, (8, 48)))
    plan = free.step.plan
    eager, planned = sides(model, memory_budget=plan.resident_bytes + plan.arena_bytes * (9 if marked else 6) // 10)
    train_both(eager, planned)
    ops = graph_of(planned, tmp_path)["ops"]
    again = repeated(planned)
    softmax = {op for op in range(len(ops)) if ops[op]["name"] == "aten._softmax.default"}
    assert len(softmax) == DEPTH
    assert again
    assert again.isdisjoint(softmax)


def test_hints_change_nothing_in_eager_mode():
    torch.manual_seed(0)
    first = Encoder(make_layer=Kept)
    second = copy.deepcopy(first)
    tree = {"a": [torch.ones(2)], "b": 3}
    assert lowtide.keep(tree) is tree
    for layer in second.layers:
        lowtide.recompute(layer)
    for model in (first, second):
        torch.manual_seed(1)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))(torch.randint(0, 50, (4, 48)))
    assert same(first.state_dict(), second.state_dict())
    with pytest.raises(TypeError, match=r"takes a torch\.nn\.Module, not a list"):
        lowtide.recompute([])
