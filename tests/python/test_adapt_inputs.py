"""What `lowtide.adapt` is given: batches, tensors, blocks and optimizers of all kinds."""

from __future__ import annotations

import gc
from collections import OrderedDict, UserDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import lowtide
from adapt_models import (
    Block,
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
from lowtide._adapt.memory import CpuMemory, Watched, addresses_of, storage_bytes, storages_of
from lowtide._adapt.optimizer_state import state_to_come
from lowtide._base.blocks import find_blocks
from lowtide._base.tensors import extents_of, tensors_in

LENGTHS = random_lengths(24, 10, 60)


def bytes_of(tensors: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


# -- extents ----------------------------------------------------------------------------------------------------------


class LengthFirst(Texts):
    """Tokens are [length, samples]."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return super().forward(tokens.T)


def test_lengths_in_front_are_learnt_with_their_squares() -> None:
    model, _ = twins(LengthFirst)
    samples = [4] * len(LENGTHS) + [3] + [4] * len(LENGTHS)
    batches = [
        torch.randint(50, (length, count))
        for length, count in zip([*LENGTHS, 33, *LENGTHS[::-1]], samples, strict=True)
    ]
    with lowtide.adapt(model, memory_budget="64MiB") as adapter:
        for batch in batches:
            summed(model, batch).backward()
            model.zero_grad()
        adapter.end()
        errors = [r.error for r in adapter.history.records if not r.sheltered and r.error is not None]
    assert len(errors) > 30
    assert max(errors) < 0.01


# -- structures of arguments ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Slotted:
    tokens: torch.Tensor
    mask: torch.Tensor | None = None
    unset: torch.Tensor = field(init=False)


@dataclass
class WithMore:
    tokens: torch.Tensor

    def __post_init__(self) -> None:
        self.more = self.tokens[0]


class Inherits(Slotted):
    def __init__(self, tokens: torch.Tensor, other: torch.Tensor) -> None:
        super().__init__(tokens)
        self.other = other


class OneSlot:
    __slots__ = "tokens"

    def __init__(self, tokens: torch.Tensor) -> None:
        self.tokens = tokens


class Storage(Mapping[str, Any]):
    """Makes its values anew each time they are asked for."""

    def __init__(self, **content: Any) -> None:
        self._content = content

    def __getitem__(self, name: str) -> Any:
        return [self._content[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)


class Graph:
    """Attributes that are not there are looked for in the storage, as in PyTorch Geometric."""

    def __init__(self, **content: Any) -> None:
        self._store = Storage(**content)
        self._parent = self

    def __getattr__(self, name: str) -> Any:
        return self._store[name]

    def __call__(self) -> None:
        raise AssertionError("nobody calls a batch")


X = torch.zeros(2, 3)
Y = torch.ones(4)


@pytest.mark.parametrize(
    "value",
    [
        [X, Y],
        (X, [{"y": Y}]),
        {"x": X, "of no use": "text", "y": Y},
        OrderedDict(x=X, y=Y),
        UserDict(x=X, y=Y),
        MappingProxyType({"x": X, "y": Y}),
        Storage(x=X, y=Y),
        Slotted(X, Y),
        [Slotted(X), OneSlot(Y)],
        Inherits(Y, X),  # what is in the dictionary of an object comes first
        SimpleNamespace(tensors=X, mask=Y),
        Graph(x=X, y=Y),
        SimpleNamespace(inner=SimpleNamespace(deep=(X, UserDict(y=Y)))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_tensors_are_found(value: object) -> None:
    assert [id(t) for t in tensors_in(value)] == [id(X), id(Y)]
    assert [id(t) for t in tensors_in(((value,), {"flag": True}))] == [id(X), id(Y)]


def test_attributes_that_are_no_fields_are_found() -> None:
    assert len(tensors_in(WithMore(X))) == 2


def test_circles_end() -> None:
    one, two = SimpleNamespace(x=X), SimpleNamespace(y=Y)
    one.other, two.other = two, one
    one.itself = [one]
    assert [id(t) for t in tensors_in(one)] == [id(X), id(Y)]
    endless = first = SimpleNamespace()
    for _ in range(10_000):
        endless.next = SimpleNamespace(x=X)
        endless = endless.next
    assert 0 < len(tensors_in(first)) < 10


def test_what_is_no_batch_is_left_alone() -> None:
    def function() -> None: ...

    function.tensor = X
    holder = SimpleNamespace(
        model=nn.Linear(2, 2), kind=Slotted, function=function, method=nn.Linear(2, 2).forward, module=torch
    )
    assert tensors_in([holder, holder.model, Slotted, function, torch, object(), 1, "text", None]) == []
    vocabulary = SimpleNamespace(words={i: [X] for i in range(5000)}, x=Y)
    assert tensors_in(vocabulary) == [Y]
    assert len(tensors_in([X] * 5000)) == 5000


class GivenObjects(Texts):
    def forward(self, batch: Any) -> torch.Tensor:
        return super().forward(batch["tokens"] if isinstance(batch, Mapping) else batch.tokens)


@pytest.mark.parametrize("wrap", [Slotted, OneSlot, lambda t: UserDict(tokens=t), lambda t: SimpleNamespace(tokens=t)])
def test_batches_in_objects_are_told_apart(wrap: Callable[[torch.Tensor], Any]) -> None:
    batches = [wrap(tokens) for tokens in texts(LENGTHS)]
    model, plain = twins(GivenObjects)
    with lowtide.adapt(model, memory_budget="64MiB") as adapter:
        ours = trained(model, batches)
        adapter.end()
        assert [record.extents for record in adapter.history.records] == [(4, length) for length in LENGTHS]
        assert adapter.stats()["mean_error"] < 0.01
    assert_same_bits(ours, trained(plain, batches))


# -- tensors of other layouts -----------------------------------------------------------------------------------------


def some_graph(nodes: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(nodes, nodes, generator=generator) < 0.3).float().to_sparse()


LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "coo": lambda: torch.eye(4).to_sparse(),
    "csr": lambda: torch.eye(4).to_sparse_csr(),
    "csc": lambda: torch.eye(4).to_sparse_csc(),
    "bsr": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "bsc": lambda: torch.eye(4).to_sparse_bsc((2, 2)),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_of_sparse_tensors(layout: str) -> None:
    tensor = LAYOUTS[layout]()
    elements = 8 if layout.startswith("b") else 4
    indices = {"coo": 8, "csr": 9, "csc": 9, "bsr": 5, "bsc": 5}[layout]
    assert storage_bytes([tensor, tensor]) == storage_bytes([tensor]) >= 4 * elements + 8 * indices
    assert addresses_of([tensor]) == addresses_of([tensor.detach()])
    assert extents_of(tensor) == (4, 4, tensor._nnz())
    watched = Watched()
    watched.watch(tensor.requires_grad_())
    assert watched.alive_bytes() == storage_bytes([tensor])
    del tensor
    assert watched.alive_bytes() == 0


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_memory_and_extents_of_nested_tensors() -> None:
    rows = [torch.ones(2, 3), torch.ones(5, 3)]
    jagged = torch.nested.nested_tensor(rows, layout=torch.jagged)
    assert storage_bytes([jagged]) >= 7 * 3 * 4
    assert addresses_of([jagged._values]) <= addresses_of([jagged])
    strided = torch.nested.nested_tensor(rows)
    assert storage_bytes([strided]) == 7 * 3 * 4
    for tensor, extents in ((jagged, (2, 7, 3, 5)), (strided, (2, 21, 5, 3))):
        assert extents_of(tensor) == extents
        assert all(type(extent) is int for extent in extents_of(tensor))
    assert extents_of(torch.ones(3, 0)) == (3, 0)


def test_tensors_without_memory() -> None:
    assert storages_of(torch.ones(3, device="meta")) == []
    if torch.backends.mkldnn.is_available():
        assert storages_of(torch.ones(3).to_mkldnn()) == []


class Convolution(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, adjacency: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(torch.relu(adjacency @ self.linear(x)))


class Graphs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.layers = nn.ModuleList(Convolution(16) for _ in range(4))

    def forward(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        nodes, adjacency = batch
        x = self.embedding(nodes)
        for layer in self.layers:
            x = layer(x, adjacency)
        return x


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_graphs_with_sparse_adjacencies(layout: torch.layout) -> None:
    batches = [
        (torch.arange(n) % 50, adjacency if layout is torch.sparse_coo else adjacency.to_sparse_csr())
        for n in LENGTHS
        for adjacency in [some_graph(n, n)]
    ]
    model, plain = twins(Graphs)
    with lowtide.adapt(model, memory_budget="64MiB") as adapter:
        ours = trained(model, batches)
        adapter.end()
        records = adapter.history.records
    assert not records[-1].sheltered and any(record.dropped for record in records)
    assert_same_bits(ours, trained(plain, batches))


class OneGraph(Graphs):
    """The same graph for all batches, in a sparse buffer; each block has it too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("adjacency", some_graph(40, 7))
        for layer in self.layers:
            layer.register_buffer("adjacency", self.adjacency)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return super().forward((batch, self.adjacency))


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_buffers() -> None:
    model, plain = twins(OneGraph)
    batches = [torch.arange(40) % n for n in LENGTHS]

    def left(model: nn.Module) -> list[Any]:
        torch.manual_seed(0)
        for batch in batches:
            summed(model, batch).backward()
        return [copied(p.grad) for p in model.parameters() if p.grad is not None]

    with lowtide.adapt(model, memory_budget="64MiB") as adapter:
        assert adapter.preflight((batches[0],)) > 0
        ours = left(model)
    assert_same_bits(ours, left(plain))


class Ragged(nn.Module):
    """Rows of any length, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(4))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            rows = layer(rows)
        return rows.values()


def test_rows_of_any_length() -> None:
    batches = [
        torch.nested.nested_tensor([torch.randn(n, 16), torch.randn(n // 2, 16)], layout=torch.jagged) for n in LENGTHS
    ]
    model, plain = twins(Ragged)
    with lowtide.adapt(model, memory_budget="64MiB") as adapter:
        ours = trained(model, batches)
        adapter.end()
        assert not adapter.history.records[-1].sheltered
    assert_same_bits(ours, trained(plain, batches))


class SparseEmbedding(Texts):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32, sparse=True)


def test_sparse_gradients_that_are_there_already() -> None:
    def losses(model: nn.Module) -> list[Any]:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        seen = []
        torch.manual_seed(0)
        for batch in texts(LENGTHS):
            loss = summed(model, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.append(copied(loss))
        return seen + [copied(p) for p in model.parameters()]

    model, plain = twins(SparseEmbedding)
    for one in (model, plain):
        torch.manual_seed(0)
        summed(one, texts([20])[0]).backward()
    assert model.embedding.weight.grad is not None and model.embedding.weight.grad.is_sparse
    with lowtide.adapt(model, memory_budget="64MiB") as adapter:
        ours = losses(model)
        adapter.end()
        assert not adapter.history.records[-1].sheltered
    assert_same_bits(ours, losses(plain))


# -- blocks -----------------------------------------------------------------------------------------------------------


def stack() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU())


class Stages(nn.Module):
    """Lists of lists of blocks: the inner lists are never called."""

    def __init__(self, stages: int = 2) -> None:
        super().__init__()
        self.stages = nn.ModuleList(nn.ModuleList(stack() for _ in range(2)) for _ in range(stages))
        self.heads = nn.ModuleDict({"left": stack(), "right": nn.ModuleDict({"deep": stack()})})
        self.empty = nn.ModuleList()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for stage in self.stages:
            for block in stage:
                x = block(x)
        return self.heads["left"](x)


INNER = ["stages.0.0", "stages.0.1", "stages.1.0", "stages.1.1"]
HEADS = ["heads.left", "heads.right.deep"]


def test_lists_of_lists_are_looked_into() -> None:
    assert list(find_blocks(Stages())) == [*INNER, *HEADS]
    model = Stages()
    with lowtide.adapt(model, memory_budget="1GiB") as adapter:
        model(torch.ones(2, 4)).sum().backward()
        adapter.end()
        assert adapter.history.records[0].blocks == 5


def test_lists_that_are_named_stand_for_their_members() -> None:
    model = Stages()
    assert list(find_blocks(model, ["stages"])) == INNER
    assert list(find_blocks(model, "stages")) == INNER
    assert list(find_blocks(model, ["stages.1", model.heads])) == [*INNER[2:], *HEADS]
    assert list(find_blocks(model, nn.ModuleDict)) == HEADS
    assert list(find_blocks(model, nn.ModuleList)) == INNER
    assert list(find_blocks(Texts(2), ["layers"])) == ["layers.0", "layers.1"]
    with pytest.raises(
        ValueError, match=r"'empty' is no block: a ModuleList is never called, .* name modules that have"
    ):
        find_blocks(model, ["empty"])


class CalledList(nn.ModuleList):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self:
            x = block(x)
        return x


def test_lists_with_a_forward_are_called() -> None:
    model = nn.ModuleDict({"a": CalledList([stack()]), "b": CalledList([stack()])})
    assert list(find_blocks(model, ["a", "b"])) == ["a", "b"]
    model.a.forward = lambda x: x  # type: ignore[method-assign]
    assert list(find_blocks(model, ["a"])) == ["a"]


def test_a_module_in_two_lists_is_one_block() -> None:
    model = Texts(3)
    model.late = nn.ModuleList(model.layers[1:])
    assert list(find_blocks(model)) == ["layers.0", "layers.1", "layers.2"]
    assert list(find_blocks(model, ["late.0", "layers.1"])) == ["late.0"]
    assert list(find_blocks(model, Block)) == ["layers.0", "layers.1", "layers.2"]


def test_a_part_of_a_block_is_none_under_another_name() -> None:
    model = nn.Module()
    model.parts = nn.ModuleList(Residual(2) for _ in range(2))
    model.blocks = nn.ModuleList(nn.Sequential(part, nn.ReLU()) for part in model.parts)
    assert list(find_blocks(model, [nn.Sequential, Residual])) == ["blocks.0", "blocks.1"]
    assert list(find_blocks(model)) == ["parts.0", "parts.1"]


# -- memory that was there before -------------------------------------------------------------------------------------


def test_gradients_that_were_there_stop_counting_when_they_go() -> None:
    model, _ = twins(Texts)
    summed(model, texts([20])[0]).backward()
    gradients = bytes_of(p.grad for p in model.parameters())
    with lowtide.adapt(model, memory_budget="64MiB") as adapter:
        memory = adapter._memory
        assert memory.level() == 2 * gradients
        model.zero_grad()
        assert memory.level() == gradients
        summed(model, texts([20])[0]).backward()
        adapter.end()
        gc.collect()
        assert memory.level() == 2 * gradients
        model.zero_grad()
        assert memory.level() == gradients


def test_what_went_away_counts_until_then() -> None:
    resident, going = torch.ones(1000), torch.ones(1000)
    memory = CpuMemory([resident, going, resident[3:]])
    try:
        assert memory.mark() == (8000, 8000)
        del going
        assert memory.mark() == (4000, 8000)
        assert memory.mark() == (4000, 4000)
    finally:
        memory.close()


def test_limits_follow_what_went_away() -> None:
    going = torch.ones(100_000)
    memory = CpuMemory([going])
    try:
        memory.limit(500_000)
        with pytest.raises(torch.OutOfMemoryError):
            torch.ones(100_000)
        del going
        memory.mark()
        assert torch.ones(100_000).sum() == 100_000
        with pytest.raises(torch.OutOfMemoryError):
            torch.ones(200_000)
    finally:
        memory.limit(None)
        memory.close()


# -- state of optimizers ----------------------------------------------------------------------------------------------


class Counted(torch.optim.SGD):
    steps = 0

    def step(self, closure: Any = None) -> Any:
        type(self).steps += 1
        return super().step(closure)


def test_an_optimizer_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counted, "steps", 0)
    model, _ = twins(Texts)
    optimizer = Counted(model.parameters(), lr=1e-3)
    with lowtide.adapt(model, memory_budget="64MiB", optimizer=optimizer):
        for number, batch in enumerate(texts(LENGTHS[:14])):
            optimizer.param_groups[0]["lr"] = 1e-3 / (1 + number)
            summed(model, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert Counted.steps == 14 + 1


def test_hooks_of_optimizers_see_no_trial() -> None:
    seen = []
    model, _ = twins(Texts)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    hooks = [
        register_optimizer_step_pre_hook(lambda *given: seen.append("before all")),
        register_optimizer_step_post_hook(lambda *given: seen.append("after all")),
        optimizer.register_step_pre_hook(lambda *given: seen.append("before")),
    ]
    try:
        with lowtide.adapt(model, memory_budget="64MiB", optimizer=optimizer):
            for batch in texts(LENGTHS[:12]):
                summed(model, batch).backward()
                optimizer.zero_grad()
    finally:
        for hook in hooks:
            hook.remove()
    assert seen == []


def test_another_setting_is_tried_again() -> None:
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    assert state_to_come(optimizer) == 0
    optimizer.param_groups[0]["momentum"] = 0.9
    assert state_to_come(optimizer) == bytes_of(model.parameters())
    more = nn.Linear(3, 3)
    optimizer.add_param_group({"params": list(more.parameters())})
    assert state_to_come(optimizer) == bytes_of(model.parameters())
    optimizer.param_groups[1]["momentum"] = 0.9
    assert state_to_come(optimizer) == 2 * bytes_of(model.parameters())


class Around(torch.optim.Optimizer):
    """Shows the groups and the state of another one, as Accelerate's does."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.defaults = optimizer.defaults

    state = property(lambda self: self.optimizer.state, lambda self, state: setattr(self.optimizer, "state", state))  # type: ignore[assignment]
    param_groups = property(
        lambda self: self.optimizer.param_groups, lambda self, groups: setattr(self.optimizer, "param_groups", groups)
    )  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))

    def step(self, closure: Any = None) -> Any:
        return self.optimizer.step(closure)


def test_an_optimizer_around_another_is_left_as_it_is() -> None:
    model = nn.Linear(3, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    assert state_to_come(Around(optimizer)) == state_to_come(optimizer) > 2 * bytes_of(model.parameters())
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [id(p) for p in model.parameters()]
    assert not optimizer.state
