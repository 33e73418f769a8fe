"""`lowtide.export` and the program: a trace that is valid, and a snapshot that PyTorch's own viewer reads."""

from __future__ import annotations

import base64
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch.cuda import _memory_viz as viewer

import lowtide
from lowtide._base.graph_file import GraphFile
from lowtide._export import program
from lowtide._report.timeline import planned_bytes, timeline_of
from test_report import HOSTILE, MAKER, in_parts, plans_of, random_graph, training_graph

NUMBER = (int, float)
FIELDS = {  # of the Trace Event Format, by phase: what an event must have
    "M": {"name": str, "pid": int, "args": dict},
    "X": {"name": str, "cat": str, "pid": int, "tid": int, "ts": NUMBER, "dur": NUMBER, "args": dict},
    "C": {"name": str, "pid": int, "ts": NUMBER, "args": dict},
    "b": {"name": str, "cat": str, "id": int, "pid": int, "ts": NUMBER},
    "e": {"name": str, "cat": str, "id": int, "pid": int, "ts": NUMBER},
}


def some_plans() -> list[tuple[lowtide.Graph, lowtide.Plan]]:
    """In program order, better, with recompute, with swap; of random graphs and of chains."""
    chain = training_graph(24, size=1 << 20, workspace=512)
    made = [(chain, plan) for plan in plans_of(chain)]
    made.append((chain, lowtide.plan(chain, memory_budget="60%", link="100000GB/s")))
    assert made[-1][1].transfers() and any(len(plan.order) > chain.num_ops for _, plan in made)
    made.append(in_parts())
    for seed in range(20):
        graph = random_graph(seed)
        made += [(graph, plan) for plan in plans_of(graph)]
    return made


# -- the trace --------------------------------------------------------------------------------------------------------


def checked(content: str) -> dict[str, Any]:
    """Raises unless it is a valid trace: strict JSON, and events as the format has them."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    trace: dict[str, Any] = json.loads(content, parse_constant=refuse)
    assert isinstance(trace["traceEvents"], list) and trace["displayTimeUnit"] in ("ms", "ns")
    ends: dict[tuple[int, int], float] = {}
    opened: dict[tuple[str, int], float] = {}
    for event in trace["traceEvents"]:
        for name, kind in FIELDS[event["ph"]].items():
            assert isinstance(event[name], kind) and not isinstance(event[name], bool), (event, name)
        assert event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0
        if event["ph"] == "X":  # of a thread: one after the other
            thread = (event["pid"], event["tid"])
            assert event["ts"] >= ends.get(thread, 0) - 1e-6
            ends[thread] = event["ts"] + event["dur"]
        elif event["ph"] == "C":
            assert event["args"] and all(isinstance(value, int) and value >= 0 for value in event["args"].values())
        elif event["ph"] == "b":
            assert opened.setdefault((event["cat"], event["id"]), event["ts"]) == event["ts"]
        elif event["ph"] == "e":
            assert opened.pop((event["cat"], event["id"])) <= event["ts"]
    assert not opened
    return trace


def test_the_trace_is_valid_and_adds_up(tmp_path: Path) -> None:
    for graph, plan in some_plans():
        lowtide.export(graph, plan, path=tmp_path / "trace.json")
        trace = checked((tmp_path / "trace.json").read_text())
        timeline = timeline_of("", graph, GraphFile(graph), plan)
        run = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        assert [event["name"] for event in run] == [graph.op_name(op) for op in plan.order]
        assert sum(event["dur"] for event in run) == pytest.approx(sum(timeline.times) / 1000)
        again = 0 if plan.step_parts() else len(plan.order) - len(set(plan.order))
        assert sum(event["cat"] == "again" for event in run) == again
        assert sum("part" in event["args"] for event in run) == sum(count > 1 for _, _, count in plan.step_parts())
        counted = [sum(event["args"].values()) for event in trace["traceEvents"] if event["ph"] == "C"]
        assert max(counted) == plan.peak_bytes + plan.resident_bytes and counted[-1] == 0
        moved = [event for event in trace["traceEvents"] if event["ph"] == "b"]
        assert len(moved) == len(plan.transfers())


def test_a_step_without_times_takes_a_microsecond_for_each_operator(tmp_path: Path) -> None:
    builder = lowtide._core.GraphBuilder()
    made = builder.buffer(64, resident=False, initial=False, role="activation", name="a")
    builder.op("first", [], [made])
    builder.op("second", [builder.value(made, "uint8", [64])], [])
    lowtide.export(builder.build(), path=tmp_path / "trace.json")
    trace = checked((tmp_path / "trace.json").read_text())
    assert [(event["ts"], event["dur"]) for event in trace["traceEvents"] if event["ph"] == "X"] == [(0, 1), (1, 1)]
    assert trace["otherData"]["times"].startswith("none")


# -- the snapshot -----------------------------------------------------------------------------------------------------


def test_the_snapshot_is_what_the_plan_does(tmp_path: Path) -> None:
    for graph, plan in some_plans():
        lowtide.export(graph, plan, path=tmp_path / "plan.pickle")
        found = lowtide.snapshot(tmp_path / "plan.pickle").figures()
        assert found["complete"] and found["peak_requested_bytes"] == plan.peak_bytes + plan.resident_bytes
        assert found["peak_reserved_bytes"] == found["reserved_bytes"] == plan.arena_bytes + plan.resident_bytes
        alive = planned_bytes(timeline_of("", graph, GraphFile(graph), plan))
        assert found["allocations"] >= len([size for size in alive if size])


def test_pytorchs_viewer_opens_it(tmp_path: Path) -> None:
    """Its own functions, which fail where sizes of blocks do not add up."""
    for graph, plan in some_plans()[:12]:
        path = tmp_path / "plan.pickle"
        lowtide.export(graph, plan, path=path)
        snapshot = pickle.loads(path.read_bytes())
        summary = viewer.segsum(snapshot)
        assert f"segments: {len(snapshot['segments'])}\n" in summary
        told = viewer.trace(snapshot)
        assert f"{len(snapshot['device_traces'][0])} entries\n" in told and "cudaMalloc" in told
        flames = viewer.memory(snapshot, format_flamegraph=str)
        assert (
            sum(int(line.rpartition(" ")[2]) for line in flames.splitlines()) == plan.arena_bytes + plan.resident_bytes
        )
        assert viewer.segments(snapshot, format_flamegraph=str).count("\n") == flames.count("\n")
        for plot in (viewer.trace_plot, viewer.segment_plot):
            (inside,) = re.findall(r'"base64": "([^"]+)"', plot(snapshot))
            assert pickle.loads(base64.b64decode(inside)) == snapshot


def test_pytorchs_viewer_opens_it_as_a_program(tmp_path: Path) -> None:
    graph = training_graph(6)
    lowtide.export(graph, path=tmp_path / "plan.pickle")
    for command in ("trace_plot", "segment_plot"):
        line = [sys.executable, viewer.__file__, command, "plan.pickle", "-o", f"{command}.html"]
        subprocess.run(line, cwd=tmp_path, check=True, capture_output=True)
        assert "MemoryViz.js" in (tmp_path / f"{command}.html").read_text()
    line = [sys.executable, viewer.__file__, "stats", "plan.pickle"]
    assert "total_reserved" in subprocess.run(line, cwd=tmp_path, check=True, capture_output=True, text=True).stdout


def test_instructions_are_those_that_the_viewer_knows(tmp_path: Path) -> None:
    """The page at pytorch.org/memory_viz has a reader of its own, which takes protocol 4 at most and plain data."""
    import pickletools

    lowtide.export(training_graph(6), path=tmp_path / "plan.pickle")
    known = "APPENDS BINGET BININT BININT1 BININT2 EMPTY_DICT EMPTY_LIST FRAME LONG1 LONG_BINGET MARK MEMOIZE PROTO "
    known += "SETITEMS SHORT_BINUNICODE STOP TUPLE2 APPEND NEWFALSE BINUNICODE NONE"
    opcodes = {
        (opcode.name, argument) for opcode, argument, _ in pickletools.genops((tmp_path / "plan.pickle").read_bytes())
    }
    assert {name for name, _ in opcodes} <= set(known.split()) and ("PROTO", 4) in opcodes
    assert max(argument for name, argument in opcodes if name == "LONG1") < 1 << 53, "numbers of JavaScript"


# -- names, and the program -------------------------------------------------------------------------------------------


def test_what_a_graph_names_stays_text(tmp_path: Path) -> None:
    graph = training_graph(4, name=HOSTILE)
    for name in ("trace.json", "plan.pickle"):
        lowtide.export(graph, path=tmp_path / name, title=HOSTILE)
    assert HOSTILE.strip()[:9] in str(checked((tmp_path / "trace.json").read_text()))
    frames = pickle.loads((tmp_path / "plan.pickle").read_bytes())["device_traces"][0][2]["frames"]
    assert all(isinstance(frame["name"], str) and isinstance(frame["line"], int) for frame in frames)


@pytest.mark.parametrize("name", ["trace.json", "plan.pickle"])
def test_steps_with_next_to_nothing_in_them(tmp_path: Path, name: str) -> None:
    lowtide.export(lowtide._core.GraphBuilder().build(), path=tmp_path / name)
    assert (tmp_path / name).stat().st_size > 0


def test_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    graph = training_graph(6)
    graph.save("step.json")
    lowtide.plan(graph, memory_budget="80%").save("plan.json")
    assert program.run(["step.json", "plan.json", "-o", "trace.json"]) == 0
    assert capsys.readouterr().out == "written   trace.json\n"
    assert program.run(["step.json", "plan.json", "-o", "plan.pickle", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "output": "plan.pickle"}
    checked(Path("trace.json").read_text())
    Path("maker.py").write_text(MAKER)
    assert program.run(["maker.py:make", "--device", "L4", "-o", "made.pickle"]) == 0
    holders = lowtide.snapshot("made.pickle").figures()["holders"]
    assert any("maker.py:" in holder["source"] for holder in holders)
    capsys.readouterr()
    for line, code, message in [
        ("step.json -o trace.txt", 2, "path: expected a name that ends in .json or .pickle, got 'trace.txt'"),
        ("step.json", 2, "the following arguments are required: -o/--output"),
        ("plan.json -o trace.json", 2, "plan.json is a plan"),
        ("absent.json -o trace.json", 5, "FileNotFoundError"),
        ("step.json -o absent/trace.json", 5, "FileNotFoundError"),
        ("step.json step.json -o trace.json", 5, "InvalidPlanError"),
    ]:
        assert program.run(line.split()) == code, line
        assert capsys.readouterr().err.startswith(f"lowtide: error: {message}"), line
    with pytest.raises(TypeError, match=r"lowtide\.export\(graph, plan\)"):
        lowtide.export(lowtide.plan(graph), path="plan.pickle")  # type: ignore[arg-type]
