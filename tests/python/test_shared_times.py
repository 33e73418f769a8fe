"""Times that jobs have in common: a job takes over those of the first one, and then finds its plan.

LOWTIDE_FULL=1   10 tampered stores of each kind instead of one
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import lowtide
from bench.lib.apart import ROOT, command_of
from lowtide._base import progress
from lowtide._store.entry import opened, sealed
from redis_server import RedisServer, need_redis
from step_models import FULL
from tampering import PROFILE_KINDS, Bench

MOST_SHARE = 0.02  # of the first job's planning, that the second takes


class Fleet(Bench):
    """Jobs on machines of their own, with what they share."""

    def __init__(self, directory, patch):
        super().__init__(directory, patch)
        self.patch = patch
        self.searched = []
        self.fingerprints = []
        search = progress._core.plan

        def plan(graph, **options):
            self.searched.append(graph.fingerprint)
            return search(graph, **options)

        patch.setattr(progress._core, "plan", plan)

    def job(self, store, cache, repeat=1):
        """What a job does on a machine with this cache, and how many plans it searched for."""
        self.searched.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LOWTIDE_STORE", str(store))
            return self.train(cache, repeat) | {"searched": len(self.searched)}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        yield Fleet(tmp_path_factory.mktemp("fleet"), patch)


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


def rows_of(store):
    """The times that a store has, by file."""
    found = {}
    for file in store.iterdir():
        content = opened(file.stem, file.read_bytes())
        with contextlib.suppress(ValueError):
            found[file] = json.loads(content)
    return found


def test_a_second_job_times_nothing_and_plans_nothing(fleet, store, tmp_path):
    first = fleet.job(store, tmp_path / "first")
    assert first["kind"] == "planned" and first["profiled"] > 0 and first["searched"] > 0
    second = fleet.job(store, tmp_path / "second")
    assert second == {**first, "profiled": 0, "searched": 0}


def test_a_job_with_times_of_its_own_takes_those_of_the_fleet(fleet, store, tmp_path):
    fleet.train(tmp_path / "second")
    fleet.job(store, tmp_path / "first")
    second = fleet.job(store, tmp_path / "second")
    assert (second["kind"], second["profiled"], second["searched"]) == ("planned", 0, 0)


def test_what_a_job_has_found_it_has_without_the_store(fleet, store, tmp_path):
    for cache in ("first", "second"):
        fleet.job(store, tmp_path / cache)
    shutil.rmtree(store)
    again = fleet.job(store, tmp_path / "second")
    assert (again["kind"], again["profiled"], again["searched"]) == ("planned", 0, 0)


def test_times_that_have_settled_come_first(fleet, store, tmp_path):
    fleet.job(store, tmp_path / "first", repeat=3)
    before = set(rows_of(store))
    for file in (tmp_path / "first").glob("profiles-*.json"):  # some calls are too short to settle
        stored = json.loads(file.read_text())
        for row in stored["profiles"].values():
            row[4] = True
        file.write_text(json.dumps(stored))
    assert fleet.job(store, tmp_path / "first")["searched"] > 0, "settled times are others"
    made = {file: rows for file, rows in rows_of(store).items() if file not in before}
    assert made and all(row[4] for rows in made.values() for row in rows.values())
    for cache in ("first", "second"):
        assert fleet.job(store, tmp_path / cache)["searched"] == 0


def test_on_another_processor_times_are_others(fleet, store, tmp_path, monkeypatch):
    from lowtide._lower import shared_times

    fleet.job(store, tmp_path / "first")
    steps = len(rows_of(store))
    monkeypatch.setattr(shared_times, "processor", lambda: "another")
    second = fleet.job(store, tmp_path / "second")
    assert second["profiled"] > 0 and len(rows_of(store)) == 2 * steps


def test_without_a_shared_store_no_times_are_kept(fleet, tmp_path):
    fleet.train(tmp_path / "cache")
    assert (tmp_path / "cache" / "plans").exists() and rows_of(tmp_path / "cache" / "plans") == {}


def test_a_latency_budget_is_held_against_times_of_this_machine(store, tmp_path, monkeypatch):
    monkeypatch.setenv("LOWTIDE_STORE", str(store))
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path / "cache"))
    model = torch.nn.Linear(8, 8)

    def infer(x):
        return model(x).relu()

    for options, shared in (({"latency_budget": "10s"}, False), ({"memory_budget": 1.0}, True)):
        step = lowtide.compile(infer, model=model, on_unsupported="raise", **options)
        with torch.no_grad():
            step(torch.ones(4, 8))
        step.close()
        assert bool(rows_of(store)) is shared


# -- hostile stores ----------------------------------------------------------------------------------------------------


def tamper(file: Path, rows, kind: str, seed: int) -> None:
    """Changes the times of an entry as the file of profiles is changed, under a checksum that holds."""
    changed = file.with_suffix(".json")
    changed.write_text(json.dumps({"environment": "", "profiles": rows, "outside": {}}))
    PROFILE_KINDS[kind](changed, random.Random(seed))
    text = changed.read_bytes()
    with contextlib.suppress(Exception):
        text = json.dumps(json.loads(text)["profiles"]).encode()
    file.write_bytes(sealed(file.stem, text))
    changed.unlink()


@pytest.fixture(scope="module")
def honest(fleet, tmp_path_factory):
    store = tmp_path_factory.mktemp("honest") / "store"
    fleet.job(store, tmp_path_factory.mktemp("first"))
    return store


@pytest.mark.parametrize("kind", PROFILE_KINDS)
def test_a_hostile_store_changes_no_number(fleet, honest, tmp_path, kind):
    for seed in range(10 if FULL else 1):
        store = tmp_path / f"store-{seed}"
        shutil.copytree(honest, store)
        for file, rows in rows_of(store).items():
            tamper(file, rows, kind, seed)
        outcome = fleet.job(store, tmp_path / f"cache-{seed}")
        print(kind, seed, outcome)
        assert outcome["kind"] == "planned" and outcome["misses"] == 0


@pytest.mark.parametrize("nanos", [0, 1, 10**12])
def test_times_are_believed_and_change_no_number(fleet, honest, tmp_path, nanos):
    store = tmp_path / "store"
    shutil.copytree(honest, store)
    for file, rows in rows_of(store).items():
        for row in rows.values():
            row[2] = nanos
        file.write_bytes(sealed(file.stem, json.dumps(rows).encode()))
    outcome = fleet.job(store, tmp_path / "second")
    assert (outcome["kind"], outcome["profiled"], outcome["misses"]) == ("planned", 0, 0)


def test_what_does_not_hold_is_replaced(fleet, honest, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(honest, store)
    calls = set()
    for file, rows in rows_of(store).items():
        calls |= rows.keys()
        for row in rows.values():
            row[0].append([64, -1, -1])
        file.write_bytes(sealed(file.stem, json.dumps(rows).encode()))
    assert fleet.job(store, tmp_path / "second")["profiled"] == len(calls)
    third = fleet.job(store, tmp_path / "third")
    assert (third["profiled"], third["searched"]) == (0, 0)


# -- processes ---------------------------------------------------------------------------------------------------------


def run_job(store: str, cache: Path, *size: int):
    environment = {**os.environ, "LOWTIDE_STORE": store, "LOWTIDE_CACHE_DIR": str(cache)}
    command = command_of("bench.store.job", *map(str, size))
    done = subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def test_a_second_job_finds_the_plan_in_redis(tmp_path):
    need_redis()
    server = RedisServer(tmp_path)
    try:
        first, second = (run_job(server.url, tmp_path / cache, 8, 64) for cache in ("first", "second"))
    finally:
        server.stop()
    seconds = [job["planning_seconds"] for job in (first, second)]
    print(f"planning: {seconds[0]:.2f} s, {1e3 * seconds[1]:.0f} ms, {seconds[1] / seconds[0]:.2%}")
    assert first["profiled"] > 0 and second["profiled"] == 0
    for same in ("fingerprint", "order", "offsets", "losses"):
        assert first[same] == second[same]
    assert first["within"] and second["within"]
    assert seconds[0] > 1, "a step whose planning takes a while"
    assert seconds[1] <= MOST_SHARE * seconds[0]
