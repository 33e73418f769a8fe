"""The lowtide program: its answers, exit codes and manners."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

import lowtide
from lowtide import _core
from program import CLEAR, PATH, PROGRAM, on_terminal, run

COMMANDS = ["plan", "verify", "inspect", "explain", "pack"]
BUFFERS = "id,lower,upper,size\na,0,2,64\nb,0,4,64\nc,2,3,64\nd,2,4,64\n"


def build(ops: int, names: str = "h") -> _core.Graph:
    """A weight of 4 KiB, and a chain of `ops` ops, each with a result of 1 KiB; the last is the output."""
    builder = _core.GraphBuilder()
    weight = builder.buffer(4096, resident=True, initial=True, role="parameter", name="weight")
    value = builder.value(weight, "float32", [32, 32])
    for i in range(ops - 1):
        result = builder.buffer(1024, resident=False, initial=False, role="activation", name=f"{names}{i}")
        builder.op("aten::mul", [value], [result], workspace=256, time_ns=1000, source=f"net.py:{i}", module="body")
        value = builder.value(result, "float32", [256])
    output = builder.buffer(1024, resident=True, initial=False, role="output", name="out")
    builder.op("aten::sum", [value], [output], time_ns=1000, source="net.py:99")
    return builder.build()


def build_training() -> _core.Graph:
    """Two layers that save their results, and their backward pass: the first result is idle at the peak."""
    builder = _core.GraphBuilder()
    batch = builder.buffer(1024, resident=True, initial=True, role="input", name="batch")
    batch, h0, h1, loss, g1, g0 = [batch] + [
        builder.buffer(size, resident=False, initial=False, role="activation", name="")
        for size in [4096, 4096, 1024, 4096, 4096]
    ]
    for reads, written, backward in [
        ([batch], h0, 0),
        ([h0], h1, 0),
        ([h1], loss, 0),
        ([loss, h1], g1, 1),
        ([g1, h0], g0, 1),
    ]:
        builder.op(
            "f", [builder.value(b, "float32", [1]) for b in reads], [written], time_ns=9, backward=bool(backward)
        )
    return builder.build()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory with step.json (also compressed), plan.json, other.json, a graph that the plan is not for, and
    buffers.csv."""
    graph = build(3)
    graph.save(str(tmp_path / "step.json"))
    graph.save(str(tmp_path / "step.json.zst"))
    lowtide.plan(graph).save(str(tmp_path / "plan.json"))
    build(4).save(str(tmp_path / "other.json"))
    (tmp_path / "buffers.csv").write_text(BUFFERS)
    return tmp_path


def test_version(tmp_path: Path) -> None:
    done = run("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"lowtide {lowtide.__version__}\n", "")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_has_examples_that_run(files: Path, command: str) -> None:
    done = run(*command.split(), "--help", cwd=files)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 120
    examples = done.stdout.partition("Examples:\n")[2].splitlines()
    assert examples and all(line.startswith("  lowtide ") for line in examples)
    for line in examples:
        path = os.pathsep.join([str(Path(PROGRAM).parent), PATH])
        ran = subprocess.run(line, shell=True, cwd=files, env={**os.environ, "PATH": path}, capture_output=True)
        assert (ran.returncode, ran.stderr) == (0, b""), line


def test_help_shows_commands_and_exit_codes(tmp_path: Path) -> None:
    text = run("--help", cwd=tmp_path).stdout
    assert [word for word in COMMANDS if re.search(rf"^  {word} ", text, re.MULTILINE)] == COMMANDS
    table = text.partition("Exit codes:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^  (\d+) ", table, re.MULTILINE) == ["0", "2", "3", "4", "5", "130"]


def test_plan_lists_every_algorithm(tmp_path: Path) -> None:
    text = run("plan", "--help", cwd=tmp_path).stdout
    for name, description in _core.order_algorithms() + _core.layout_algorithms() + _core.recompute_algorithms():
        assert f"  {name}: {description}\n" in text
    text = run("pack", "--help", cwd=tmp_path).stdout
    for name, description in _core.layout_algorithms():
        assert f"  {name}: {description}\n" in text


def test_plan_writes_what_python_plans(files: Path) -> None:
    graph = build(3)
    done = run("plan", "step.json", "-o", "new.json", cwd=files)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == lowtide.plan(graph).summary() + "\nwritten   new.json\n"
    assert (files / "new.json").read_bytes() == (files / "plan.json").read_bytes()

    assert run("plan", "step.json.zst", "-o", "new.json.zst", cwd=files).returncode == 0
    assert run("verify", "step.json", "new.json.zst", cwd=files).returncode == 0
    assert (files / "new.json.zst").read_bytes()[:4] == b"\x28\xb5\x2f\xfd"


def test_plan_without_output_writes_nothing(files: Path) -> None:
    before = sorted(files.iterdir())
    assert run("plan", "step.json", cwd=files).stdout == lowtide.plan(build(3)).summary() + "\n"
    assert sorted(files.iterdir()) == before


def test_budgets(files: Path) -> None:
    # Resident 5 KiB; at most two results of 1 KiB and a workspace of 256 bytes: 7424 bytes in all.
    for budget, code in [("7424B", 0), ("7423B", 3), ("8KiB", 0), ("100%", 0), ("99%", 3)]:
        assert run("plan", "step.json", "--memory-budget", budget, cwd=files).returncode == code, budget
    for budget, code in [("3us", 0), ("2999ns", 3)]:
        assert run("plan", "step.json", "--latency-budget", budget, cwd=files).returncode == code, budget


def test_inspect_shows_what_python_shows(files: Path) -> None:
    assert run("inspect", "step.json", cwd=files).stdout == build(3).summary() + "\n"
    assert run("inspect", "step.json.zst", cwd=files).stdout == build(3).summary() + "\n"
    assert run("inspect", "plan.json", cwd=files).stdout == lowtide.plan(build(3)).summary() + "\n"
    held = run("inspect", "step.json", "--top", "1", cwd=files).stdout.partition("held by")[2]
    assert len(held.splitlines()) == 1
    assert "held by" not in run("inspect", "step.json", "--top", "0", cwd=files).stdout


def test_explain_shows_what_python_explains(files: Path) -> None:
    graph = build(3)
    plan = lowtide.plan(graph)
    for arguments, told in [([], lowtide.explain(graph)), (["plan.json"], lowtide.explain(graph, plan))]:
        assert run("explain", "step.json", *arguments, cwd=files).stdout == f"{told}\n"
        fields = json.loads(run("explain", "step.json", *arguments, "--json", cwd=files).stdout)
        given = {"ok": True, "graph": "step.json", "plan": arguments[0] if arguments else None}
        assert fields == {**given, **told.to_dict()}
    one = json.loads(run("explain", "step.json", "--top", "1", "--link", "50GB/s", "--json", cwd=files).stdout)
    assert (len(one["holders"]), one["groups"], one["swap_bytes_per_second"]) == (1, 4, 50_000_000_000)


def test_plan_over_a_link(tmp_path: Path) -> None:
    """A chain of weights, of which half may be in memory, each used once and changed."""
    builder = _core.GraphBuilder()
    for i in range(8):
        weight = builder.buffer(1 << 20, resident=True, initial=True, role="parameter", name=f"w{i}")
        builder.op("aten::mul_", [builder.value(weight, "float32", [1 << 18])], [weight], time_ns=1_000_000)
    graph = builder.build()
    graph.save(str(tmp_path / "step.json"))
    arguments = ("step.json", "--memory-budget", "50%", "--link", "16GB/s")
    assert run("plan", *arguments[:3], cwd=tmp_path).returncode == 3, "nothing can run again"
    told = json.loads(run("plan", *arguments, "-o", "plan.json", "--json", cwd=tmp_path).stdout)
    assert told["total_bytes"] <= 4 << 20
    # Three stay, and the others take turns in the room of one.
    assert told["tiers"] == [{"name": "host", "resident_bytes": 5 << 20, "arena_bytes": 0}] and told["transfers"] == 10
    plan = lowtide.plan(graph, memory_budget=0.5, link="16GB/s")
    assert plan.summary() in run("plan", *arguments, cwd=tmp_path).stdout
    assert "swapped   5.00 MiB in host = 5.00 MiB resident + 0 B arena, 10 transfers" in plan.summary()
    explained = run("explain", "step.json", "plan.json", cwd=tmp_path)
    assert "MiB swapped out" in explained.stdout
    assert run("verify", "step.json", "plan.json", cwd=tmp_path).returncode == 0


def test_verify_says_right(files: Path) -> None:
    done = run("verify", "step.json", "plan.json", cwd=files)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "right     for step.json\n" + lowtide.plan(build(3)).summary() + "\n"


PLAN_FIGURES = {
    "steps": 3,
    "blocks": 4,
    "arena_bytes": 2304,
    "peak_bytes": 2304,
    "bound_bytes": 2304,
    "gap": 0,
    "resident_bytes": 5120,
    "total_bytes": 7424,
    "fragmentation": 0,
    "tiers": [],
    "transfers": 0,
    "time_ns": 3000,
    "order": "best",
    "layout": "first_fit",  # reaches the bound, and so nothing else is tried
    "recompute": "",
    "lowtide_version": lowtide.__version__,
}


def test_every_key_is_documented(files: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    documented = set(re.findall(r"`(\w+)`", page.partition("## What --json prints")[2]))
    used: set[str] = set()
    build_training().save(str(files / "training.json"))

    def collect(answer: object) -> None:
        if isinstance(answer, dict):
            used.update(answer.keys())
        for part in answer.values() if isinstance(answer, dict) else answer if isinstance(answer, list) else []:
            collect(part)

    for line in [
        "plan step.json",
        "verify step.json plan.json",
        "inspect step.json",
        "inspect plan.json",
        "plan step.json --memory-budget 1B",
        "plan",
        "explain training.json",
        "pack buffers.csv",
        "pack buffers.csv --capacity 1",
    ]:
        collect(json.loads(run(*line.split(), "--json", cwd=files).stdout))
    assert used - {"parameter"} <= documented  # a role, in resident_by_role
    words = {"explain", "inspect", "file", "graph", "pack", "plan", "verify", "null", "output", "kind"}
    assert documented - words <= used


def test_exit_codes_are_documented(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    for code, says in re.findall(r"^  (\d+) +(.*)", run("--help", cwd=tmp_path).stdout, re.MULTILINE):
        assert f"| {code} | {says}" in page


def test_json_of_plan(files: Path) -> None:
    done = run("plan", "step.json", "-o", "new.json", "--json", cwd=files)
    assert json.loads(done.stdout) == {"ok": True, "graph": "step.json", "output": "new.json", **PLAN_FIGURES}
    assert json.loads(run("plan", "step.json", "--json", cwd=files).stdout)["output"] is None


def test_json_of_verify(files: Path) -> None:
    done = run("verify", "step.json", "plan.json", "--json", cwd=files)
    assert json.loads(done.stdout) == {"ok": True, "graph": "step.json", "plan": "plan.json", **PLAN_FIGURES}


def test_json_of_inspect(files: Path) -> None:
    done = run("inspect", "plan.json", "--json", cwd=files)
    assert json.loads(done.stdout) == {"ok": True, "file": "plan.json", "kind": "plan", **PLAN_FIGURES}
    done = run("inspect", "step.json", "--json", "--top", "2", cwd=files)
    assert json.loads(done.stdout) == {
        "ok": True,
        "file": "step.json",
        "kind": "graph",
        "ops": 3,
        "buffers": 4,
        "planned_buffers": 2,
        "versions": 4,
        "values": 3,
        "resident_bytes": 5120,
        "resident_by_role": {"parameter": 4096, "output": 1024},
        "program_peak_bytes": 2304,
        "operand_bound_bytes": 2304,
        "peak_op": {"id": 1, "name": "aten::mul", "source": "net.py:1", "module": "body"},
        "held_by": [
            {"name": "h0", "role": "activation", "bytes": 1024, "source": "net.py:0"},
            {"name": "h1", "role": "activation", "bytes": 1024, "source": "net.py:1"},
        ],
    }


def test_quiet_says_nothing_but_errors(files: Path) -> None:
    for arguments in [("plan", "step.json"), ("verify", "step.json", "plan.json"), ("inspect", "plan.json")]:
        done = run(*arguments, "--quiet", cwd=files)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "E604" in run("inspect", "absent.json", "-q", cwd=files).stderr


FAILURES = [
    ("", 2, "usage"),
    ("--bogus", 2, "usage"),
    ("plan", 2, "usage"),
    ("plan step.json --bogus", 2, "usage"),
    ("plan step.json another.json", 2, "usage"),
    ("plan step.json -o", 2, "usage"),
    ("plan step.json -o step.json", 2, "usage"),
    ("plan step.json -o ./step.json", 2, "usage"),
    ("plan step.json -o a.json -o b.json", 2, "usage"),
    ("plan step.json --order fastest", 2, "E501"),
    ("plan step.json --layout tightest", 2, "E501"),
    ("plan step.json --recompute tightest", 2, "E501"),
    ("plan step.json --memory-budget 6G", 2, "E502"),
    ("plan step.json --memory-budget=", 2, "usage"),
    ("plan step.json --memory-budget -1", 2, "E502"),
    ("plan step.json --memory-budget nan", 2, "E502"),
    ("plan step.json --memory-budget 0", 2, "E502"),
    ("plan step.json --memory-budget 60", 2, "E502"),
    ("plan step.json --memory-budget 0.6", 2, "E502"),
    ("plan step.json --memory-budget 0GiB", 2, "E502"),
    ("plan step.json --memory-budget 150%", 2, "E503"),
    ("plan step.json --latency-budget 20", 2, "E502"),
    ("plan step.json --latency-budget 0ms", 2, "E502"),
    ("verify step.json", 2, "usage"),
    ("inspect step.json --top -1", 2, "usage"),
    ("inspect step.json --top many", 2, "usage"),
    ("explain step.json --link 0GB/s", 2, "E502"),
    ("explain step.json --link fast", 2, "E502"),
    ("plan step.json --link 16GB/s", 2, "E505"),
    ("plan step.json --memory-budget 60% --link 16GB", 2, "E502"),
    ("pack", 2, "usage"),
    ("pack buffers.csv --map --quiet", 2, "usage"),
    ("pack buffers.csv --work -1", 2, "usage"),
    ("pack buffers.csv --threads 0", 2, "usage"),
    *((f"pack buffers.csv --time-limit {text}", 2, "usage") for text in ("-1", "nan", "inf", "1e400", "1e300", "x")),
    ("pack buffers.csv --threads 257", 2, "usage"),
    ("pack buffers.csv --capacity -1", 2, "E502"),
    ("pack buffers.csv --work 99999999999999999999", 2, "usage"),
    ("pack buffers.csv -o buffers.csv", 2, "usage"),
    ("pack buffers.csv --svg ./buffers.csv", 2, "usage"),
    ("pack buffers.csv -o new --svg new", 2, "usage"),
    ("pack buffers.csv --algorithm tightest", 2, "E501"),
    ("pack buffers.csv --capacity 6G", 2, "E502"),
    ("plan step.json --memory-budget 7KiB", 3, "E301"),
    ("plan step.json --latency-budget 1us", 3, "E302"),
    ("pack buffers.csv --capacity 191", 3, "E303"),
    ("inspect large.json.zst", 4, "E402"),
    ("pack buffers.csv --algorithm greedy_by_size --work 0", 4, "E403"),
    ("inspect absent.json", 5, "E604"),
    ("inspect .", 5, "E604"),
    ("inspect step.json/x", 5, "E604"),
    ("plan step.json -o absent/plan.json", 5, "E604"),
    ("plan step.json -o .", 5, "E604"),
    ("inspect empty.json", 5, "E603"),
    ("inspect noise.json", 5, "E603"),
    ("inspect half.json", 5, "E603"),
    ("inspect foreign.json", 5, "E601"),
    ("plan plan.json", 5, "E601"),
    ("verify plan.json step.json", 5, "E601"),
    ("verify other.json plan.json", 5, "E2"),
    ("explain plan.json", 5, "E601"),
    ("explain other.json plan.json", 5, "E2"),
    ("pack absent.csv", 5, "E604"),
    ("pack buffers.csv -o absent/packed.csv", 5, "E604"),
    ("pack buffers.csv --svg absent/packed.svg", 5, "E604"),
    ("pack step.json", 5, "E601"),
    ("pack noise.json", 5, "E603"),
    ("pack half.csv", 5, "E603"),
    ("pack list.json", 5, "E603"),
    ("pack endless.csv", 5, "E107"),
    ("pack clash.csv", 5, "E504"),
    *(
        (command.format(endless), code, error)
        for endless, code, error in [("/dev/zero", 5, "E603"), ("hole.json", 5, "E603"), ("vast.json", 4, "E402")]
        for command in ["inspect {}", "plan {}", "verify {} plan.json", "verify step.json {}", "explain {}", "pack {}"]
    ),
]


@pytest.fixture
def bad_files(files: Path) -> Path:
    """The same directory with files that are no graph and no plan; a compressed one that is far too large."""
    (files / "empty.json").write_bytes(b"")
    (files / "noise.json").write_bytes(bytes(range(256)))
    (files / "foreign.json").write_text('{"format": "something-else", "version": 1}')
    text = (files / "step.json").read_bytes()
    (files / "half.json").write_bytes(text[: len(text) // 2])
    (files / "half.csv").write_text(BUFFERS[:-5])
    (files / "list.json").write_text('[{"id": "a", "lower": 0, "upper": 1, "size": 8}]')
    (files / "clash.csv").write_text("id,lower,upper,size,offset\nfirst,0,2,64,0\nfree,0,1,8,\nsecond,1,3,64,32\n")
    (files / "endless.csv").write_text(f"id,lower,upper,size\nearly,0,1,{1 << 62}\nlate,0,1,{1 << 62}\n")
    build(2, names="h" * (64 << 20)).save(str(files / "large.json.zst"))
    # Sparse: as long as a large disk, but only their beginning takes room on it.
    for name, size in [("hole.json", 4 << 30), ("vast.json", 1 << 40)]:
        (files / name).write_bytes(text)
        os.truncate(files / name, size)
    return files


def test_failures(bad_files: Path) -> None:
    before = sorted(bad_files.iterdir())
    for line, code, error in FAILURES:
        done = run(*line.split(), cwd=bad_files)
        assert (done.returncode, done.stdout) == (code, ""), line
        kind = "error: " if error == "usage" else f"error {error}"
        assert done.stderr.startswith(f"lowtide: {kind}"), line
        assert all(text.startswith("lowtide: ") for text in done.stderr.splitlines()), line

        command, *arguments = line.split() or ["--bogus"]
        done = run(command, "--json", *arguments, cwd=bad_files)
        assert (done.returncode, done.stderr) == (code, ""), line
        answer = json.loads(done.stdout)
        assert (answer["ok"], answer["exit_code"]) == (False, code), line
        assert answer["error"]["code"].startswith(error) and answer["error"]["message"], line
        assert ("culprits" in answer["error"]) == (code == 3), line
    assert sorted(bad_files.iterdir()) == before
    assert {code for _, code, _ in FAILURES} == {2, 3, 4, 5}


MESSAGES = [
    ("", "a command is missing: one of plan, verify, inspect, explain, pack"),
    ("--versoin", "there is no option --versoin"),
    ("plan --halp", "there is no option --halp"),
    ("plan step.json --halp", "there is no option --halp"),
    ("--quiet plan step.json", "--quiet comes before the command, but options come after it"),
    ("pack buffers.csv --time-limit nan", "--time-limit: expected a number from 0 to 1000000, got 'nan'"),
    ("pack buffers.csv --threads 0", "--threads: expected a whole number from 1 to 256, got '0'"),
    ("inspect step.json --top 1e3", "--top: expected a whole number from 0 on, below 2^64, got '1e3'"),
    ("plan step.json --memory-budget nan", "--memory-budget: 'nan' is not an amount: it does not begin with a digit"),
    ("plan step.json --latency-budget 20", "--latency-budget: '20' is not an amount: a unit is missing, one of ns, us"),
    ("pack buffers.csv --capacity 6G", "--capacity: '6G' is not an amount: 'G' is none of the units B, kB"),
    ("explain step.json --link 0GB/s", "--link: '0GB/s' is not an amount: a rate is above 0"),
    ("plan step.json --link 9GB/s", "--link: nothing leaves without a --memory-budget"),
]


def test_messages_name_the_option(files: Path) -> None:
    for line, message in MESSAGES:
        said = re.sub(r"^lowtide: error( E\d+)?: ", "", run(*line.split(), cwd=files).stderr)
        assert said.startswith(message), line


def test_help_as_a_word(files: Path) -> None:
    assert run("help", cwd=files).stdout == run("--help", cwd=files).stdout
    assert run("help", "plan", cwd=files).stdout == run("plan", "--help", cwd=files).stdout


def test_usage_errors_in_json(tmp_path: Path) -> None:
    for arguments in [["--json"], ["plan", "--json"], ["--json", "--bogus"], ["bogus", "--json"]]:
        done = run(*arguments, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (2, "")
        assert json.loads(done.stdout)["error"]["code"] == "usage"


def test_infeasible_in_json(files: Path) -> None:
    error = json.loads(run("plan", "step.json", "--memory-budget", "7KiB", "--json", cwd=files).stdout)["error"]
    assert error["bound_bytes"] == 7424 and error["step"] == 1
    assert error["culprits"] == [
        {"name": "h0", "role": "activation", "bytes": 1024, "source": "net.py:0"},
        {"name": "h1", "role": "activation", "bytes": 1024, "source": "net.py:1"},
        {"name": "workspace of aten::mul", "role": "workspace", "bytes": 256, "source": "net.py:1"},
    ]


def test_progress_on_a_terminal(files: Path) -> None:
    code, output, sent = on_terminal("plan", "step.json", "-o", "new.json", cwd=files)
    assert code == 0 and output.startswith("plan ")
    assert sent == f"{CLEAR}reading ...{CLEAR}planning ...{CLEAR}writing ...{CLEAR}"
    sent = on_terminal("verify", "step.json", "plan.json", cwd=files)[2]
    assert sent == f"{CLEAR}reading ...{CLEAR}verifying ...{CLEAR}"
    sent = on_terminal("inspect", "absent.json", cwd=files)[2]
    assert sent.startswith(f"{CLEAR}reading ...{CLEAR}lowtide: error E604")
    for flag in ["--json", "--quiet"]:
        assert on_terminal("plan", "step.json", flag, cwd=files)[2] == ""


def test_closed_pipe_is_no_failure(files: Path) -> None:
    for command, code in [("inspect step.json", 0), ("plan step.json -o new.json", 0), ("plan x.json --json", 5)]:
        read_end, write_end = os.pipe()
        os.close(read_end)
        done = subprocess.run([PROGRAM, *command.split()], cwd=files, stdout=write_end, stderr=subprocess.PIPE)
        os.close(write_end)
        assert (done.returncode, done.stderr) == (code, b""), command
    assert run("verify", "step.json", "new.json", cwd=files).returncode == 0


def test_full_disk_is_a_failure(files: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([PROGRAM, "inspect", "step.json"], cwd=files, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 5 and b"No space left on device" in done.stderr


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupt_while_reading(files: Path, sent: signal.Signals, code: int) -> None:
    os.mkfifo(files / "slow.json")
    before = sorted(files.iterdir())
    process = subprocess.Popen([PROGRAM, "plan", "slow.json", "-o", "new.json"], cwd=files, stderr=subprocess.PIPE)
    with open(files / "slow.json", "wb"):  # opens when the program does
        process.send_signal(sent)
        assert process.wait(timeout=60) == code
    assert process.communicate()[1] == b"" and sorted(files.iterdir()) == before


def test_interrupt_at_any_time_leaves_no_half_file(tmp_path: Path) -> None:
    build(4000).save(str(tmp_path / "step.json"))
    command = [PROGRAM, "plan", "step.json", "-o", "plan.json"]
    began = time.monotonic()
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    whole_time = time.monotonic() - began
    whole = (tmp_path / "plan.json").read_bytes()
    codes = []
    for i in range(20):
        (tmp_path / "plan.json").unlink(missing_ok=True)
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE)
        time.sleep(whole_time * (i + 1) / 20)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        codes.append(process.returncode)
        left = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != "step.json"}
        assert left in ({}, {"plan.json": whole})
    assert set(codes) <= {0, 130, -signal.SIGINT}  # the last: before it had begun
    assert 130 in codes


def test_other_programs_as_commands(tmp_path: Path) -> None:
    program = tmp_path / "lowtide-greet"
    program.write_text('#!/bin/sh\necho "$0: $1, $2"\nexit 7\n')
    program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{PATH}"
    done = run("greet", "a b", "--json", cwd=tmp_path, path=path)
    assert (done.returncode, done.stdout) == (7, f"{program}: a b, --json\n")

    assert f"  greet                             Run {program}\n" in run("--help", cwd=tmp_path, path=path).stdout

    done = run("greet", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "lowtide: error: 'greet' is no command, and no program lowtide-greet is beside this one or on the path\n"
        "lowtide: the commands are plan, verify, inspect, explain, pack"
    )
    (tmp_path / "lowtide-").mkdir()
    (tmp_path / "lowtide-" / "greet").write_text("")
    for name in ["", "/greet", "../greet", "x" * 5000]:
        assert run(name, cwd=tmp_path, path=path).returncode == 2
    program.write_text("#!/absent/interpreter\n")
    done = run("greet", cwd=tmp_path, path=path)
    assert done.stderr == (
        f"lowtide: error: cannot run {program}: No such file or directory\n"
        "lowtide: its first line names the program that runs it, which is missing\n"
    )
    program.chmod(0o644)
    done = run("greet", cwd=tmp_path, path=str(tmp_path))
    assert (done.returncode, done.stderr) == (2, f"lowtide: error: cannot run {program}: Permission denied\n")


def test_programs_beside_it_are_commands(tmp_path: Path) -> None:
    """As in an environment that is not activated, whose program is called by its path."""
    (tmp_path / "bin").mkdir()
    beside = tmp_path / "bin" / "lowtide"
    shutil.copy(PROGRAM, beside)
    (tmp_path / "lib").symlink_to(Path(PROGRAM).resolve().parents[1] / "lib")  # the wheel's libraries
    (tmp_path / "lowtide-fit").write_text("#!/bin/sh\necho on the path\n")
    (tmp_path / "lowtide-fit").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin"}

    def ask(*arguments: str, by: Path = beside) -> subprocess.CompletedProcess[str]:
        return subprocess.run([by, *arguments], env=environment, cwd=tmp_path, capture_output=True, text=True)

    assert ask("fit").stdout == "on the path\n"
    shutil.copy(tmp_path / "lowtide-fit", tmp_path / "bin")
    (tmp_path / "bin" / "lowtide-fit").write_text("#!/bin/sh\necho beside: $*\n")
    assert ask("fit", "a", "b").stdout == "beside: a b\n"
    (tmp_path / "link").symlink_to(beside)
    assert ask("fit", by=tmp_path / "link").stdout == "beside:\n"
    shown = ask("--help").stdout
    assert len(re.findall(r"^  fit +Say whether", shown, re.MULTILINE)) == 1
    for file in (tmp_path / "bin" / "lowtide-fit", tmp_path / "lowtide-fit"):
        file.unlink()
    assert not re.search(r"^  fit ", ask("--help").stdout, re.MULTILINE)
    assert "lowtide: fit is a part of the Python package" in ask("fit").stderr


def test_pipes(files: Path) -> None:
    """One with a slow writer is waited for; one without any is not."""
    os.mkfifo(files / "pipe.json")
    said = run("inspect", "pipe.json", cwd=files).stderr
    assert said.startswith("lowtide: error E604: pipe.json: expected a program that writes to this pipe")
    process = subprocess.Popen([PROGRAM, "inspect", "pipe.json"], cwd=files, stdout=subprocess.PIPE, text=True)
    with open(files / "pipe.json", "wb") as pipe:
        time.sleep(2.5)
        pipe.write((files / "step.json").read_bytes())
    assert process.communicate(timeout=60)[0] == build(3).summary() + "\n"
    piped = subprocess.run(
        [PROGRAM, "inspect", "/dev/stdin"], input=(files / "step.json.zst").read_bytes(), capture_output=True
    )
    assert piped.stdout.decode() == build(3).summary() + "\n"


def test_byte_order_marks_are_skipped(files: Path) -> None:
    for name, command in [("buffers.csv", "pack"), ("step.json", "inspect")]:
        plain = run(command, name, cwd=files).stdout
        (files / name).write_bytes(b"\xef\xbb\xbf" + (files / name).read_bytes())
        marked = run(command, name, cwd=files)
        assert (marked.returncode, marked.stdout) == (0, plain)


def test_memory_that_the_process_may_not_have(tmp_path: Path) -> None:
    """Where any thread runs out of it."""
    rows = "".join(f"{i},{i % 997},{i % 997 + 1 + i % 13},{1 + i % 7777}\n" for i in range(20_000))
    (tmp_path / "many.csv").write_text("id,lower,upper,size\n" + rows)
    limited = ["bash", "-c", 'ulimit -v 45000; exec "$@"', "-", PROGRAM, "pack", "many.csv", "--threads", "2", "--json"]
    done = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 4, done.stderr
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["message"]) == ("memory", "out of memory")


def test_strange_names(files: Path) -> None:
    shutil.copy(files / "step.json", files / "plan")
    shutil.copy(files / "step.json", files / "-x.json")
    assert run("inspect", "plan", cwd=files).returncode == 0
    assert run("inspect", "--", "-x.json", cwd=files).returncode == 0
    assert run("inspect", "-x.json", cwd=files).returncode == 2
    assert run("inspect", "", cwd=files).returncode == 5
    assert run("inspect", "x" * 100_000, cwd=files).returncode == 5
    answer = json.loads(run("inspect", b'\xff\xfe\x01"\\.json', "--json", cwd=files).stdout)
    assert answer["error"]["message"].startswith('��\x01"\\.json')


def test_names_in_a_file_give_no_orders_to_the_terminal(tmp_path: Path) -> None:
    build(3, names="\x1b[2J\x07\r\x9b").save(str(tmp_path / "step.json"))
    text = run("inspect", "step.json", cwd=tmp_path).stdout
    assert "?[2J???0" in text and not re.search(r"[^\x20-\x7e\n]", text)
    held = json.loads(run("inspect", "step.json", "--json", cwd=tmp_path).stdout)["held_by"]
    assert held[0]["name"] == "\x1b[2J\x07\r\x9b0"


def test_runs_without_python(files: Path) -> None:
    with open(PROGRAM, "rb") as program:
        assert program.read(4) == b"\x7fELF"
    linked = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=True).stdout
    assert "libpython" not in linked and "libtorch" not in linked
