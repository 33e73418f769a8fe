"""`lowtide.report` and the program: what their page says, how it looks, and how it moves.

LOWTIDE_FULL=1   a page of 20,000 operators and 100,002 buffers too: its first paint, and frames while it zooms
"""

from __future__ import annotations

import base64
import json
import os
import random
import re
import zlib
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import lowtide
from browser import Browser, browser, needs_browser
from lowtide._base.graph_file import GraphFile
from lowtide._core import GraphBuilder
from lowtide._report import bands
from lowtide._report import program as report_program
from lowtide._report.changes import changes_of, pattern_of
from lowtide._report.document import text
from lowtide._report.front import front_of
from lowtide._report.source_lines import short, text_of
from lowtide._report.timeline import bytes_by_band, planned_bytes, timeline_of

HOSTILE = "</script><script>window.hurt=1</script><img src=x onerror=window.hurt=1>\"'&{{data}}\u202e\x07"
KIB = 1024
FULL = os.environ.get("LOWTIDE_FULL") == "1"


def training_graph(layers: int, *, name: str = "layer", workspace: int = 0, size: int = 4 * KIB) -> lowtide.Graph:
    """A chain forward and back: each layer saves what its backward pass reads."""
    builder = GraphBuilder()
    weight = builder.buffer(8 * KIB, resident=True, initial=True, role="parameter", name=f"weight {name}")
    seen = builder.value(weight, "float32", [2 * KIB])
    state = builder.buffer(4 * KIB, resident=True, initial=True, role="optimizer_state", name="momentum")
    builder.value(state, "float32", [KIB])
    before, saved = seen, []
    for layer in range(layers):
        made = builder.buffer(size, resident=False, initial=False, role="activation", name=f"{name} {layer}")
        builder.op(
            "aten.mm.default", [before, seen], [made], time_ns=1000, workspace=workspace,
            source=f"{name}.py:{layer + 1}", module=f"layers.{layer}.{name}",
        )  # fmt: skip
        before = builder.value(made, "float32", [KIB])
        saved.append(before)
    for layer in reversed(range(layers)):
        made = builder.buffer(size, resident=False, initial=False, role="activation", name=f"back {layer}")
        builder.op(
            "aten.mm_backward", [before, saved[layer]], [made], time_ns=1000, backward=True, module=f"layers.{layer}"
        )
        before = builder.value(made, "float32", [KIB])
    return builder.build()


def in_parts() -> tuple[lowtide.Graph, lowtide.Plan]:
    """`c = g(f(a))` of docs/formats.md, of which what is between f and g is never there whole."""
    builder = lowtide._core.GraphBuilder()
    a, b, c = (
        builder.buffer(1 << 20, resident=name == "a", initial=name == "a", role="activation", name=name)
        for name in "abc"
    )
    value = builder.value(a, "uint8", [1 << 20])
    first = builder.op("f", [value], [b], time_ns=18)
    second = builder.op("g", [builder.value(b, "uint8", [1 << 20])], [c], time_ns=18)
    builder.keep(c)
    for op in (first, second):
        builder.axis(op, [1 << 20], [1 << 20], [(2, 0, 10, True)])
    graph = builder.build()
    plan = lowtide._core.plan(graph, memory_budget=(5 << 20) // 2)
    assert plan.step_parts()
    return graph, plan


def random_graph(seed: int) -> lowtide.Graph:
    """Ops that read a few earlier tensors, with results that may be made over their operands."""
    draw = random.Random(seed)
    builder = GraphBuilder()
    values: list[tuple[int, int, int]] = []  # buffer, value, bytes
    for op in range(draw.randrange(5, 40)):
        reads = draw.sample(values, min(len(values), draw.randrange(0, 4)))
        size = draw.choice([64, 640, 1000, 4096])
        made = builder.buffer(size, resident=False, initial=False, role="activation", name=f"t{op}")
        number = builder.op(
            "aten.op", [value for _, value, _ in reads], [made], workspace=draw.choice([0, 0, 256]),
            time_ns=draw.randrange(1, 1000), backward=op > 20,
        )  # fmt: skip
        for buffer, _, bytes in reads:
            if bytes == size:
                builder.reuse(number, buffer, made)
                break
        values.append((made, builder.value(made, "uint8", [size]), size))
    return builder.build()


def swept(graph: lowtide.Graph, plan: lowtide.Plan) -> list[int]:
    """By step: the bytes of the arena that any live block or workspace covers."""
    workspaces = [op.get("workspace", 0) for op in GraphFile(graph).ops]
    offsets, begins, ends, tiers = plan.offsets(), plan.begins(), plan.ends(), plan.block_tiers()
    sizes = [graph.buffer_size(buffer) for buffer in plan.block_buffers()]
    totals = []
    for step, op in enumerate(plan.order):
        spans = [(plan.workspace_offset(step), workspaces[op])] + [
            (offset, sizes[block])
            for block, offset in enumerate(offsets)
            if offset >= 0 and not tiers[block] and begins[block] <= step < ends[block]
        ]
        covered = total = 0
        for offset, size in sorted(spans):
            total += max(0, offset + size - max(offset, covered))
            covered = max(covered, offset + size)
        totals.append(total)
    return totals


def plans_of(graph: lowtide.Graph) -> list[lowtide.Plan]:
    plans = [lowtide.plan(graph, order="program", reuse=False), lowtide.plan(graph)]
    for options in ({"memory_budget": 0.8}, {"memory_budget": 0.6, "link": "16GB/s"}):
        try:
            plans.append(lowtide.plan(graph, **options))
        except lowtide.InfeasibleError:
            continue
    return plans


@pytest.fixture(scope="module")
def trained() -> tuple[lowtide.Graph, lowtide.Plan]:
    """Within a budget that makes operators run again."""
    graph = training_graph(24)
    plan = lowtide.plan(graph, memory_budget="70%")
    assert len(plan.order) > graph.num_ops
    return graph, plan


# -- what is counted --------------------------------------------------------------------------------------------------


def test_bytes_alive_are_the_addresses_covered() -> None:
    reused = 0
    for seed in range(60):
        graph = random_graph(seed)
        file = GraphFile(graph)
        for plan in plans_of(graph):
            timeline = timeline_of("", graph, file, plan)
            assert planned_bytes(timeline) == swept(graph, plan), seed
            by_band = bytes_by_band(timeline, file, bands.bands_of(file))
            assert max(map(sum, zip(*by_band, strict=True))) == plan.peak_bytes + plan.resident_bytes
            blocks = timeline.blocks
            assert blocks.begins == sorted(blocks.begins)
            drawn = [end for end, buffer in zip(blocks.ends, blocks.buffers, strict=True) if buffer >= 0]
            reused += sorted(drawn) != sorted(
                end for end, offset in zip(plan.ends(), plan.offsets(), strict=True) if offset >= 0
            )
    assert reused > 20


def test_bands() -> None:
    graph = training_graph(3, workspace=512)
    file = GraphFile(graph)
    of = dict(zip((buffer.get("name", "") for buffer in file.buffers), bands.bands_of(file), strict=True))
    assert of == {
        "weight layer": bands.PARAMETERS,
        "momentum": bands.STATE,
        "layer 0": bands.SAVED,
        "layer 1": bands.SAVED,
        "layer 2": bands.SAVED,
        "back 2": bands.TENSORS,
        "back 1": bands.TENSORS,
        "back 0": bands.TENSORS,
    }
    timeline = timeline_of("", graph, file, lowtide.plan(graph, order="program", reuse=False))
    by_band = bytes_by_band(timeline, file, bands.bands_of(file))
    assert by_band[bands.PARAMETERS] == [8 * KIB] * 6 and by_band[bands.STATE] == [4 * KIB] * 6
    assert by_band[bands.SAVED] == [4 * KIB, 8 * KIB, 12 * KIB, 12 * KIB, 8 * KIB, 4 * KIB]
    assert by_band[bands.WORKSPACES] == [512, 512, 512, 0, 0, 0]


def test_a_plan_of_another_graph_is_refused(trained: tuple[lowtide.Graph, lowtide.Plan]) -> None:
    with pytest.raises(lowtide.InvalidPlanError):
        lowtide.report(training_graph(25), trained[1])


def test_what_ran_again_and_why(trained: tuple[lowtide.Graph, lowtide.Plan]) -> None:
    graph, plan = trained
    file = GraphFile(graph)
    changes = changes_of(timeline_of("", graph, file, plan), file, ["memory"])
    assert {change.kind for change in changes} == {"recomputed"}
    assert sum(change.count for change in changes) == len(plan.order) - graph.num_ops
    assert sum(change.time_ns for change in changes) == plan.time_ns - graph.num_ops * 1000
    assert all(change.modules == "layers.*.layer" for change in changes)
    lines = {change.source for change in changes}
    assert lines <= {f"layer.py:{line}" for line in range(1, 25)}
    # Had any of them stayed, its bytes would be there besides what is alive in the meantime.
    alive = max(planned_bytes(timeline_of("", graph, file, plan))) + plan.resident_bytes
    assert all(alive <= change.kept_bytes <= alive + change.bytes for change in changes)


def test_why_something_was_swapped() -> None:
    graph = training_graph(24, size=1 << 20)
    plan = lowtide.plan(graph, memory_budget="60%", link="100000GB/s")
    file = GraphFile(graph)
    changes = changes_of(timeline_of("", graph, file, plan), file, ["memory", "host"])
    swapped = [change for change in changes if change.kind == "swapped"]
    assert sum(change.count for change in swapped) == len(plan.transfers()) > 0
    assert all(change.tiers == {"host"} for change in swapped)
    assert "transfers to and from host" in lowtide.report(graph, plan).html


def test_why_something_runs_in_parts() -> None:
    graph, plan = in_parts()
    file = GraphFile(graph)
    changes = changes_of(timeline_of("", graph, file, plan), file, ["memory"])
    assert {(change.kind, change.op, change.parts) for change in changes} == {
        ("in parts", "f", 2),
        ("in parts", "g", 2),
    }
    (made,) = (change for change in changes if change.op == "f")
    assert made.bytes == 1 << 20 and made.kept_bytes == 3 << 20


def test_modules_that_differ_by_a_number() -> None:
    assert pattern_of("layers.3.mlp") == pattern_of("layers.12.mlp") == "layers.*.mlp"
    assert pattern_of("3") == "*" and pattern_of("conv2.w3") == "conv2.w3"


def test_the_front_has_its_bound(trained: tuple[lowtide.Graph, lowtide.Plan]) -> None:
    graph, plan = trained
    front = front_of(graph, GraphFile(graph))
    assert front is not None and len(front.trades) > 3
    assert all(peak >= bound for (_, peak), (_, bound) in zip(front.trades, front.bounds, strict=True))
    assert front.trades[0] == (48_000, lowtide.plan(graph).peak_bytes + graph.resident_bytes)
    assert min(peak for _, peak in front.trades) <= plan.peak_bytes + plan.resident_bytes


# -- the page ---------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._inside = ""
        self.data = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = dict(attrs).get("id") or tag

    def handle_data(self, data: str) -> None:
        if self._inside == "data":
            self.data += data
        elif self._inside not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def fields(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(self.data)))
        return read


def test_figures_are_those_of_the_plan(trained: tuple[lowtide.Graph, lowtide.Plan]) -> None:
    graph, plan = trained
    page = Page(lowtide.report(graph, plan).html)
    eager = graph.eager_bytes
    for amount in (eager, plan.arena_bytes, plan.peak_bytes, plan.bound_bytes, plan.arena_bytes + plan.resident_bytes):
        assert lowtide._core.format_bytes(amount) in page.text
    held = lowtide.explain(graph, plan, top=30).to_dict()["holders"]
    assert all(lowtide._core.format_bytes(holder["bytes"]) in page.text for holder in held)
    assert f"{len(plan.order) - graph.num_ops}" in page.text and graph.fingerprint in page.text
    shown = page.fields()["plans"][1]
    assert shown["order"] == plan.order and shown["arena"] == plan.arena_bytes


def test_the_page_loads_nothing(trained: tuple[lowtide.Graph, lowtide.Plan]) -> None:
    page = Page(lowtide.report(*trained).html)
    assert not {"link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}
    assert not [value for _, fields in page.tags for name, value in fields.items() if name == "src"]
    assert all(fields["href"].startswith("#") for tag, fields in page.tags if tag == "a")
    (policy,) = (fields["content"] for tag, fields in page.tags if fields.get("http-equiv"))
    assert policy.startswith("default-src 'none'; ")
    assert not [name for _, fields in page.tags for name in fields if name.startswith("on") or name == "style"]


def test_what_a_graph_names_stays_text(tmp_path: Path) -> None:
    graph = training_graph(4, name=HOSTILE)
    made = lowtide.report(graph, lowtide.plan(graph), title=f"Memory of {HOSTILE}", path=tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text())
    assert [tag for tag, _ in page.tags].count("script") == 2 and not [tag for tag, _ in page.tags if tag == "img"]
    assert "<img src=x onerror=" in page.text  # as text
    assert "\u202e" not in (tmp_path / "page.html").read_text() and "\x07" not in page.text
    assert "<img src=x onerror=" in "".join(page.fields()["texts"])
    notebook = Page(made._repr_html_())
    assert "script" not in {tag for tag, _ in notebook.tags} and "img" not in {tag for tag, _ in notebook.tags}
    assert text("a<\ud800\x00") == "a&lt;\ufffd\ufffd"


def test_source_lines_are_read_from_python_files_alone(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import this\n    y = x @ w  # <b>\n")
    (tmp_path / "secret.txt").write_text("secret\n")
    assert text_of(f"{tmp_path}/model.py:2") == "y = x @ w  # <b>"
    (tmp_path / "model.py").write_text("import this\n    z = x @ w  # </b>\n")
    assert text_of(f"{tmp_path}/model.py:2") == "z = x @ w  # </b>"
    for source in ("model.py:0", "model.py:3", "model.py:-1", "model.py", "secret.txt:1", "absent.py:1", ":1", "x:²"):
        assert text_of(f"{tmp_path}/{source}") == "", source
    assert text_of("/dev/zero:1") == text_of("\x00.py:1") == text_of("") == ""
    assert short("/usr/lib/site-packages/transformers/x.py:3") == "transformers/x.py:3"


@pytest.mark.parametrize("ops", [0, 1])
def test_steps_with_next_to_nothing_in_them(ops: int) -> None:
    builder = GraphBuilder()
    for _ in range(ops):
        builder.op("aten.nothing", [], [])
    graph = builder.build()
    page = Page(lowtide.report(graph).html)
    assert "The operators of this graph have no times" in page.text


def test_20000_ops_take_less_than_3_mb() -> None:
    graph = training_graph(10_000)
    plan = lowtide.plan(graph, order="program", layout="skyline")
    from lowtide._report.contents import contents_of
    from lowtide._report.packed import packed

    assert len(packed(contents_of("", graph, plan))) < 2_000_000  # the rest of the page has a bounded number of rows


def test_a_report_is_written_wholly_or_not_at_all(tmp_path: Path) -> None:
    graph = training_graph(2)
    made = lowtide.report(graph, path=tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == made.html
    with pytest.raises(OSError):
        made.save(tmp_path / "absent" / "page.html")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(OSError):
        made.save(tmp_path / "folder.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.html", "page.html"]


def test_what_may_be_reported_on(trained: tuple[lowtide.Graph, lowtide.Plan]) -> None:
    for wrong, message in [
        (trained[1], r"a plan does not hold its graph: lowtide\.report\(graph, plan\)"),
        ("step.json", r"lowtide\.report\(lowtide\.Graph\.load\('step\.json'\)\)"),
        (print, r"lowtide\.report\(print, model=model, "),
    ]:
        with pytest.raises(TypeError, match=message):
            lowtide.report(wrong)  # type: ignore[arg-type]


def test_notebooks(trained: tuple[lowtide.Graph, lowtide.Plan]) -> None:
    import torch

    graph, plan = trained
    assert "<svg" in graph._repr_html_() and "lowtide.report(graph, plan)" in plan._repr_html_()  # type: ignore[attr-defined]
    model = torch.nn.Linear(8, 8)

    def train_step(x: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        loss = model(x).sum()
        loss.backward()
        return loss.detach()

    step = lowtide.compile(train_step, model=model)
    assert step._repr_html_() is None
    step(torch.randn(4, 8))
    shown = step._repr_html_()
    assert shown is not None and "<svg" in shown and "Memory of train_step" in shown
    assert step.plan is not None
    assert lowtide._core.format_bytes(step.plan.arena_bytes) in shown
    assert Page(lowtide.report(step).html).text.startswith("Memory of train_step")


# -- the program ------------------------------------------------------------------------------------------------------


def test_the_program(
    trained: tuple[lowtide.Graph, lowtide.Plan],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    graph, plan = trained
    monkeypatch.chdir(tmp_path)
    graph.save("step.json")
    plan.save("plan.json")
    assert report_program.run(["step.json", "plan.json", "-o", "page.html"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("eager ") and said.out.endswith("written    page.html\n") and said.err == ""
    assert Page(Path("page.html").read_text()).text.startswith("Memory of step.json")
    assert report_program.run(["step.json", "--memory-budget", "70%", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] and answer["output"] == "report.html" and answer["eager_bytes"] == graph.eager_bytes
    assert answer["total_bytes"] <= 0.7 * graph.eager_bytes
    Path("maker.py").write_text(MAKER)
    assert report_program.run(["maker.py:make", "--device", "L4", "-o", "made.html"]) == 0
    assert "loss = torch" in Page(Path("made.html").read_text()).text
    Path("foreign.json").write_text('{"format": "lowtide-graph", "version": 9}')
    capsys.readouterr()
    for line, code, message in [
        ("plan.json", 2, "plan.json is a plan, which does not hold its graph: lowtide report GRAPH plan.json"),
        ("step.json plan.json --memory-budget 1GiB", 2, "budgets and links are of the plan that is made"),
        ("step.json --batch 3", 2, "--device, --batch and --length are of a step that is captured"),
        ("step.json --memory-budget much", 2, ""),
        ("step.json --memory-budget 1%", 3, "E301"),
        ("absent.json", 5, "FileNotFoundError"),
        ("foreign.json", 5, "InvalidGraphError"),
        ("step.json foreign.json", 5, "InvalidPlanError"),
        ("step.json -o absent/page.html", 5, "FileNotFoundError"),
        ("maker.py:absent", 2, "maker.py has no function absent"),
        ("maker.py:broken", 5, "ZeroDivisionError"),
        ("", 2, ""),
    ]:
        assert report_program.run(line.split()) == code, line
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith(f"lowtide: error: {message}"), line
        assert report_program.run([*line.split(), "--json"]) == code
        assert json.loads(capsys.readouterr().out)["exit_code"] == code


MAKER = """
import torch

def make():
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def step(x, y):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()
    def example(batch):
        return torch.randn(batch, 64), torch.zeros(batch, dtype=torch.long)
    return {"function": step, "model": model, "optimizer": optimizer, "example": example, "batch": 8}

def broken():
    1 / 0
"""


# -- in a browser -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def window() -> Any:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(trained: tuple[lowtide.Graph, lowtide.Plan], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "page.html"
    lowtide.report(*trained, path=path)
    return path


@needs_browser
def test_the_page_counts_what_the_plan_states(
    window: Browser, page: Path, trained: tuple[lowtide.Graph, lowtide.Plan]
) -> None:
    graph, plan = trained
    window.open(page)
    assert window.wait_for("ready") == [graph.eager_bytes, plan.peak_bytes + plan.resident_bytes]
    assert window.log() == []
    asked = [json.loads(entry["message"])["message"] for entry in window.log("performance")]
    urls = [one["params"]["request"]["url"] for one in asked if one["method"] == "Network.requestWillBeSent"]
    assert {re.match(r"\w+:", url)[0] for url in urls} <= {"file:", "about:", "data:"}  # type: ignore[index]


@needs_browser
def test_keys(window: Browser, page: Path, trained: tuple[lowtide.Graph, lowtide.Plan]) -> None:
    graph, plan = trained
    window.open(page)
    window.wait_for("ready")
    said = "return document.getElementById(arguments[0]).textContent"
    window.run("document.getElementById('live-canvas').focus()")
    window.press("p")
    peak = lowtide._core.format_bytes(plan.peak_bytes + plan.resident_bytes)
    first = window.run(said, "live-said")
    assert f": {peak} alive: parameters 8.00 KiB, optimizer state 4.00 KiB" in first
    window.press("+", "ArrowRight")
    assert re.match(rf"Step \d+ of {len(plan.order)} \(planned\), aten", window.run(said, "live-said"))
    assert window.run(said, "live-said") != first
    window.run("document.getElementById('map-canvas').focus()")
    window.press("0", "p", *["ArrowDown"] * 60)
    found = window.run(said, "map-said")
    offsets, begins, ends = plan.offsets(), plan.begins(), plan.ends()
    step = planned_bytes(timeline_of("", graph, GraphFile(graph), plan)).index(plan.peak_bytes)
    (lowest,) = (
        block for block, offset in enumerate(offsets) if offset == 0 and begins[block] <= step < ends[block]
    )  # fmt: skip
    assert found.startswith(f"{graph.buffer_name(plan.block_buffers()[lowest])}: 4.00 KiB at 0, ")


@needs_browser
def test_hostile_names_in_a_browser(window: Browser, tmp_path: Path) -> None:
    graph = training_graph(4, name=HOSTILE)
    lowtide.report(graph, lowtide.plan(graph), title=HOSTILE, path=tmp_path / "page.html")
    window.open(tmp_path / "page.html")
    window.wait_for("ready")
    window.run("document.getElementById('map-canvas').focus()")
    window.press("p", *["ArrowDown"] * 60)
    assert "<img src=x" in window.run("return document.getElementById('map-said').textContent")
    assert window.run("return [typeof window.hurt, document.images.length]") == ["undefined", 0]
    assert window.log() == []


def large_graph() -> lowtide.Graph:
    """20,000 operators, each of which makes five buffers, read a few operators later; two are resident."""
    builder = GraphBuilder()
    weight = builder.buffer(KIB, resident=True, initial=True, role="parameter", name="weight")
    state = builder.buffer(KIB, resident=True, initial=True, role="optimizer_state", name="state")
    given = [builder.value(buffer, "uint8", [KIB]) for buffer in (weight, state)]
    draw = random.Random(0)
    waiting: list[list[int]] = [[] for _ in range(20_200)]
    for op in range(20_000):
        sizes = [draw.choice([64, 256, 1024, 4096]) for _ in range(5)]
        made = [
            builder.buffer(size, resident=False, initial=False, role="activation", name=f"{op} {index}")
            for index, size in enumerate(sizes)
        ]
        builder.op("aten.op", [*given, *waiting[op]], made, time_ns=draw.randrange(500, 2000), backward=op > 10_000)
        for buffer, size in zip(made, sizes, strict=True):
            waiting[op + draw.choice([1, 2, 5, 20, 150])].append(builder.value(buffer, "uint8", [size]))
    return builder.build()


@needs_browser
@pytest.mark.skipif(not FULL, reason="LOWTIDE_FULL=1: a page of 100,002 buffers")
def test_a_large_page_is_there_soon_and_moves(window: Browser, tmp_path: Path) -> None:
    graph = large_graph()
    assert (graph.num_ops, graph.num_buffers) == (20_000, 100_002)
    lowtide.report(graph, lowtide.plan(graph, order="program", layout="first_fit"), path=tmp_path / "page.html")
    window.open(tmp_path / "page.html", "#measure")
    measured = window.wait_for("measured")
    print(measured)
    assert measured["blocks"] >= 100_000 and measured["firstPaintMs"] < 2000 and measured["framesPerSecond"] > 30
    assert window.log() == []


@needs_browser
def test_the_page_measures_itself(window: Browser, page: Path) -> None:
    window.open(page, "#measure")
    measured = window.wait_for("measured")
    assert 100 <= measured["frames"] <= 125 and measured["framesPerSecond"] > 0 and measured["firstPaintMs"] > 0


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_words_stand_out_and_all_has_a_name(page: Path, dark: bool) -> None:
    """Contrast of at least 4.5, as WCAG asks for; every control, region and picture has a name."""
    with browser(dark=dark) as window:
        window.open(page)
        window.wait_for("ready")
        assert window.run("return matchMedia('(prefers-color-scheme: dark)').matches") is dark
        assert window.run(CONTRASTS) == []
        names = window.run(
            "return [...document.querySelectorAll('button, canvas, [role=region], nav, input, section, output')]"
            ".filter((e) => !e.hidden && !(e.ariaLabel || e.getAttribute('aria-labelledby') || e.textContent.trim() ||"
            " e.labels && e.labels.length)).map((e) => e.outerHTML)"
        )
        assert names == []
        tabbed = []
        for _ in range(40):
            window.press("Tab")
            tabbed.append(window.run("return document.activeElement.id || document.activeElement.textContent.trim()"))
        assert {"theme", "live-canvas", "map-canvas", "Figures", "Peak"} <= set(tabbed)


@needs_browser
def test_a_screen_reader_finds_its_way(window: Browser, page: Path) -> None:
    """By landmarks and headings; whatever can be focused has a role and a name, and charts say what keys do."""
    window.open(page)
    window.wait_for("ready")
    nodes = window.tree()

    def named(role: str) -> list[str]:
        return [node.get("name", {}).get("value", "") for node in nodes if node["role"]["value"] == role]

    assert all(len(named(role)) == 1 for role in ("banner", "main", "contentinfo", "navigation"))
    titles = ["Figures", "Bytes over the step", "Addresses", "What the plan changes", "Memory and time"]
    titles.append("Who holds the peak")
    assert named("heading")[1:] == titles and set(titles) <= set(named("region"))
    charts = ["Bytes alive at each step, stacked by role", "Addresses of buffers over the steps"]
    assert named("application") == charts
    described = [
        node.get("description", {}).get("value", "") for node in nodes if node["role"]["value"] == "application"
    ]
    assert all(words.startswith("Arrow keys move the cursor") for words in described)
    assert len(named("status")) == 2, "what is under the cursor is said"
    for node in nodes:
        properties = {one["name"]: one["value"].get("value") for one in node.get("properties", ())}
        if properties.get("focusable") and node["role"]["value"] != "RootWebArea":
            assert node.get("name", {}).get("value"), node


def violations(window: Browser) -> list[Any]:
    """What axe-core finds wrong with the page that is open."""
    pytest.importorskip("axe_core_python")
    window.run((resources.files("axe_core_python") / "axe.min.js").read_text())
    found = window.run("return axe.run()")
    assert {"landmark-one-main", "color-contrast", "label", "page-has-heading-one"} <= {
        one["id"] for one in found["passes"]
    }
    return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found["violations"]]


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing(page: Path, dark: bool) -> None:
    with browser(dark=dark) as window:
        window.open(page)
        window.wait_for("ready")
        assert violations(window) == []


CONTRASTS = """
  const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const bright = (rgb) => 0.2126 * channel(rgb[0]) + 0.7152 * channel(rgb[1]) + 0.0722 * channel(rgb[2]);
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = parse(getComputedStyle(e).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const element of document.querySelectorAll("main *, header *, nav *, footer *")) {
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    if (!element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const [a, b] = [bright(parse(element instanceof SVGElement ? style.fill : style.color)), bright(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push([element.outerHTML.slice(0, 80), ratio]);
  }
  return low;
"""
