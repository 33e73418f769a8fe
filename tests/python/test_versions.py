"""Another PyTorch than ours, or none: refused by name, with what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import lowtide

NEED_TORCH = ["compile", "measure", "capture", "CompiledStep"]


def run(code: str, *paths: Path) -> str:
    """What `code` prints, with a lowtide that finds its packages in `paths` first."""
    package = Path(lowtide.__file__).parent.parent
    path = os.pathsep.join(map(str, (*paths, package)))
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def torch_of(directory: Path, version: str) -> Path:
    """A directory with a package that is PyTorch by its name and its version only."""
    (directory / "torch").mkdir()
    (directory / "torch" / "__init__.py").write_text(f"__version__ = {version!r}\n")
    return directory


TRY_ALL = f"""
import sys
import lowtide
assert "torch" not in sys.modules
for name in {NEED_TORCH}:
    try:
        getattr(lowtide, name)
    except ImportError as error:
        print(error)
assert "lowtide._torch" not in sys.modules
print(lowtide.Plan.__name__, lowtide.plan.__name__)
"""


@pytest.mark.parametrize("version", ["2.12.0", "2.12.1+cpu", "2.130.0", "3.0.0", "2.14.0a0+git123"])
def test_another_version_is_refused_by_name(version, tmp_path):
    said = run(TRY_ALL, torch_of(tmp_path, version)).splitlines()
    expected = f"lowtide 0.1.0 works with PyTorch 2.13; this is {version}: pip install torch==2.13.0"
    assert said == [expected] * len(NEED_TORCH) + ["Plan plan"]


def test_another_version_that_is_imported_already_is_refused_at_import(tmp_path):
    code = """
import torch
try:
    import lowtide
except ImportError as error:
    print(error)
"""
    assert "this is 2.12.0" in run(code, torch_of(tmp_path, "2.12.0"))


def test_without_pytorch_the_core_works_and_the_rest_says_what_to_install():
    said = run("import sys\n" + HIDDEN + TRY_ALL).splitlines()
    expected = [
        f"lowtide.{name} needs PyTorch 2.13, and there is none: pip install torch==2.13.0" for name in NEED_TORCH
    ]
    assert said == [*expected, "Plan plan"]


HIDDEN = """
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Hide())
"""


def test_a_broken_pytorch_says_so_itself(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("import a_library_that_is_not_there\n")
    code = """
import lowtide
try:
    lowtide.compile
except ImportError as error:
    print(error)
"""
    assert run(code, tmp_path) == "No module named 'a_library_that_is_not_there'"


def test_this_version_is_the_right_one():
    assert str(torch.__version__).startswith("2.13.")
    assert callable(lowtide.compile)
    assert lowtide.__version__ == "0.1.0"
