"""`python -m bench run fission_magis`: every planner under every limit, and what the page makes of it."""

from __future__ import annotations

import json

import pytest

from bench.__main__ import main
from bench.fission.magis import (
    ABLATIONS,
    LIMITS,
    MAGIS,
    MAGIS_REORDERED,
    MICRO,
    NAMED,
    OURS,
    WHOLE,
    behind,
)
from bench.page.magis import _figures

SEARCHES = (MAGIS, MAGIS_REORDERED)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "fission_magis", "--quick", "--only", "unet", "--only", "gpt_268", "--device", "A100", "--json"]
    assert main(command) == 0
    printed = capsys.readouterr()
    figures = json.loads(printed.out)["figures"]
    rows = figures["rows"]
    assert len(rows) == len(LIMITS) * len((OURS, WHOLE, *NAMED, MICRO, *SEARCHES))
    for row in rows:
        limited = row["memory"] if row["limit_of"] == "memory" else row["time"]
        assert limited is None or row["planner"] in SEARCHES or limited <= row["limit"]
    assert [row["step"] for row in figures["speed"]] == ["gpt_268"] and not figures["ablations"]
    for row in figures["speed"]:
        assert row["states_per_second"] > 0 and row["faster"] > 0
        assert max(row["as_good"], row["as_good_as_mixed"]) <= row["walked"] == 100
    assert any(row["planner"] == MICRO and row["time"] is not None for row in rows)
    assert printed.err.count("| unet | A100 |") == len(rows) // len(LIMITS)
    said = _figures(figures)
    others = [row for row in rows if row["planner"] in (*NAMED, MICRO, *SEARCHES)]
    kept = [row for row in others if (row["memory"] if row["limit_of"] == "time" else row["time"]) is not None]
    assert int(said["limits"]) == len(kept) and int(said["reached"]) == len(kept) - len(
        behind(others + rows[: len(LIMITS)])
    )


def row(planner: str, memory: float | None) -> dict[str, object]:
    where = {"step": "unet", "device": "A100", "limit_of": "time", "limit": 1.05}
    return {**where, "planner": planner, "memory": memory, "time": 1.0}


def test_what_ours_does_not_reach_is_said() -> None:
    rows = [row(OURS, 0.5), row("chen", 0.5), row("rotor", None), row("dtr", 0.4)]
    assert behind(rows) == ["unet, A100, time 1.05: dtr 0.4000, ours 0.5000"]
    rows[0]["memory"] = None
    assert len(behind(rows)) == 2


def test_ablations_are_options_of_the_search() -> None:
    assert set().union(*ABLATIONS.values()) == {"run_again", "split", "levels", "hot_spots_only"}
