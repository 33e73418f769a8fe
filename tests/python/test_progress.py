"""What is shown of what takes long: a line on a terminal, cleared in the end and by Ctrl-C too; a bar in a notebook;
lines that stay in a file."""

import io
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.lib.progress import each
from lowtide import _core
from lowtide._base import progress
from lowtide._base.progress import ProgressLine
from program import CLEAR, PROGRAM

LAYERS = 200  # planned in more than the half second after which the line is shown
MANY_LAYERS = 600  # planned for long enough to be stopped in the midst of it
LINE = re.compile(r"planning \d+\.\d s: peak [\d.]+ .iB at \+[\d.]+ % time, bound [\d.]+ .iB, gap [\d.]+ %")
SCRIPT = """
import sys, lowtide
from lowtide._base.progress import _Terminal
_Terminal.patience = _Terminal.every = 0  # however fast the machine is
graph = lowtide.Graph.load(sys.argv[1])
try:
    lowtide.plan(graph, memory_budget=0.3)
except KeyboardInterrupt:
    print("stopped", file=sys.stderr)
    sys.exit(130)
"""
HELD_SCRIPT = SCRIPT.replace(
    "    lowtide.plan(graph, memory_budget=0.3)",
    """    from pathlib import Path
    from lowtide._base.interrupts import signals_held
    from lowtide._base.cache_directory import CacheDirectory
    from lowtide._compile.plan_cache import PlanCache
    from lowtide._store.directory import DirectoryStore
    with signals_held:
        PlanCache(DirectoryStore(CacheDirectory(Path(sys.argv[2])))).get_or_plan(graph, 0.3, None)""",
)
assert HELD_SCRIPT != SCRIPT


def save_step(path: Path, layers: int) -> Path:
    """A training step that takes a while to plan within a budget."""
    builder = _core.GraphBuilder()
    batch = builder.buffer(4096, resident=True, initial=True, role="input", name="x")
    content = [builder.value(batch, "float32", [1024])]
    for i in range(layers):
        made = builder.buffer(4096 * (1 + i % 7), resident=False, initial=False, role="activation", name=f"h{i}")
        builder.op("aten::mul", content[-1:], [made], time_ns=1000 + 37 * (i % 11))
        content.append(builder.value(made, "float32", [1024]))
    gradient = content[-1]
    for i in reversed(range(layers)):
        made = builder.buffer(4096, resident=False, initial=False, role="gradient", name=f"g{i}")
        builder.op("aten::mul", [content[i], gradient], [made], time_ns=2000)
        gradient = builder.value(made, "float32", [1024])
    builder.build().save(path)
    return path


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_step(tmp_path_factory.mktemp("progress") / "step.json", LAYERS)


@pytest.fixture(scope="module")
def long_graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_step(tmp_path_factory.mktemp("progress") / "step.json", MANY_LAYERS)


def commands(graph: Path, cache: Path) -> dict[str, list[str]]:
    return {
        "program": [PROGRAM, "plan", str(graph), "--memory-budget", "30%"],
        "python": [sys.executable, "-c", SCRIPT, str(graph)],
        "compile": [sys.executable, "-c", HELD_SCRIPT, str(graph), str(cache)],
    }


def on_terminal(command: list[str], *, interrupt: bool = False, quiet: bool = False) -> tuple[int, str, float]:
    """Exit code, what a terminal at standard error was sent, and how long it took from the first full line on."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "LOWTIDE_QUIET": "1" if quiet else ""}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=follower, env=environment)
    os.close(follower)
    sent, seen = "", 0.0
    while True:
        try:
            piece = os.read(leader, 4096)
        except OSError:  # what Linux gives when the other side is closed
            break
        sent += piece.decode()
        if not seen and LINE.search(sent):
            seen = time.monotonic()
            if interrupt:
                process.send_signal(signal.SIGINT)
    os.close(leader)
    code = process.wait(timeout=60)
    return code, sent, time.monotonic() - seen


def on_screen(sent: str) -> str:
    """What is left of it to see."""
    return sent.rpartition(CLEAR)[2]


@pytest.mark.parametrize("how", ["program", "python", "compile"])
def test_the_line_is_shown_and_cleared(graph: Path, tmp_path: Path, how: str) -> None:
    code, sent, _ = on_terminal(commands(graph, tmp_path)[how])
    assert code == 0 and LINE.search(sent), sent
    assert on_screen(sent) == "" and "\n" not in sent
    assert all(len(line) < 100 for line in sent.split(CLEAR))


@pytest.mark.parametrize("how", ["program", "python", "compile"])
def test_ctrl_c_clears_the_line_and_ends_the_search(long_graph: Path, tmp_path: Path, how: str) -> None:
    code, sent, seconds = on_terminal(commands(long_graph, tmp_path)[how], interrupt=True)
    assert code == 130
    assert on_screen(sent) == ("" if how == "program" else "stopped\r\n")
    assert seconds < 10


@pytest.mark.parametrize("how", ["program", "python"])
def test_nothing_is_shown_without_a_terminal(graph: Path, tmp_path: Path, how: str) -> None:
    done = subprocess.run(commands(graph, tmp_path)[how], capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")


def test_nothing_is_shown_if_it_is_not_wanted(graph: Path, tmp_path: Path) -> None:
    assert on_terminal(commands(graph, tmp_path)["python"], quiet=True)[:2] == (0, "")


def test_watching_changes_no_plan(graph: Path) -> None:
    step = _core.Graph.load(graph)
    told: list[str] = []
    watched = _core.plan(step, memory_budget=0.3, watching=told.append)
    assert told[-1].startswith("peak ")
    alone = _core.plan(step, memory_budget=0.3)
    assert watched.order == alone.order and watched.offsets() == alone.offsets()


def test_what_watching_raises_ends_the_search(graph: Path) -> None:
    def refuse(found: str) -> None:
        raise KeyError(found)

    with pytest.raises(KeyError):
        _core.plan(_core.Graph.load(graph), memory_budget=0.3, watching=refuse)


# -- terminals, notebooks and files -----------------------------------------------------------------------------------


class Screen(io.StringIO):
    """A standard error; a terminal or not. Time goes on by itself."""

    def __init__(self, patch: pytest.MonkeyPatch, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal
        self.now = 1000.0
        patch.setattr(sys, "stderr", self)
        patch.setattr(progress.time, "monotonic", lambda: self.now)
        patch.delenv("LOWTIDE_QUIET", raising=False)

    def isatty(self) -> bool:
        return self._terminal


def test_a_bar_has_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(monkeypatch, terminal=True)
    line = ProgressLine("profiling", 400)
    for done in range(400):
        screen.now = 1000 + done / 100
        line.show("aten.mm", done)
    line.clear()
    shown = screen.getvalue().split(CLEAR)
    assert shown[0] == shown[-1] == ""
    assert shown[1] == "profiling 0.5 s [##..................] 50 of 400, 3.5 s left: aten.mm"
    assert len(shown) == 2 + len(range(50, 400, 20)), "every 0.2 s"


def test_a_standard_error_that_is_gone_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal in (True, False):
        screen = Screen(monkeypatch, terminal=terminal)
        line = ProgressLine("planning")
        screen.now += 60
        screen.close()
        line.show("peak")
        line.clear()
        ProgressLine("planning").show("peak")
    monkeypatch.setattr(sys, "stderr", None)
    ProgressLine("planning").show("peak")


def test_a_file_has_a_line_every_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(monkeypatch, terminal=False)
    line = ProgressLine("planning")
    for second in range(100):
        screen.now = 1000 + second
        line.show("peak 1 GiB")
    line.clear()
    assert screen.getvalue().splitlines() == [f"lowtide: planning {at}.0 s: peak 1 GiB" for at in (30, 60, 90)]


def test_a_benchmark_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It was asked for by name, so LOWTIDE_QUIET leaves its bar alone, which leaves before a line of its tables."""
    screen = Screen(monkeypatch, terminal=True)
    monkeypatch.setenv("LOWTIDE_QUIET", "1")
    line = ProgressLine("models", 2)
    screen.now += 1
    line.show("a", 1)
    assert screen.getvalue() == ""
    for item in each(["a", "b", "c"], "models"):
        screen.now += 1
        if item == "b":
            print("a row")
            assert screen.getvalue().endswith(f"models 1.0 s [######..............] 1 of 3, 2.0 s left: b{CLEAR}")
    assert screen.getvalue().endswith(f"{CLEAR}models 2.0 s [#############.......] 2 of 3, 1.0 s left: c{CLEAR}")
    assert capsys.readouterr().out == "a row\n"


NOTEBOOK = """
import sys, types
class ZMQInteractiveShell: pass
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=ZMQInteractiveShell)
from lowtide._base import progress
progress._Notebook.patience = progress._Notebook.every = 0
line = progress.ProgressLine("profiling", 40)
for done in range(40):
    line.show("aten.mm", done)
line.clear()
"""


def test_a_notebook_has_a_bar_of_tqdm() -> None:
    pytest.importorskip("tqdm")
    line = [sys.executable, "-W", "error", "-c", NOTEBOOK]
    done = subprocess.run(line, env={**os.environ, "LOWTIDE_QUIET": ""}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "profiling:" in done.stderr and "39/40" in done.stderr and "aten.mm" in done.stderr


def test_a_notebook_without_tqdm_has_lines() -> None:
    without = "import sys; sys.modules['tqdm'] = None\n" + NOTEBOOK.replace("_Notebook", "_File")
    line = [sys.executable, "-W", "error", "-c", without]
    done = subprocess.run(line, env={**os.environ, "LOWTIDE_QUIET": ""}, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr.count("lowtide: profiling ") == 40, done.stderr


TRAINING = """
import torch, lowtide
from lowtide._base.progress import _Terminal
_Terminal.patience = _Terminal.every = 0
model = torch.nn.Sequential(*[torch.nn.Linear(32, 32 + i % 2) if i == 0 else torch.nn.ReLU() for i in range(6)])
def step(x):
    model.zero_grad()
    loss = model(x).sum()
    loss.backward()
    return loss.detach()
lowtide.compile(step, model=model)(torch.ones(4, 32))
"""


def test_capturing_and_profiling_are_shown(tmp_path: Path) -> None:
    code, sent, _ = on_terminal([sys.executable, "-c", TRAINING])
    assert code == 0
    assert re.search(r"capturing \d+\.\d s: [1-9]\d* operators", sent), sent
    assert re.search(r"profiling \d+\.\d s \[#*\.*\] [1-9]\d* of \d+, \d+\.\d s left", sent), sent
