"""What is kept on disk of regions: who compiles the same model again plans nothing and runs no operator alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from backend_models import Deep, Language, Pair, step, vectors, words
from lowtide._backend import recording
from lowtide._base import progress
from lowtide._lower import profiles


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Graphs that a plan was searched for, with nothing on disk at the beginning."""
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path))
    searched: list[Any] = []
    search = progress._core.plan

    def plan(graph: Any, **options: Any) -> Any:
        searched.append(graph)
        return search(graph, **options)

    monkeypatch.setattr(progress._core, "plan", plan)
    return searched


@pytest.mark.parametrize("budget", [None, 0.7])
def test_a_region_that_was_planned_before_is_found_on_disk(budget: float | None, plans: list[Any], monkeypatch: Any):
    options = {} if budget is None else {"memory_budget": budget}
    torch.manual_seed(0)
    pair = Pair(Deep(), **options)
    pair.both(step(lambda: vectors(512)))
    assert plans
    plans.clear()
    monkeypatch.setattr(profiles, "_seen_here", {})  # as in another process
    again = Pair(Deep(), **options)
    again.both(step(lambda: vectors(512)))
    (region,) = again.together().regions
    assert not plans and region._cache.taken == 0


def test_a_region_that_another_machine_has_planned_is_found_in_the_store(
    plans: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LOWTIDE_STORE", str(tmp_path / "store"))
    torch.manual_seed(0)
    pair = Pair(Deep(), memory_budget=0.7)
    pair.both(step(lambda: vectors(512)))
    assert plans
    plans.clear()
    monkeypatch.setattr(profiles, "_seen_here", {})
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path / "another machine"))
    again = Pair(Deep(), memory_budget=0.7)
    again.both(step(lambda: vectors(512)))
    (region,) = again.together().regions
    assert not plans and region._cache.taken == 0


def test_a_line_says_how_far_recording_has_come(monkeypatch: pytest.MonkeyPatch):
    shown: list[str] = []

    class Line:
        def __init__(self, title: str) -> None:
            assert title == "recording"

        def show(self, found: str) -> None:
            shown.append(found)

        def clear(self) -> None:
            shown.append("")

    monkeypatch.setattr(recording, "ProgressLine", Line)
    Pair(Language()).both(step(words))
    *calls, last = shown
    assert last == "" and calls[-1] == f"call {len(calls)} of {len(calls)}"
