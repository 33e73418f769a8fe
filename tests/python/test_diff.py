"""`lowtide.diff`, `lowtide diff` and `lowtide check`: a planted leak is named by its line, and fails the check."""

from __future__ import annotations

import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import lowtide
from lowtide._diff import check
from lowtide._diff import program as diff_program
from lowtide._diff.holders import loaded, saved
from lowtide._diff.versions import Asked, version_named
from test_report import HOSTILE, KIB, training_graph

# The second version begins with two more lines, and keeps what each layer makes until the loss.
BEFORE = """
import torch

def make():
    model = torch.nn.ModuleList([torch.nn.Linear(64, 64) for _ in range(6)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        kept = []
        for layer in model:
            x = torch.relu(layer(x))
            noise = x.detach() * 3
            kept = [noise.sum()]
        loss = x.sum() + kept[-1]
        loss.backward()
        optimizer.step()
        return loss.detach()

    return {"function": step, "model": model, "optimizer": optimizer, "example": (torch.zeros(256, 64),)}
"""
LEAK = "            kept.append(noise)"
AFTER = "import math\nimport os\n" + BEFORE.replace("            kept = [noise.sum()]", LEAK).replace(
    "kept[-1]", "sum(each.sum() for each in kept)"
)
LEAKED = 256 * 64 * 4  # bytes of each layer's


@pytest.fixture
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two commits of a module, in a folder of it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org"]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    for text, tag in ((BEFORE, "old"), (AFTER, "new")):
        (tmp_path / "code" / "train.py").write_text(text)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", tag], check=True)
        subprocess.run([*git, "tag", tag], check=True)
    monkeypatch.chdir(tmp_path / "code")
    return tmp_path / "code"


def test_a_planted_leak_is_named(versions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diff_program.run(["--step", "train.py:make", "old", ".", "--json", "-o", "page.html"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["gain_bytes"] == answer["new_bytes"] - answer["old_bytes"] > 0
    assert answer["gain_bytes"] == sum(row["gain_bytes"] for row in answer["rows"])
    row = answer["rows"][0]
    assert row["line"] == "noise = x.detach() * 3" and row["op"].startswith("aten.mul")
    number = AFTER.splitlines().index("            noise = x.detach() * 3") + 1
    assert row["source"] == f"train.py:{number}" and row["new_bytes"] - row["old_bytes"] >= 4 * LEAKED
    # The parameters are where they were, and what only moved by two lines is not there.
    assert not [row for row in answer["rows"] if row["kind"] == "parameter"]
    places = [(row["kind"], row["op"], row["module"], row["line"]) for row in answer["rows"]]
    assert len(places) == len(set(places))
    assert "noise = x.detach() * 3" in Path("page.html").read_text()


def test_a_check_fails_on_it_and_passes_without(versions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (versions / "train.py").write_text(BEFORE)
    assert check.run(["train.py:make", "--save", "baseline.json"]) == 0
    first = capsys.readouterr().out
    assert first.startswith("## Peak memory of `train.py:make`\n\n**Passes**: as low as it is to be.\n")
    assert check.run(["train.py:make", "--against", "baseline.json"]) == 0
    capsys.readouterr()
    (versions / "train.py").write_text(AFTER)
    assert check.run(["train.py:make", "--against", "baseline.json", "--peak-below", "1GiB"]) == 1
    said = capsys.readouterr().out
    assert "**Fails**: the peak has gained " in said
    first_row = next(line for line in said.splitlines() if line.startswith("| +"))
    assert "`noise = x.detach() * 3`" in first_row and "`train.py:" in first_row
    assert check.run(["train.py:make", "--against", "baseline.json", "--tolerance", "1GiB"]) == 0
    assert check.run(["train.py:make", "--peak-below", "1KiB", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (answer["ok"], answer["passed"]) == (True, False) and "above 1KiB" in answer["failures"][0]


def test_graphs_whose_lines_moved_are_the_same() -> None:
    same = lowtide.diff(training_graph(4), training_graph(4))
    assert (same.gain_bytes, same.rows) == (0, [])
    found = lowtide.diff(training_graph(4), training_graph(6))
    assert found.gain_bytes == sum(row.gain_bytes for row in found.rows) == 8 * KIB
    assert {row.place for row in found.rows} == {"layer.py:5", "layer.py:6"}
    assert str(found).startswith("peak      32.00 KiB before, 40.00 KiB now: +8.00 KiB in eager PyTorch\n")
    back = lowtide.diff(training_graph(6), training_graph(4))
    assert back.gain_bytes == -8 * KIB and "-4.00 KiB" in str(back)


def test_a_line_that_moved_with_as_many_bytes_is_no_change() -> None:
    def graph_with(line: int, size: int) -> lowtide.Graph:
        builder = lowtide._core.GraphBuilder()
        made = builder.buffer(size, resident=False, initial=False, role="activation", name="a")
        builder.op("aten.mm", [], [made], source=f"absent.py:{line}")
        builder.op("aten.sum", [builder.value(made, "uint8", [size])], [], source="absent.py:99")
        return builder.build()

    assert lowtide.diff(graph_with(1, 64), graph_with(5, 64)).rows == []
    changed = lowtide.diff(graph_with(1, 64), graph_with(5, 128))
    assert [(row.place, row.gain_bytes) for row in changed.rows] == [("absent.py:5", 128), ("absent.py:1", -64)]


class Frames(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.pages: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "iframe":
            self.pages.append(dict(attrs)["srcdoc"] or "")


def test_the_page_has_both_sides(tmp_path: Path) -> None:
    lowtide.diff(training_graph(4), training_graph(6, name=HOSTILE)).save(tmp_path / "page.html")
    page = Frames((tmp_path / "page.html").read_text())
    assert "script" not in page.tags and "img" not in page.tags and len(page.pages) == 2
    for inner in page.pages:
        assert inner.startswith("<!DOCTYPE html>") and Frames(inner).tags.count("script") == 2


def test_a_saved_peak_comes_back(tmp_path: Path) -> None:
    training_graph(4).save(tmp_path / "step.json")
    peak = version_named(str(tmp_path / "step.json"), Asked(), is_now=True).peak
    content = json.loads(json.dumps(saved(peak)))
    assert loaded(content) == peak
    broken: list[Any] = [
        None, [], {}, "x", 3, {**content, "format": "x"}, {**content, "version": 2}, {**content, "peak_bytes": 1},
        {**content, "peak_bytes": "1"}, {**content, "held": [{}]}, {**content, "held": 1}, {**content, "held": []},
    ]  # fmt: skip
    for one in broken:
        with pytest.raises(ValueError):
            loaded(one)


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("step.json", 2, "nothing to check"),
        ("step.json --peak-below much", 2, "E502"),
        ("step.json --against absent.json", 5, "FileNotFoundError"),
        ("step.json --against step.json", 2, "step.json: expected a lowtide-peak of version 1"),
        ("absent.json --peak-below 1GiB", 5, "FileNotFoundError"),
    ],
)
def test_what_check_refuses(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    training_graph(2).save("step.json")
    assert check.run(line.split()) == code
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith(f"lowtide: error: {message}")


def test_what_diff_refuses(versions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line, code, message in [
        ("--step train.py:make absent .", 2, "git has no commit absent here"),
        ("--step train.py:absent . .", 5, "CaptureError: train.py:absent in "),
        ("absent.json absent.json", 5, "FileNotFoundError"),
        ("old", 2, "the following arguments are required: NEW"),
    ]:
        assert diff_program.run(line.split()) == code, line
        assert capsys.readouterr().err.startswith(f"lowtide: error: {message}"), line
    with pytest.raises(TypeError, match="expected two graphs, got str"):
        lowtide.diff("a", "b")  # type: ignore[arg-type]


def test_markdown_stays_a_table() -> None:
    assert check._code("a | b ` c\n| d") == "`a \\| b ' c \\| d`"
    assert re.fullmatch(r"`[^`\n]*`", check._code(HOSTILE))


def test_the_workflow_calls_what_is_there() -> None:
    import yaml

    root = Path(__file__).parents[2]
    workflow = yaml.safe_load((root / "examples" / "peak_check.yml").read_text())
    command = workflow["jobs"]["peak"]["steps"][-1]["run"]
    arguments = command.partition("|")[0].split()
    assert arguments[:2] == ["lowtide", "check"]
    options = check._parser().parse_args(arguments[2:])
    assert (options.step, options.peak_below, options.against) == ("train.py:training", "20GiB", "baseline.json")
