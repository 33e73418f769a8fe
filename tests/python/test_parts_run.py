"""Operators that run in parts: programs of given plans have the bits of eager, and what is kept of parts is checked."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from given_parts import Given, in_parts
from lowtide import _core, _torch
from lowtide._capture.recorder import Ref
from lowtide._lower import part_cache, step_parts
from lowtide._lower.axes import Axis
from lowtide._lower.capture import _recorded
from lowtide._lower.exactness import Cut, compare
from lowtide._lower.gpus import device_named
from lowtide._lower.graph import assume_profiles, build_graph, profile_operators
from lowtide._lower.lowering import Lowered, lower
from lowtide._lower.part_cache import PartCache
from lowtide._lower.part_calls import compact
from lowtide._lower.part_rooflines import WholeCost, assume_parts
from lowtide._lower.profile_rows import part_profile_of, part_row_of
from lowtide._lower.profiles import ProfileCache
from lowtide._lower.step_parts import PartCost, Parts, counts_of, find_parts
from lowtide._step.part_steps import PartStep
from step_models import FULL, pair, run_both, same, small_batches

SEEDS = range(12 if FULL else 3)


@pytest.fixture(autouse=True)
def few_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every further number of parts is profiled and compared as well."""
    monkeypatch.setattr(step_parts, "_WANTED", (2, 4))
    forget_this_process(monkeypatch)
    _torch.install_allocator()


@pytest.mark.parametrize(
    ("sizes", "strides", "offset", "period", "count", "expected"),
    [
        # 4 rows of 8 floats by columns in 2 parts: part 1 begins at float 4 of each row, 4 floats a row are left
        ((4, 4), (8, 1), 4, 32, 2, ((4, 1), 0)),
        # the same by rows: each part lies as it lay, part 1 begins at float 16 of the whole
        ((2, 8), (8, 1), 16, 128, 2, ((8, 1), 0)),
        # a transposed window on it, by columns
        ((4, 4), (1, 8), 4, 32, 2, ((1, 4), 0)),
        # a window on rows 2 and 3 of it
        ((2, 4), (8, 1), 20, 32, 2, ((4, 1), 8)),
    ],
)
def test_a_part_lies_compactly(
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    period: int,
    count: int,
    expected: tuple[tuple[int, ...], int],
) -> None:
    whole = Ref(0, torch.float32, sizes, strides, offset)
    part = compact(whole, period, count)
    assert (part.strides, part.offset, part.sizes) == (*expected, sizes)


def test_numbers_of_parts_are_divisors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_parts, "_WANTED", (2, 4, 8, 16, 32, 64))
    assert counts_of(1024) == [2, 4, 8, 16, 32, 64]
    assert counts_of(12) == [2, 4, 12]
    assert counts_of(50257) == [29]  # 29 * 1733
    assert counts_of(7) == [7]
    assert counts_of(127) == []


def check_runs(sides: tuple[Any, Any], given: list[Given], batches: Any, *, exact: bool) -> None:
    eager, planned = sides
    for index, batch in enumerate(batches):
        expected, got = run_both(eager, planned, index, batch)
        if exact:
            assert same(expected, got)
            assert same(eager.state(), planned.state())
        else:
            torch.testing.assert_close(got, expected)
    stats = planned.step.stats()
    assert (stats["misses"], stats["escapes"]) == (0, [])
    assert given, "no program was built"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("model", ["mlp", "cnn", "gpt2"])
def test_exact_parts_have_the_bits_of_eager(
    model: str, seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with in_parts(monkeypatch, tmp_path, seed, exact=True) as given:
        check_runs(pair(model, small=True, layers=1), given, small_batches(model, 3, batch=4), exact=True)
        assert sum(len(chain.operators) for chain in given[0].chains) > 5
        assert any(held[2] > 1 for held in given[0].plan.block_parts()), "nothing was held in parts"


@pytest.mark.parametrize("seed", SEEDS)
def test_sums_are_close_to_eager(seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with in_parts(monkeypatch, tmp_path, seed, exact=False) as given:
        check_runs(pair("mlp", "sgd", small=True), given, small_batches("mlp", 3, batch=4), exact=False)
        axes = [given[0].parts.axes[op][axis].axis for chain in given[0].chains for op, axis in chain.operators]
        assert any(None in axis.results for axis in axes), "nothing was summed"


def test_results_that_miss_their_places_are_copied_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Requests of other sizes than planned are served by ordinary allocation."""
    requests = PartStep.requests

    def larger(*args: Any) -> list[tuple[int, int]]:
        return [(size + 64, place) for size, place in requests(*args)]

    monkeypatch.setattr(PartStep, "requests", larger)
    eager, planned = pair("mlp", small=True)
    with in_parts(monkeypatch, tmp_path, 0, exact=True):
        for index, batch in enumerate(small_batches("mlp", 3, batch=4)):
            assert same(*run_both(eager, planned, index, batch))
            assert same(eager.state(), planned.state())
        assert planned.step.stats()["misses"] > 0


_kept: list[torch.Tensor] = []


@torch.library.custom_op("lowtide_parts::keep", mutates_args=())
def keep(x: torch.Tensor) -> torch.Tensor:
    _kept.append(x)
    return x * 2


@keep.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@pytest.mark.parametrize("seed", SEEDS)
def test_parts_leave_memory_alone_that_somebody_holds(
    seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = nn.Linear(32, 32)
    data = [torch.randn(16, 32) for _ in range(4)]

    def forward(x: torch.Tensor) -> torch.Tensor:
        h = torch.ops.lowtide_parts.keep(torch.relu(model(x)))
        for _ in range(6):
            h = torch.tanh(h @ model.weight)
        return h

    run = lowtide.compile(forward, model=model, on_unsupported="raise")
    with torch.no_grad(), in_parts(monkeypatch, tmp_path, seed, exact=True) as given:
        expected = [forward(x) for x in data]
        wanted = [torch.relu(model(x)) for x in data]
        with pytest.warns(RuntimeWarning, match=r"lowtide_parts\.keep"):
            run(data[0])
        _kept.clear()  # profiles have called the operator too
        got = [run(x) for x in data]
        assert any(len(chain.operators) for chain in given[0].chains)
    assert same(expected, got)
    assert same(wanted, [tensor.detach() for tensor in _kept])
    _kept.clear()
    run.close()


def lowered_step(model: nn.Module, batch: torch.Tensor, optimizer: Any = None) -> Lowered:
    def step(x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(x).square().mean()
        loss.backward()
        return loss

    with _recorded(step, model, [], (batch,)) as (tape, runs):
        tape.drop_gradients()
        return lower(tape, runs)


def small_step() -> Lowered:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Softmax(dim=-1), nn.Linear(64, 32))
    return lowered_step(model, torch.randn(16, 32))


def found_parts(lowered: Lowered, folder: Path, least_bytes: int = 0) -> Parts:
    _, profiles = profile_operators(lowered, ProfileCache(folder), lambda number: 1.0)
    return find_parts(lowered, profiles, PartCache(folder), lambda number: 1.0, least_bytes, bits="compared")


def forget_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_cache, "_profiled_here", {})
    monkeypatch.setattr(part_cache, "_compared_here", {})


def test_parts_are_profiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = found_parts(small_step(), tmp_path)
    assert first.cache.taken > 0
    assert first.cache.compared > 0
    forget_this_process(monkeypatch)
    again = found_parts(small_step(), tmp_path)
    assert (again.cache.taken, again.cache.compared) == (0, 0)
    assert again.axes == first.axes


def test_layers_that_are_alike_have_the_same_axes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def step(layers: int) -> Lowered:
        torch.manual_seed(0)
        stacked = [nn.Sequential(nn.Linear(32, 32), nn.GELU()) for _ in range(layers)]
        return lowered_step(nn.Sequential(*stacked), torch.randn(16, 32))

    looked_at = []
    counted = step_parts._counted_axes
    monkeypatch.setattr(step_parts, "_counted_axes", lambda *args: looked_at.append(args) or counted(*args))
    parts = found_parts(step(8), tmp_path)
    names = Counter(str(parts.lowered.operators[index].target) for index in parts.axes)
    assert names["aten.gelu.default"] == 8
    assert sum(str(args[1].target) == "aten.gelu.default" for args in looked_at) == 1


def test_only_operators_that_matter_have_axes(tmp_path: Path) -> None:
    lowered = small_step()
    everything = found_parts(lowered, tmp_path)
    large = found_parts(lowered, tmp_path, least_bytes=16 * 64 * 4)
    assert 0 < len(large.axes) < len(everything.axes)
    for index in large.axes:
        operands = [*lowered.operators[index].reads(), *lowered.operators[index].new_results()]
        assert max(lowered.buffers[ref.buffer].nbytes for ref in operands) >= 16 * 64 * 4
    assert found_parts(lowered, tmp_path, least_bytes=1 << 30).axes == {}


def test_sums_are_never_exact(tmp_path: Path) -> None:
    parts = found_parts(small_step(), tmp_path)
    exact = Counter()
    for counted in (counted for axes in parts.axes.values() for counted in axes):
        sums = None in counted.axis.results
        exact.update((sums, cost.exact) for cost in counted.counts)
    assert exact[True, True] == 0
    assert exact[True, False] > 0
    assert exact[False, True] > 0


def test_parts_are_taken_to_be_exact_until_they_are_seen(tmp_path: Path) -> None:
    lowered = small_step()
    _, profiles = profile_operators(lowered, ProfileCache(tmp_path), lambda number: 1.0)
    offered = find_parts(lowered, profiles, PartCache(tmp_path / "a"), lambda number: 1.0, 0)
    certain = find_parts(lowered, profiles, PartCache(tmp_path / "b"), lambda number: 1.0, 0, bits="compared")
    for index, axes in certain.axes.items():
        for one, other in zip(offered.axes[index], axes, strict=True):
            assert [cost.count for cost in one.counts] == [cost.count for cost in other.counts]
            assert all(offer.exact for offer, cost in zip(one.counts, other.counts, strict=True) if cost.exact)
    assert offered.cache.compared == 0 < certain.cache.compared


def test_parts_that_differ_are_not_exact() -> None:
    lowered = small_step()
    softmax = next(op for op in lowered.operators if "softmax" in str(op.target))
    right, wrong = Axis(16, {0: 0}, (0,), {}), Axis(64, {0: 1}, (1,), {})
    cuts = [Cut.of(axis, 4, {}) for axis in (right, wrong)]
    assert list(compare(lowered, softmax, cuts, lambda number: 1.0).values()) == [True, False]


def damage_exact(rows: dict[str, Any]) -> None:
    for signature in rows["exact"]:
        rows["exact"][signature] = True


def damage_requests(rows: dict[str, Any]) -> None:
    for row in rows["profiles"].values():
        for request in row[0]:
            request[0] += 64
        row[1] = max((r[2] + r[0] for r in row[0] if r[2] >= 0), default=0)


class PlanInParts:
    """What `Parts.confirm` looks at."""

    def __init__(self, steps: list[tuple[int, int, int, int]], buffers: int) -> None:
        self.order = [op for op, *_ in steps]
        self._parts = [tuple(rest) for _, *rest in steps]
        self._buffers = buffers

    def step_parts(self) -> Any:
        return self._parts

    def block_parts(self) -> list[tuple[int, int, int]]:
        return [(0, 0, 1)] * self._buffers

    def block_buffers(self) -> list[int]:
        return list(range(self._buffers))

    def step_blocks(self, step: int) -> list[int]:
        return []


def all_parts(parts: Parts) -> Any:
    steps = [
        (op, axis, 0, cost.count)
        for op, axes in parts.axes.items()
        for axis, counted in enumerate(axes)
        for cost in counted.counts
    ]
    return PlanInParts(steps, len(parts.lowered.buffers))


def test_what_a_file_says_is_confirmed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = found_parts(small_step(), tmp_path)
    assert first.confirm(all_parts(first))
    forget_this_process(monkeypatch)
    again = found_parts(small_step(), tmp_path)
    compared = again.cache.compared
    assert again.confirm(all_parts(again))
    assert again.cache.compared > compared, "exact parts were not compared in this process"
    assert again.cache.taken == 0


def test_a_file_that_lies_about_bits_is_found_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(step_parts, "compare", lambda lowered, op, cuts, number: dict.fromkeys(cuts, True))
    lying = found_parts(small_step(), tmp_path)
    assert not any(cost.exact for cost in costs(lying, sums=True)), "of sums it is not believed"
    assert any(cost.exact for cost in costs(lying, sums=False))
    forget_this_process(monkeypatch)
    monkeypatch.setattr(step_parts, "compare", lambda lowered, op, cuts, number: dict.fromkeys(cuts, False))
    parts = found_parts(small_step(), tmp_path)
    assert parts.axes == lying.axes
    all_of_them = PlanInParts(
        [
            (op, axis, 0, cost.count)
            for op, axes in parts.axes.items()
            for axis, counted in enumerate(axes)
            for cost in counted.counts
        ],
        len(parts.lowered.buffers),
    )
    assert not parts.confirm(all_of_them)
    assert parts.confirm(all_of_them)
    assert not any(cost.exact for cost in costs(parts, sums=False))
    assert not any(cost.exact for cost in costs(found_parts(small_step(), tmp_path), sums=False))


def costs(parts: Parts, *, sums: bool) -> list[PartCost]:
    """Of axes with or without sums among their results."""
    axes = [counted for found in parts.axes.values() for counted in found]
    return [cost for counted in axes if (None in counted.axis.results) == sums for cost in counted.counts]


def test_a_file_that_lies_about_requests_is_found_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found_parts(small_step(), tmp_path)
    (path,) = tmp_path.glob("parts-*.json")
    rows = json.loads(path.read_text())
    damage_requests(rows)
    path.write_text(json.dumps(rows))
    forget_this_process(monkeypatch)
    parts = found_parts(small_step(), tmp_path)
    assert parts.cache.taken == 0
    parts.confirm(all_parts(parts))
    assert parts.cache.taken > 0


@pytest.mark.parametrize("text", ["", "[]", "{", '{"environment": 1}', "[" * 100000], ids=range(5))
def test_a_damaged_file_is_an_empty_one(text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found_parts(small_step(), tmp_path)
    (path,) = tmp_path.glob("parts-*.json")
    path.write_text(text)
    forget_this_process(monkeypatch)
    assert found_parts(small_step(), tmp_path).cache.taken > 0


@pytest.mark.parametrize(
    "row",
    [
        None,
        [],
        [[], 0, 1, [], 1, 2],
        [[[0, -1, 0, -1]], 0, 1, [], 1],  # a request of no bytes
        [[[64, -1, 8, -1]], 72, 1, [], 1],  # not aligned
        [[[64, -1, 0, -1]], 128, 1, [], 1],  # more than is asked for
        [[[64, 0, -1, -1], [64, 0, -1, -1]], 0, 1, [], 1],  # one result twice
        [[[64, 0, -1, -1]], 0, 1, [0, 0], 1],
        [[[64, 0, -1, -1]], 0, True, [0], 1],
        [[[64, 0, -1, -1]], 0, 1, [-1], 1],
        [[[2**60, 0, -1, -1]], 0, 1, [], 1],
    ],
)
def test_rows_that_no_part_could_have_made_are_unknown(row: Any) -> None:
    assert part_profile_of(row) is None


def test_rows_of_parts_are_read_as_they_are_written(tmp_path: Path) -> None:
    parts = found_parts(small_step(), tmp_path)
    profiles = [parts.run(op, 0, 1, axes[0].counts[0].count, {}).profile for op, axes in parts.axes.items()]
    assert profiles
    assert [part_profile_of(json.loads(json.dumps(part_row_of(profile)))) for profile in profiles] == profiles


def test_graphs_have_axes_unless_they_are_guarded(tmp_path: Path) -> None:
    lowered = small_step()
    _, profiles = profile_operators(lowered, ProfileCache(tmp_path), lambda number: 1.0)
    parts = find_parts(lowered, profiles, PartCache(tmp_path), lambda number: 1.0, 0, bits="compared")
    plain = build_graph(lowered, profiles)
    assert build_graph(lowered, profiles, axes=parts.axes).fingerprint != plain.fingerprint
    assert build_graph(lowered, profiles, 64, parts.axes).fingerprint == build_graph(lowered, profiles, 64).fingerprint


def test_small_kernels_pay_on_devices_that_are_not_here() -> None:
    lowered = small_step()
    device = device_named("A100")
    profiles = assume_profiles(lowered)
    axes = assume_parts(lowered, profiles, device, least_bytes=0)
    assert axes
    for index, counted in axes.items():
        whole = WholeCost(lowered.operators[index], device)
        launch = whole.scaled(device.launch_ns) - 1  # rounded up
        for cost in (cost for axis in counted for cost in axis.counts):
            assert cost.count * cost.time_ns >= whole.roofline_ns + (cost.count - 1) * launch
            assert not cost.exact
    assert isinstance(build_graph(lowered, profiles, axes=axes), _core.Graph)


def test_captured_graphs_have_axes_where_they_are_asked_for() -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def step(x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(x).square().mean()
        loss.backward()
        return loss

    def graph(**options: Any) -> str:
        return lowtide.capture(step, model=model, example=(torch.randn(16, 32),), **options).fingerprint

    assert graph(device="A100", least_part_bytes=0) != graph(device="A100")
    assert graph(device="A100", least_part_bytes=1 << 30) == graph(device="A100")
    assert graph(least_part_bytes=0) == graph()
