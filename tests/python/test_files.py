"""Graphs and plans as files, from Python; and the examples of docs/formats.md."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import lowtide
from lowtide import _core

PAGE = (Path(__file__).parents[2] / "docs/formats.md").read_text().partition("## Buffers")[0]
GRAPH, PLAN, PLAN_WITH_TIERS, PLAN_IN_PARTS, GRAPH_WITH_AXES = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)


def example(tmp_path: Path) -> lowtide.Graph:
    (tmp_path / "example.json").write_text(GRAPH)
    return lowtide.Graph.load(tmp_path / "example.json")


@pytest.mark.parametrize("name", ["graph.json", "graph.json.zst"])
def test_graph_goes_through_a_file(tmp_path: Path, name: str) -> None:
    graph = example(tmp_path)
    graph.save(str(tmp_path / name))
    again = lowtide.Graph.load(tmp_path / name)
    assert again.summary() == graph.summary()
    again.save(tmp_path / "again.json")
    graph.save(tmp_path / "graph.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "graph.json").read_bytes()


def test_examples_are_complete(tmp_path: Path) -> None:
    """What the library writes for the examples is what the page says, defaults aside."""
    graph = example(tmp_path)
    graph.save(tmp_path / "graph.json")
    assert json.loads((tmp_path / "graph.json").read_text()) == json.loads(GRAPH)

    made = lowtide.plan(graph, layout="greedy_by_size")
    made.save(tmp_path / "plan.json")
    written = json.loads((tmp_path / "plan.json").read_text())
    stated = json.loads(PLAN)
    for step in stated["steps"]:
        if step.get("workspace") == 0:
            del step["workspace"]
    assert written == stated

    for text in PLAN, PLAN_WITH_TIERS:
        (tmp_path / "stated.json").write_text(text)
        lowtide.verify(graph, lowtide.Plan.load(tmp_path / "stated.json"))


def test_example_in_parts(tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text(GRAPH_WITH_AXES)
    (tmp_path / "plan.json").write_text(PLAN_IN_PARTS)
    graph = lowtide.Graph.load(tmp_path / "graph.json")
    plan = lowtide.Plan.load(tmp_path / "plan.json")
    lowtide.verify(graph, plan)
    graph.save(tmp_path / "graph.json")
    plan.save(tmp_path / "plan.json")
    assert json.loads((tmp_path / "graph.json").read_text()) == json.loads(GRAPH_WITH_AXES) | {"edges": []}
    written = json.loads((tmp_path / "plan.json").read_text())
    del written["provenance"]
    assert written == json.loads(PLAN_IN_PARTS)

    assert graph.axes(0) == [([128], [128], [(2, 0, 10, False)])]
    assert plan.step_parts() == [(0, 0, 2), (0, 0, 2), (0, 1, 2), (0, 1, 2)]
    assert plan.block_parts() == [(0, 0, 1), (128, 0, 2), (128, 1, 2), (0, 0, 1)]


def test_page_lists_every_field(tmp_path: Path) -> None:
    """The message about an unknown field lists those that there are; the page has a row for each."""
    rows = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| `.*?\|", PAGE, re.MULTILINE))))
    fields = set()
    formats = [("lowtide-graph", 1, lowtide.Graph.load), ("lowtide-plan", 3, lowtide.Plan.load)]
    sections = ["buffers", "values", "ops", "axes", "blocks", "steps", "tiers", "transfers", "figures", "provenance"]
    for kind, version, load in formats:
        for section in sections:
            rubbish = '{"rubbish": 0}'
            text = rubbish if section in ("figures", "provenance") else f"[{rubbish}]"
            (tmp_path / "x.json").write_text(f'{{"format": "{kind}", "version": {version}, "{section}": {text}}}')
            with pytest.raises(lowtide.LowtideError, match="there is no field") as refused:
                load(tmp_path / "x.json")
            if "rubbish" in str(refused.value):
                fields |= set(str(refused.value).split("there are ")[1].split(", "))
    assert fields | {"format"} == rows


def test_a_loaded_plan_is_saved_only_after_verify(tmp_path: Path) -> None:
    graph = example(tmp_path)
    lowtide.plan(graph).save(tmp_path / "plan.json.zst")
    loaded = lowtide.Plan.load(tmp_path / "plan.json.zst")
    with pytest.raises(lowtide.InvalidPlanError, match=r"lowtide\.verify\(graph, plan\) first") as refused:
        loaded.save(tmp_path / "again.json")
    assert refused.value.code == "E605"
    assert not (tmp_path / "again.json").exists()
    lowtide.verify(graph, loaded)
    loaded.save(tmp_path / "again.json")
    assert lowtide.Plan.load(tmp_path / "again.json").summary() == lowtide.plan(graph).summary()


def test_errors_have_the_class_of_what_was_asked_for(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    with pytest.raises(lowtide.InvalidGraphError, match="is no lowtide-graph"):
        lowtide.Graph.load(other)
    with pytest.raises(lowtide.InvalidPlanError, match="is no lowtide-plan"):
        lowtide.Plan.load(other)
    with pytest.raises(FileNotFoundError, match=r"none\.json"):
        lowtide.Plan.load(tmp_path / "none.json")
    with pytest.raises(IsADirectoryError):
        lowtide.Graph.load(tmp_path)
    with pytest.raises(OSError, match="E604"):
        example(tmp_path).save(tmp_path / "none" / "graph.json")
    with pytest.raises(TypeError):
        lowtide.Graph.load(3)  # type: ignore[arg-type]


def test_other_writers(tmp_path: Path) -> None:
    """Keys sorted, indented, escaped: all the same graph."""
    graph = example(tmp_path)
    for options in [{"sort_keys": True}, {"indent": 4}, {"separators": (",", ":")}]:
        (tmp_path / "x.json").write_text(json.dumps(json.loads(GRAPH), **options))
        assert lowtide.Graph.load(tmp_path / "x.json").summary() == graph.summary()


def test_names_of_any_language(tmp_path: Path) -> None:
    builder = _core.GraphBuilder()
    builder.buffer(64, resident=True, initial=True, role="parameter", name='é "漢字" \\ \n \x00 🜁')
    graph = builder.build()
    graph.save(tmp_path / "graph.json")
    assert lowtide.Graph.load(tmp_path / "graph.json").buffer_name(0) == graph.buffer_name(0)


def test_a_plan_names_its_graph(tmp_path: Path) -> None:
    graph = example(tmp_path)
    lowtide.plan(graph).save(tmp_path / "plan.json")
    (tmp_path / "renamed.json").write_text(GRAPH.replace('"weight"', '"bias"'))
    (tmp_path / "longer.json").write_text(GRAPH.replace("2000", "2001"))
    renamed, longer = lowtide.Graph.load(tmp_path / "renamed.json"), lowtide.Graph.load(tmp_path / "longer.json")
    assert renamed.fingerprint == graph.fingerprint != longer.fingerprint
    plan = lowtide.Plan.load(tmp_path / "plan.json")
    lowtide.verify(renamed, plan)
    with pytest.raises(lowtide.InvalidPlanError, match="the plan was made for another graph"):
        lowtide.verify(longer, plan)


@pytest.mark.parametrize(
    ("load", "error"), [(lowtide.Graph.load, "InvalidGraphError"), (lowtide.Plan.load, "InvalidPlanError")]
)
def test_files_without_end(tmp_path: Path, load: Callable[[Path], object], error: str) -> None:
    (tmp_path / "hole.json").write_text(GRAPH)
    os.truncate(tmp_path / "hole.json", 4 << 30)
    for endless, byte in [(Path("/dev/zero"), 0), (tmp_path / "hole.json", len(GRAPH.encode()))]:
        with pytest.raises(getattr(lowtide, error), match=f"E603: .*expected UTF-8 text, but byte {byte} is zero"):
            load(endless)
    os.truncate(tmp_path / "hole.json", 1 << 40)
    with pytest.raises(lowtide.LimitError, match="E402"):
        load(tmp_path / "hole.json")


WAITING = """
import signal, sys, threading, time
import lowtide

main = threading.main_thread().ident

def interrupt():
    with open(sys.argv[1], "wb"):
        time.sleep(0.3)
        signal.pthread_kill(main, signal.SIGUSR1)  # whose handler raises nothing: reading goes on
        time.sleep(0.3)
        signal.pthread_kill(main, signal.SIGINT)
        time.sleep(60)

signal.signal(signal.SIGUSR1, lambda *given: print("seen", flush=True))
threading.Thread(target=interrupt, daemon=True).start()
lowtide.Graph.load(sys.argv[1])
"""


def test_waiting_for_a_pipe_can_be_interrupted(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    command = [sys.executable, "-c", WAITING, str(tmp_path / "pipe")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGINT and done.stderr.endswith("KeyboardInterrupt\n"), done.stderr
    assert done.stdout == "seen\n"
