"""What the README shows can be run as it stands, and the examples with it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PYTHON = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
# Installing is what .ci/run does before it runs this; every other command is run here.
INSTALLING = re.findall(r"^<!-- done by \.ci/run -->\n```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
SHELL = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
LINES = [line for block in SHELL if block not in INSTALLING for line in block.splitlines()]


def run(command: list[str], cwd: Path = ROOT) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the README's commands use, in which its Python has run: later commands take files it wrote."""
    directory = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "examples", directory / "examples")
    # One program, block after block. Running eager would warn.
    run([sys.executable, "-W", "error::RuntimeWarning", "-c", "\n".join(PYTHON)], directory)
    return directory


def test_the_readme_runs_every_example() -> None:
    assert PYTHON
    for script in (ROOT / "examples").glob("*.py"):
        assert any(f" examples/{script.name}" in line for line in LINES)


def test_code_blocks_are_of_known_kinds() -> None:
    kinds = re.findall(r"^```(\w*)\n.*?^```$", README, re.MULTILINE | re.DOTALL)
    assert set(kinds) <= {"python", "sh", "cmake", "text"}
    assert kinds.count("sh") == len(SHELL) and kinds.count("python") == len(PYTHON)


def test_ci_installs_what_the_readme_installs() -> None:
    assert INSTALLING
    done = (ROOT / ".ci" / "run").read_text() + (ROOT / ".ci" / "requirements.txt").read_text()
    for line in "".join(INSTALLING).splitlines():
        assert re.match(r"(pip|apt-get) install ", line), line
        for word in line.split()[2:]:
            assert word in done, word


def test_shell_of_the_readme(checkout: Path) -> None:
    for line in LINES:
        run(["bash", "-c", line], checkout)


def test_the_readme_shows_what_explain_prints(checkout: Path) -> None:
    shown = re.findall(r"^```text\n(peak .*?)^```", README, re.MULTILINE | re.DOTALL)
    printed = run([sys.executable, "examples/explain.py"], checkout).replace(f"{checkout}/", "")
    assert [text.split() for text in shown] == [printed.split()], "lines are broken where paths make them long"


def test_files_that_the_documents_name_exist() -> None:
    for page in ROOT.glob("*.md"):
        for name in re.findall(r"\]\(([\w./-]+)\)", page.read_text()):
            assert (ROOT / name).exists(), f"{page.name}: {name}"


def test_step_time_benchmark_runs() -> None:
    assert "planned / eager" in run([sys.executable, "bench/step_time.py", "--quick"])
