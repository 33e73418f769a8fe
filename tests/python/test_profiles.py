"""Op profiles: what they find, how they are kept, and what happens when one does not hold."""

import json

import pytest
import torch

from lowtide.profiles import OpProfile, ProfileCache, Request, default_directory, pack_workspace
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


@pytest.mark.parametrize("content", ["", "{", "[]", '{"environment": "other", "profiles": {}}', '{"environment": 3}'])
def test_a_damaged_cache_is_an_empty_one(tmp_path, content):
    cache = ProfileCache(tmp_path)
    cache.put("op()", OpProfile((), 0, 1))
    cache.save()
    (file,) = tmp_path.iterdir()
    file.write_text(content)
    assert ProfileCache(tmp_path).get("op()") is None


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
    alone = OpProfile((Request(128, 0, -1),), 64, 10)
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
    cache.put("op", OpProfile((), 64, 11))
    cache.save()
    assert ProfileCache(tmp_path).get("op") == OpProfile((), 64, 11)


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


def test_a_request_that_outgrows_its_profile_falls_back_is_counted_and_planned_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path))
    data = list(small_batches("cnn", 4))
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

    eager, planned = pair("cnn", "adam")
    misses = []
    for index, batch in enumerate(data):
        assert same(*run_both(eager, planned, index, batch))  # the numbers are right all the same
        misses.append(planned.step.stats()["misses"])
    assert same(eager.state(), planned.state())
    assert misses[0] > 0
    assert misses[-1] == misses[-2], "no misses once planned anew"
    assert default_directory() == tmp_path


def test_random_state_is_not_advanced_by_profiles(tmp_path, monkeypatch):
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path))
    eager, planned = pair("mlp", "adam")
    for index, batch in enumerate(small_batches("mlp", 2)):
        assert same(*run_both(eager, planned, index, batch))
    assert planned.step.stats()["profiled_ops"] > 0
