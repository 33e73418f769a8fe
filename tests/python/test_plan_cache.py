"""Plans on disk: found again, and planned anew where a file holds something else than planning would give."""

import json
import shutil

import pytest
import torch
from torch import nn

import lowtide
from lowtide._base.cache_directory import CacheDirectory
from lowtide._compile import plan_cache
from lowtide._compile.plan_cache import PlanCache


@pytest.fixture(scope="module")
def graph():
    model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(6)])

    def function(x):
        loss = model(x).pow(2).mean()
        loss.backward()
        model.zero_grad()
        return loss.detach()

    return lowtide.capture(function, model=model, example=(torch.ones(256, 64),), device="A100")


@pytest.fixture
def planned(monkeypatch):
    """How often something was planned, not found."""
    calls = []
    plan_in_sight = plan_cache.plan_in_sight
    monkeypatch.setattr(
        plan_cache, "plan_in_sight", lambda *args, **kwargs: (calls.append(kwargs), plan_in_sight(*args, **kwargs))[1]
    )
    return calls


def needed(plan):
    return plan.resident_bytes + plan.arena_bytes


def file_of(directory, cache, graph, *budgets):
    """The file of the plan within these budgets, which is made."""
    before = set(directory.iterdir())
    cache.get_or_plan(graph, *budgets)
    (made,) = set(directory.iterdir()) - before
    return made


def test_a_plan_is_made_once(tmp_path, graph, planned):
    plans = [PlanCache(CacheDirectory(tmp_path)).get_or_plan(graph, 0.9, None) for _ in range(2)]
    assert len(planned) == 1
    assert plans[0].offsets() == plans[1].offsets()


@pytest.mark.parametrize("kind", ["bytes", "share", "time", "time alone"])
def test_a_plan_that_does_not_keep_the_budgets_is_made_anew(tmp_path, graph, planned, kind):
    free = lowtide.plan(graph)
    eager = graph.resident_bytes + graph.program_peak_bytes
    least = (graph.resident_bytes + free.arena_bytes * 3 // 5) / eager
    large, small = {
        "bytes": ((needed(free), None), (int(least * eager), None)),
        "share": ((1.0, None), (least, None)),
        "time": ((int(least * eager), 10 * free.time_ns), (needed(free), free.time_ns)),
        "time alone": ((None, 10 * free.time_ns), (None, free.time_ns)),
    }[kind]
    cache = PlanCache(CacheDirectory(tmp_path))
    files = [file_of(tmp_path, cache, graph, *budgets) for budgets in (large, small)]
    honest = lowtide.Plan.load(files[1])
    shutil.copy(*files)  # a plan that verify accepts
    found = cache.get_or_plan(graph, *small)
    assert len(planned) == 3
    assert (found.order, found.offsets()) == (honest.order, honest.offsets())
    cache.get_or_plan(graph, *small)
    assert len(planned) == 3, "and the file is right again"


def permuted(stored):
    """The same plan, its blocks the other way round."""
    last = len(stored["blocks"]) - 1
    stored["blocks"].reverse()
    for step in stored["steps"]:
        for operands in ("reads", "writes"):
            step[operands] = [last - block for block in step.get(operands, [])]


def far_away(stored):
    """Correct in every figure, and larger than any memory."""
    stored["figures"]["arena"] += 1 << 50
    for block in stored["blocks"]:
        if "offset" in block:
            block["offset"] += 1 << 50


@pytest.mark.parametrize("change", [permuted, far_away])
def test_a_plan_of_another_form_is_made_anew(tmp_path, graph, planned, change):
    cache = PlanCache(CacheDirectory(tmp_path))
    budgets = (None, 2 * lowtide.plan(graph).time_ns)
    file = file_of(tmp_path, cache, graph, *budgets)
    honest = cache.get_or_plan(graph, *budgets)
    honest.save(tmp_path / "plain.json")
    stored = json.loads((tmp_path / "plain.json").read_text())
    change(stored)
    file.write_text(json.dumps(stored))
    lowtide.verify(graph, lowtide.Plan.load(file))
    found = cache.get_or_plan(graph, *budgets)
    assert len(planned) == 2
    assert found.offsets() == honest.offsets()


@pytest.mark.parametrize("content", [b"", b"{", b"\x28\xb5\x2f\xfd", b"\xff" * 100, b"[" * 100_000])
def test_a_damaged_file_is_made_anew(tmp_path, graph, planned, content):
    cache = PlanCache(CacheDirectory(tmp_path))
    file = file_of(tmp_path, cache, graph, 0.9, None)
    file.write_bytes(content)
    cache.get_or_plan(graph, 0.9, None)
    assert len(planned) == 2
