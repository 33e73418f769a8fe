"""What the README shows can be run as it stands, and the examples with it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PYTHON = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
SHELL = re.findall(r"^<!-- runs as it stands -->\n```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
LINES = "".join(SHELL).splitlines()


def run(command: list[str]) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_runs_every_example() -> None:
    assert PYTHON
    for script in (ROOT / "examples").glob("*.py"):
        assert f"python examples/{script.name}" in LINES


@pytest.mark.parametrize("code", PYTHON, ids=range(len(PYTHON)))
def test_python_of_the_readme(code: str) -> None:
    run([sys.executable, "-W", "error::RuntimeWarning", "-c", code])  # running eager would warn


@pytest.mark.parametrize("line", LINES)
def test_shell_of_the_readme(line: str) -> None:
    run(["bash", "-c", line])


def test_files_that_the_documents_name_exist() -> None:
    for page in ROOT.glob("*.md"):
        for name in re.findall(r"\]\(([\w./-]+)\)", page.read_text()):
            assert (ROOT / name).exists(), f"{page.name}: {name}"


def test_step_time_benchmark_runs() -> None:
    assert "planned / eager" in run([sys.executable, "bench/step_time.py", "--quick"])
