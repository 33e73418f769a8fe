"""Op profiles: what they find, how they are kept, and what happens when one does not hold."""

import json

import pytest
import torch
from torch import nn

import lowtide
from lowtide._lower import profiles
from lowtide._lower.profile_rows import OpProfile, Request, profile_of, row_of, time_of
from lowtide._lower.profiles import ProfileCache, pack_workspace
from step_models import pair, run_both, same, small_batches


# (bytes, begin, end, result) in allocator events -> offsets in the workspace, and its size
@pytest.mark.parametrize(
    ("requests", "offsets", "workspace"),
    [
        ([], [], 0),
        ([(100, 0, -1, 0)], [-1], 0),  # a result is no workspace
        ([(100, 0, 1, -1), (50, 2, 3, -1)], [0, 0], 100),  # one after the other: they share
        ([(100, 0, 3, -1), (50, 1, 2, -1)], [0, 128], 178),  # together: 100 rounded up to 128, then 50
        ([(100, 0, 2, -1), (50, 1, 5, -1), (60, 3, 4, -1)], [0, 128, 0], 178),  # the first is gone when the third comes
        ([(100, 0, -1, -1)], [-1], 0),  # kept by the operator: not ours to place
    ],
)
def test_pack_workspace(requests, offsets, workspace):
    packed, size = pack_workspace(requests)
    assert [request.offset for request in packed] == offsets
    assert size == workspace


def test_cache_survives_on_disk(tmp_path):
    profile = OpProfile((Request(128, 0, -1), Request(64, -1, 0)), 64, 1234)
    first = ProfileCache(tmp_path)
    assert first.get("op(float32[2][1])") is None
    first.put("op(float32[2][1])", profile)
    first.save()
    assert ProfileCache(tmp_path).get("op(float32[2][1])") == profile


DAMAGED = ["", "{", "[]", '{"environment": "other", "profiles": {}}', '{"environment": 3}', "[" * 100_000, "\udcff"]


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_cache_is_an_empty_one(tmp_path, content):
    cache = ProfileCache(tmp_path)
    cache.put("op()", OpProfile((), 0, 1))
    cache.save()
    (file,) = tmp_path.iterdir()
    file.write_text(content, errors="surrogateescape")
    assert ProfileCache(tmp_path).get("op()") is None


GOOD_ROW = [[[100, -1, 0], [50, -1, 128], [64, 0, -1]], 178, 10, [[0, "float32", [4, 4], [4, 1], False]], True]


# What is put where in a row: no operator could have made that.
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((0,), {}),
        ((0, 0), [100, -1]),
        ((0, 0, 0), 0),
        ((0, 0, 0), True),
        ((0, 0, 0), 100.0),
        ((0, 0, 0), "100"),
        ((0, 0, 0), -100),
        ((0, 0, 0), 2**60),
        ((0, 0, 1), 0),  # a result, and in the workspace
        ((0, 0, 1), -2),
        ((0, 0, 2), 1),  # not aligned
        ((0, 1, 2), 192),  # ends behind the workspace
        ((0, 1, 2), 2**60),
        ((0, 1), [64, 0, -1]),  # the same result twice
        ((1,), 0),
        ((1,), 1 << 40),
        ((1,), -178),
        ((1,), 178.0),
        ((1,), None),
        ((2,), -1),
        ((2,), 1e300),
        ((2,), 10**18),
        ((3,), None),
        ((3, 0, 0), -1),
        ((3, 0, 1), "nonsense"),
        ((3, 0, 1), "nn"),
        ((3, 0, 1), None),
        ((3, 0, 2), [4]),
        ((3, 0, 2), [4, -4]),
        ((3, 0, 3), "44"),
        ((3, 0, 4), 0),
        ((3, 0, 4), None),
        ((4,), 1),
        ((4,), "yes"),
    ],
)
def test_a_row_that_no_operator_could_have_made_is_unknown(path, value):
    assert row_of(profile_of(json.loads(json.dumps(GOOD_ROW)))) == [
        *GOOD_ROW[:3],
        [[0, "float32", (4, 4), (4, 1), False]],
        True,
    ]
    row = json.loads(json.dumps(GOOD_ROW))
    place = row
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert profile_of(row) is None


@pytest.mark.parametrize("row", [None, 7, "row", [], {}, [[]], GOOD_ROW[:4], [*GOOD_ROW, 1]])
def test_a_row_of_another_form_is_unknown(row):
    assert profile_of(row) is None


@pytest.mark.parametrize("value", [-1, True, 1.0, "1", None, 10**18])
def test_a_time_that_is_none_is_unknown(value):
    assert time_of(value) is None


def test_a_bad_row_leaves_the_others(tmp_path):
    cache_with(tmp_path, good=OpProfile((Request(64, 0, -1),), 0, 1), bad=OpProfile((), 0, 1))
    (file,) = tmp_path.iterdir()
    stored = json.loads(file.read_text())
    stored["profiles"]["bad"][2] = "soon"
    stored["outside"] = {"step": 5, "other": -5}
    file.write_text(json.dumps(stored))
    cache = ProfileCache(tmp_path)
    assert cache.get("good") == OpProfile((Request(64, 0, -1),), 0, 1)
    assert cache.get("bad") is None
    assert (cache.outside_ns("step"), cache.outside_ns("other")) == (5, None)


def test_a_directory_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    cache = ProfileCache(tmp_path / "file" / "below")
    cache.put("op()", OpProfile((), 0, 1))
    cache.save()


def cache_with(directory, **profiles):
    cache = ProfileCache(directory)
    for signature, profile in profiles.items():
        cache.put(signature, profile)
    cache.save()
    return cache


def test_a_time_settles_once(tmp_path):
    alone = OpProfile((Request(64, -1, 0), Request(128, 0, -1)), 64, 10)
    cache = cache_with(tmp_path, op=alone, other=alone)
    cache.settle({"op": 20, "unknown": 5})
    cache.settle({"op": 30})
    cache.save()
    for known in (cache, ProfileCache(tmp_path)):
        assert known.get("op") == OpProfile(alone.requests, 64, 20, settled=True)
        assert known.get("other") == alone
        assert known.get("unknown") is None


def test_of_two_caches_the_first_to_settle_counts_for_both(tmp_path):
    first = cache_with(tmp_path, op=OpProfile((), 0, 10))
    second = ProfileCache(tmp_path)
    assert second.get("op") == OpProfile((), 0, 10)
    second.put("more", OpProfile((), 0, 1))
    first.settle({"op": 20})
    first.save()
    second.settle({"op": 30, "more": 2})
    second.save()
    first.refresh()
    for cache in (first, second, ProfileCache(tmp_path)):
        assert cache.get("op") == OpProfile((), 0, 20, settled=True)
        assert cache.get("more") == OpProfile((), 0, 2, settled=True)


def test_time_outside_the_operators_settles_once_for_all_caches(tmp_path):
    first, second = ProfileCache(tmp_path), ProfileCache(tmp_path)
    assert (first.outside_ns("step"), second.outside_ns("step")) == (None, None)
    second.settle_outside("other", 7)
    first.settle_outside("step", 20)
    first.settle_outside("step", 30)
    first.save()
    second.settle_outside("step", 40)
    second.save()
    first.refresh()
    for cache in (first, second, ProfileCache(tmp_path)):
        assert (cache.outside_ns("step"), cache.outside_ns("other")) == (20, 7)


def test_a_forgotten_profile_does_not_come_back(tmp_path):
    cache = cache_with(tmp_path, op=OpProfile((), 0, 10))
    cache.settle({"op": 20})
    cache.save()
    cache.forget("op")
    cache_with(tmp_path, other=OpProfile((), 0, 1))  # another one has written the file meanwhile
    cache.refresh()
    assert cache.get("op") is None
    assert cache.get("other") is not None
    again = OpProfile((Request(64, -1, 0),), 64, 11)
    cache.put("op", again)
    cache.save()
    assert ProfileCache(tmp_path).get("op") == again


def test_profiles_that_are_not_saved_yet_are_kept_when_the_threads_change(tmp_path):
    cache = ProfileCache(tmp_path)
    cache.put("op", OpProfile((), 0, 10))
    torch.set_num_threads(2)
    assert cache.get("op") is None
    torch.set_num_threads(1)
    assert cache.get("op") == OpProfile((), 0, 10)


def test_a_second_compilation_profiles_nothing():
    _, first = pair("mlp", "sgd")
    batch = next(small_batches("mlp", 1))
    first.step(batch)
    _, second = pair("mlp", "sgd")
    second.step(batch)
    assert second.step.stats()["profiled_ops"] == 0


def test_a_profile_from_disk_holds_here_only_once_it_was_seen_to(tmp_path):
    said = OpProfile((Request(64, 0, -1),), 0, 1)
    cache_with(tmp_path, op=said)
    profiles._seen_here.clear()  # as in another process
    cache = ProfileCache(tmp_path)
    assert not cache.is_confirmed("op", cache.get("op"))
    cache.confirm("op", said.behaviour)
    assert cache.is_confirmed("op", OpProfile(said.requests, 0, 7, settled=True))
    assert not cache.is_confirmed("op", OpProfile((Request(128, 0, -1),), 0, 1))
    cache.forget("op")
    assert not cache.is_confirmed("op", said)


def test_profiles_that_do_not_hold_are_taken_anew_before_the_first_step(tmp_path, monkeypatch):
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path))
    data = list(small_batches("cnn", 3))
    _, first = pair("cnn", "adam")
    first.step(data[0])
    first.step(data[0])
    # Plant profiles that are too small: convolutions are said to need no workspace and half their result.
    (file,) = tmp_path.iterdir()
    stored = json.loads(file.read_text())
    planted = 0
    for signature, row in stored["profiles"].items():
        if signature.startswith("aten.convolution.default"):
            row[0] = [[size // 2, result, offset] for size, result, offset in row[0] if result >= 0]
            row[1] = 0
            planted += 1
    assert planted
    file.write_text(json.dumps(stored))

    profiles._seen_here.clear()  # as in another process
    eager, planned = pair("cnn", "adam")
    for index, batch in enumerate(data):
        assert same(*run_both(eager, planned, index, batch))
    assert same(eager.state(), planned.state())
    stats = planned.step.stats()
    assert (stats["misses"], stats["profiled_ops"]) == (0, planted)


@torch.library.custom_op("lowtide_test::with_scratch", mutates_args=())
def with_scratch(x: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
    """Asks for as much as its data says before it asks for its result."""
    scratch = torch.zeros(int(amount))
    return x + scratch.sum()


@with_scratch.register_fake
def _(x, amount):
    return torch.empty_like(x)


def test_requests_that_depend_on_data_are_served_outside_and_counted():
    model = nn.Linear(4, 4)

    def function(x, amount):
        return torch.ops.lowtide_test.with_scratch(model(x).relu() + 1, amount).exp().sum()

    step = lowtide.compile(function, model=model, on_unsupported="raise")
    seen = []
    with torch.no_grad():
        for amount in (0, 0, 16, 4, 0, 100, 16):  # 16 is as large as the result
            x = torch.randn(4, 4)
            assert torch.equal(step(x, torch.tensor(amount)), function(x, torch.tensor(amount)))
            seen.append(step.stats()["misses"])
    assert seen[1] == 0 < seen[2], "on scratch memory it asks for nothing"
    assert step.stats()["eager_calls"] == 0
    step.close()


def test_random_state_is_not_advanced_by_profiles(tmp_path, monkeypatch):
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path))
    eager, planned = pair("mlp", "adam")
    for index, batch in enumerate(small_batches("mlp", 2)):
        assert same(*run_both(eager, planned, index, batch))
    assert planned.step.stats()["profiled_ops"] > 0
