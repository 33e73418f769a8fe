"""Pages that show results: rendered from them, word for word."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench.catalog import find
from bench.lib.result import FOLDER, ChangedByHandError, Result
from bench.page.rendering import TEMPLATES, filled, rendered
from bench.page.results import Results

NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


def test_pages_are_as_rendered() -> None:
    for path, text in rendered(Results()).items():
        assert path.read_text() == text, f"{path.name}: run `python -m bench render`"


def test_every_result_is_shown() -> None:
    asked: set[str] = set()

    class Watched(Results):
        def written(self, name: str, *arguments: Any) -> dict[str, str]:
            asked.add(name)
            return super().written(name, *arguments)

    rendered(Watched())
    assert asked == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_results_are_as_the_command_wrote_them(name: str) -> None:
    result = Result.load(name)
    assert find(result.benchmark) is not None
    assert set(result.measured_at) == {"commit", "date"}
    assert (FOLDER / f"{name}.json").read_text() == result.text + "\n"
    if result.remade:
        assert result.versions["torch"] and result.machine["processor"] and result.seconds is not None


def changed(value: Any) -> Any:
    """With every number a little larger."""
    if isinstance(value, dict):
        return {key: changed(part) for key, part in value.items()}
    if isinstance(value, list):
        return [changed(part) for part in value]
    if isinstance(value, str):
        return re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), value, count=1)
    return value if isinstance(value, bool) or value is None else value * 1.5 + 1


@pytest.mark.parametrize("name", ["step_memory", "order_table", "adapt_table"])
def test_a_changed_result_changes_a_page(name: str, tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    result = Result.load(name)
    figures = result.figures
    if result.remade:  # of one row, its numbers; names stay
        row = {key: part if isinstance(part, str) else changed(part) for key, part in figures[-1].items()}
        figures = [*figures[:-1], row | {"batch": figures[-1].get("batch")}]
    else:
        figures = changed(figures)
    dataclasses.replace(result, figures=figures).save(name, tmp_path)
    before, after = (filled("benchmarks.md.in", Results(folder)) for folder in (FOLDER, tmp_path))
    assert before != after


def test_a_result_changed_by_hand_is_refused(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "step_memory.json"
    content = json.loads(path.read_text())
    content["figures"][0]["eager_bytes"] -= 1  # too little to be seen on the page
    path.write_text(json.dumps(content))
    with pytest.raises(ChangedByHandError):
        rendered(Results(tmp_path))


def test_no_figure_is_written_into_a_template() -> None:
    """But for settings of a benchmark and what others report: no table, no ratio, no amount with a fraction."""
    allowed = {"1.3", "2.6", "0.0", "3.5", "1.25", "35.7"}
    for template in TEMPLATES.glob("*.md.in"):
        text = template.read_text()
        assert "|---" not in text
        assert set(re.findall(r"\d+\.\d+", text)) - allowed <= {"2.13"}, template.name
