"""What README and documents show can be run as it stands, and the examples with it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Pages whose Python goes on from the README's example, in an order in which later ones find files of earlier ones.
GOING_ON = [
    "docs/compile.md",
    "docs/cli.md",
    "docs/replay.md",
    "docs/explain.md",
    "docs/report.md",
    "docs/export.md",
    "docs/diff.md",
    "docs/swap.md",
]
ALONE = ["docs/adapt.md", "docs/tutorial.md", "docs/backend.md"]
PAGES = {name: (ROOT / name).read_text() for name in ["README.md", *GOING_ON, *ALONE]}
KINDS = {"python", "sh", "cmake", "cpp", "json", "text"}
# Installing is what .ci/run does before it runs this; every other command is run here.
INSTALLING = re.findall(r"^<!-- done by \.ci/run -->\n```sh\n(.*?)^```", PAGES["README.md"], re.MULTILINE | re.DOTALL)


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


LINES = [
    line
    for page in PAGES.values()
    for block in blocks(page, "sh")
    if block not in INSTALLING
    for line in block.splitlines()
]


def run(command: list[str], cwd: Path = ROOT) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the commands use, in which the Python of all pages has run: commands take files it wrote."""
    directory = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "examples", directory / "examples")
    # One process. The README runs first, and each page by itself from there.
    program = ["shown = {}", f"exec({''.join(blocks(PAGES['README.md'], 'python'))!r}, shown)"]
    for names, begin in ((GOING_ON, "dict(shown)"), (ALONE, "{}")):
        program += [f"exec({''.join(blocks(PAGES[name], 'python'))!r}, {begin})" for name in names]
    # Running eager would warn.
    run([sys.executable, "-W", "error::RuntimeWarning", "-c", "\n".join(program)], directory)
    return directory


def test_the_documents_run_every_example() -> None:
    for script in (ROOT / "examples").glob("*.py"):
        assert any(f" examples/{script.name}" in line for line in LINES), script.name


def test_every_page_with_python_or_commands_is_run() -> None:
    for file in sorted((ROOT / "docs").rglob("*.md")):
        name, page = str(file.relative_to(ROOT)), file.read_text()
        assert name in PAGES or not (blocks(page, "python") or blocks(page, "sh")), name
    assert all(blocks(page, "python") for page in PAGES.values())


@pytest.mark.parametrize("name", PAGES)
def test_code_blocks_are_of_known_kinds(name: str) -> None:
    kinds = re.findall(r"^```(\w*)\n.*?^```$", PAGES[name], re.MULTILINE | re.DOTALL)
    assert set(kinds) <= KINDS
    assert PAGES[name].count("\n```") == 2 * len(kinds)


def test_ci_installs_what_the_readme_installs() -> None:
    assert INSTALLING
    done = (ROOT / ".ci" / "run").read_text() + (ROOT / ".ci" / "requirements.txt").read_text()
    for line in "".join(INSTALLING).splitlines():
        assert re.match(r"(pip|apt-get) install ", line), line
        for word in line.split()[2:]:
            assert word in done, word


def test_shell_of_the_documents(checkout: Path) -> None:
    for line in LINES:
        run(["bash", "-c", line], checkout)


def test_the_documents_show_what_explain_prints(checkout: Path) -> None:
    shown = re.findall(r"^```text\n(peak .*?)^```", PAGES["docs/explain.md"], re.MULTILINE | re.DOTALL)
    printed = run([sys.executable, "examples/explain.py"], checkout).replace(f"{checkout}/", "")
    assert [text.split() for text in shown] == [printed.split()], "lines are broken where paths make them long"


def test_step_time_benchmark_runs() -> None:
    assert "planned / eager" in run([sys.executable, "-m", "bench", "run", "step_time", "--quick"])
