"""LOWTIDE_LOGS and LOWTIDE_TRACE: what is decided is told by topic, and nothing is where nobody asked."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import lowtide
from lowtide._base import decisions
from lowtide._base.cache_directory import CacheDirectory
from lowtide._base.decisions import TOPICS, decided, detail, is_wanted
from lowtide._compile.plan_cache import PlanCache
from lowtide._store.directory import DirectoryStore
from test_report import training_graph


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("LOWTIDE_LOGS", raising=False)
    monkeypatch.delenv("LOWTIDE_TRACE", raising=False)
    is_wanted("plan")
    yield
    monkeypatch.delenv("LOWTIDE_LOGS", raising=False)
    is_wanted("plan")
    monkeypatch.setattr(decisions, "_untraced", "")


def told(folder: Path) -> list[dict[str, Any]]:
    """All lines of all processes."""
    return [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]


def train() -> lowtide.CompiledStep:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).relu().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = lowtide.compile(step, model=model, optimizer=optimizer, memory_budget="95%")
    for _ in range(2):
        compiled(torch.ones(32, 64))
    return compiled


def test_the_trace_has_a_line_for_each_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LOWTIDE_TRACE", str(tmp_path / "new" / "trace"))
    step = train()
    found = told(tmp_path / "new" / "trace")
    assert all({"time", "pid", "topic", "decision"} <= line.keys() and line["topic"] in TOPICS for line in found)
    by_topic = {line["topic"]: line for line in found}
    assert {"capture", "profile", "cache", "plan", "order", "layout", "recompute"} <= by_topic.keys()
    assert step.plan is not None and step.graph is not None
    planned = by_topic["plan"]
    assert (planned["decision"], planned["graph"]) == ("planned", step.graph.fingerprint)
    assert (planned["arena_bytes"], planned["bound_bytes"]) == (step.plan.arena_bytes, step.plan.bound_bytes)
    assert by_topic["capture"]["reason"] and by_topic["capture"]["function"] == "train.<locals>.step"
    assert by_topic["profile"]["run_alone"] > 0 and by_topic["layout"]["name"]


def test_regions_of_torch_compile_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWTIDE_TRACE", str(tmp_path))
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    torch.compile(model, backend="lowtide")(torch.ones(4, 8)).sum().backward()
    found = told(tmp_path)
    (captured,) = (line for line in found if line["topic"] == "capture")
    assert (captured["number"], captured["reason"]) == (1, "first call")
    assert next(line["decision"] for line in found if line["topic"] == "plan") == "planned"


def test_plans_on_disk_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWTIDE_TRACE", str(tmp_path / "trace"))
    plans = PlanCache(DirectoryStore(CacheDirectory(tmp_path / "plans")))
    for _ in range(2):
        plans.get_or_plan(training_graph(8), 0.9, None)
    found = [(line["topic"], line["decision"]) for line in told(tmp_path / "trace")]
    assert found[0] == ("cache", "plan missed") and found[-1] == ("cache", "plan found")
    assert found.count(("plan", "planned")) == 1


def test_what_runs_eager_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWTIDE_TRACE", str(tmp_path))
    model = torch.nn.Linear(4, 4)

    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.utils.data.default_generator  # type: ignore[attr-defined, no-any-return]

    with pytest.raises(lowtide.CaptureError):
        lowtide.compile(step, model=model, memory_budget="90%")(torch.ones(1, 4))
    (line,) = (line for line in told(tmp_path) if line["topic"] == "run")
    assert line["decision"] == "refused" and "default_generator" in line["reason"]


def test_a_budget_that_cannot_be_kept_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWTIDE_TRACE", str(tmp_path))
    with pytest.raises(lowtide.InfeasibleError):
        lowtide.plan(training_graph(4), memory_budget=100)
    (line,) = told(tmp_path)
    assert (line["decision"], line["code"], line["memory_budget"]) == ("infeasible", "E301", 100)


SCRIPT = """
import sys, lowtide
graph = lowtide.Graph.load(sys.argv[1])
lowtide.plan(graph, memory_budget="70%")
"""


def run(tmp_path: Path, **environment: str) -> str:
    training_graph(24).save(tmp_path / "step.json")
    line = [sys.executable, "-c", SCRIPT, str(tmp_path / "step.json")]
    done = subprocess.run(line, env={**os.environ, **environment}, check=True, capture_output=True, text=True)
    assert done.stdout == ""
    return done.stderr


def test_lines_of_the_topics_that_are_asked_for(tmp_path: Path) -> None:
    assert run(tmp_path) == ""
    lines = run(tmp_path, LOWTIDE_LOGS="plan,order").splitlines()
    assert [line.partition(":")[0] for line in lines] == ["lowtide.plan", "lowtide.order"]
    assert "lowtide.plan: planned: graph=" in lines[0] and ", memory_budget=0.7, " in lines[0]
    every = run(tmp_path, LOWTIDE_LOGS="all:debug").splitlines()
    assert {line.partition(":")[0] for line in every} == {
        f"lowtide.{topic}" for topic in ("plan", "order", "layout", "recompute")
    }
    wrong = run(tmp_path, LOWTIDE_LOGS="plan,plans,order:loud").splitlines()
    assert wrong[0].startswith("lowtide: LOWTIDE_LOGS: expected capture, ") and wrong[0].endswith("plans, order:loud")
    assert [line.partition(":")[0] for line in wrong[1:]] == ["lowtide.plan"]


def test_debug_tells_what_is_found_on_the_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for asked, expected in (("order", []), ("order:debug", ["lowtide.order: searching: found=x"])):
        monkeypatch.setenv("LOWTIDE_LOGS", asked)
        caplog.clear()
        detail("order", "searching", found="x")
        detail("plan", "searching", found="x")
        assert caplog.messages == expected


def test_loggers_have_the_levels_that_people_give_them(caplog: pytest.LogCaptureFixture) -> None:
    decided("plan", "planned", operators=3)
    assert caplog.messages == []
    caplog.set_level(logging.INFO, "lowtide.plan")
    decided("plan", "planned", operators=3, budget=None)
    assert caplog.messages == ["lowtide.plan: planned: operators=3"]


def test_a_folder_that_cannot_be_written_to_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LOWTIDE_TRACE", str(tmp_path / "file"))
    for _ in range(2):
        assert lowtide.plan(training_graph(2)).peak_bytes
    (line,) = caplog.messages
    assert line.startswith(f"lowtide: LOWTIDE_TRACE: nothing is written to {tmp_path / 'file'}: ")


def test_words_of_every_kind_are_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWTIDE_TRACE", str(tmp_path))
    decided("run", "eager", reason="a\nb\udc80", extents=(1, 2), path=tmp_path, nothing=None)
    (line,) = told(tmp_path)
    assert (line["reason"], line["extents"], line["nothing"]) == ("a\nb\udc80", [1, 2], None)


def test_numbers_are_the_same_with_and_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = training_graph(24)
    plain = lowtide.plan(graph, memory_budget="70%")
    monkeypatch.setenv("LOWTIDE_TRACE", str(tmp_path))
    monkeypatch.setenv("LOWTIDE_LOGS", "all:debug")
    traced = lowtide.plan(graph, memory_budget="70%")
    assert (plain.order, plain.offsets()) == (traced.order, traced.offsets())
