"""`python -m bench`: every benchmark is listed, runs by name, and says where its figures come from."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from bench import running
from bench.__main__ import main
from bench.catalog import CATALOG
from bench.lib import provenance
from bench.lib.result import ChangedByHandError, Result, plain

ROOT = Path(__file__).parents[2]
FIELDS = {"benchmark", "options", "remade", "measured_at", "machine", "versions", "seconds", "figures", "digest"}


def test_every_benchmark_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Those are the modules with a function `run`."""
    modules = [path for path in (ROOT / "bench").glob("*/*.py") if path.stem != "__init__"]
    found = {
        str(path.relative_to(ROOT / "bench"))
        for path in modules
        if any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in ast.parse(path.read_text()).body)
    }
    assert found == {benchmark.path for benchmark in CATALOG}
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    assert all(f"{benchmark.name}\n    {benchmark.compares}\n" in text for benchmark in CATALOG)


@pytest.mark.parametrize("name", [benchmark.name for benchmark in CATALOG])
def test_every_benchmark_shows_its_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", name, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "--save" in text and f"python -m bench run {name}" in text.partition("\n\n")[2], "its own text shows it"


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "nothing"])
    assert "no benchmark 'nothing'" in capsys.readouterr().err


def test_a_result_says_where_it_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "order_irregular", "--ops", "60", "--seeds", "1", "--json"]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert set(result) == FIELDS
    assert result["options"] == {"ops": 60, "seeds": 1} and result["remade"]
    assert set(result["measured_at"]) == {"commit", "date"} and result["machine"]["cores"] > 0
    assert len(result["figures"]) == 8 and "proven: 8 of 8" in printed.err


def test_only_a_clean_tree_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "order_irregular", "--ops", "60", "--seeds", "1", "--save", "--as", "small"]
    monkeypatch.setattr(provenance, "uncommitted", lambda: ["src/a.cc"])
    with pytest.raises(SystemExit):
        main(command)
    assert "commit first" in capsys.readouterr().err
    monkeypatch.setattr(provenance, "uncommitted", lambda: [])
    monkeypatch.setattr(running, "FOLDER", tmp_path)
    assert main(command) == 0
    assert len(Result.load("small", tmp_path).figures) == 8


def test_a_result_is_read_as_it_was_written_and_not_by_hand(tmp_path: Path) -> None:
    figures = plain({"rows": [{"a": 1, "b": [1.23456789, None]}, {}], "name": "x"})
    result = Result("step_time", {}, True, {"commit": "c"}, {}, {}, 1.5, figures)
    path = result.save("x", tmp_path)
    assert Result.load("x", tmp_path) == result
    path.write_text(path.read_text().replace("1.23457", "1.23456"))
    with pytest.raises(ChangedByHandError, match=r"x\.json"):
        Result.load("x", tmp_path)
