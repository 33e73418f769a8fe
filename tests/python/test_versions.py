"""Another PyTorch than those that are tested, or none: eager with one warning, or refused by name, with what to do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import lowtide
from lowtide import versions

EAGER_INSTEAD = ["CompiledStep", "Replay", "adapt", "compile", "replay"]
NEED_TORCH = ["CompiledStep", "capture", "compile", "explain_oom", "fit", "measure", "put_away"]
NEWEST = f"pip install torch=={versions.TESTED[-1]}.*"


def run(code: str, *paths: Path) -> str:
    """What `code` prints, with a lowtide that finds its packages in `paths` first."""
    package = Path(lowtide.__file__).parent.parent
    path = os.pathsep.join(map(str, (*paths, package)))
    variables = {name: value for name, value in os.environ.items() if name != "LOWTIDE_UNTESTED"}
    variables["PYTHONPATH"] = path
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=60)
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
        print(name, getattr(lowtide, name).__class__.__name__)
    except ImportError as error:
        print(error)
assert "lowtide._torch" not in sys.modules
print(lowtide.Plan.__name__, lowtide.plan.__name__)
"""


def untested(version: str) -> str:
    tested = " and ".join(", ".join(versions.TESTED).rsplit(", ", 1))
    said = f"lowtide {lowtide.__version__} is tested with PyTorch {tested}, this is {version}"
    return f"{said}: {NEWEST}, or set LOWTIDE_UNTESTED=1"


@pytest.mark.parametrize("version", ["2.12.0", "2.12.1+cpu", "2.130.0", "3.0.0", "2.99.0a0+git123"])
def test_what_cannot_do_without_planning_is_refused_by_name(version, tmp_path):
    said = run(TRY_ALL, torch_of(tmp_path, version)).splitlines()
    refused = [f"lowtide.{name}: {untested(version)}" for name in NEED_TORCH if name not in EAGER_INSTEAD]
    assert [line for line in said if line.startswith("lowtide.")] == refused
    assert said[0].split() == ["CompiledStep", "type"] and said[-1] == "Plan plan"


def test_another_version_may_be_imported_first(tmp_path):
    assert run("import torch, lowtide\nprint(lowtide.Plan.__name__)", torch_of(tmp_path, "2.12.0")) == "Plan"


def test_a_version_without_an_extension_says_so(tmp_path):
    code = """
import os
os.environ["LOWTIDE_UNTESTED"] = "1"
import lowtide
try:
    lowtide.measure
except ImportError as error:
    print(error)
"""
    said = run(code, torch_of(tmp_path, "2.99.0"))
    assert said.startswith(f"lowtide.measure: lowtide {lowtide.__version__} was built for PyTorch 2.")
    assert "this is 2.99.0: build it beside this one, pip install" in said


EAGERLY = """
import warnings
import lowtide

class Model:
    pass

def train(x):
    return x + 1

step = lowtide.compile(train, model=Model(), optimizer=None)
decorated = lowtide.compile(model=Model(), memory_budget="60%", on_unsupported="eager")(train)
refusing = lowtide.compile(train, model=Model(), memory_budget="60%")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(step(1), step(2), step.__name__, step.stats()["eager_calls"], isinstance(step, lowtide.CompiledStep))
    print(len(caught), caught[0].message)
    print(decorated(3), decorated(4), len(caught), caught[1].message)
    try:
        refusing(5)
    except lowtide.CaptureError as error:
        print(error)
    print(len(caught), step.summary())
    with lowtide.replay(profiles=4) as replay:
        replay.step()
    print(len(caught), caught[2].message, replay.stats().iterations)
    with lowtide.adapt(Model(), memory_budget="1GiB") as adapter:
        print(adapter.run(lambda: 7), adapter.stats()["batches"])
    print(len(caught), caught[3].message)
    try:
        lowtide.adapt(Model(), memory_budget="1GiB", enforce=True)
    except lowtide.CaptureError as error:
        print(error)
    print(len(caught))
"""


def test_what_is_to_be_planned_runs_eager_with_one_warning(tmp_path):
    reason = untested("2.12.0")
    assert run(EAGERLY, torch_of(tmp_path, "2.12.0")).splitlines() == [
        "2 3 train 2 True",
        f"1 lowtide: train runs eager: {reason}",
        f"4 5 2 lowtide: train runs eager: {reason}; memory_budget is not kept",
        f'{reason}; eager, memory_budget is not kept: on_unsupported="eager" allows that',
        f"2 lowtide: train runs eager: {reason}; 2 eager calls",
        f"3 lowtide: the loop in lowtide.replay() runs eager: {reason} 0",
        "7 0",
        f"4 lowtide: Model runs eager: {reason}; memory_budget is not kept",
        f"{reason}; memory_budget cannot be enforced",
        "4",
    ]


def test_without_pytorch_the_core_works_and_the_rest_says_what_to_install():
    said = run("import sys\n" + HIDDEN + TRY_ALL).splitlines()
    expected = [f"lowtide.{name} needs PyTorch, and there is none: {NEWEST}" for name in NEED_TORCH]
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


def test_the_version_is_written_in_one_place():
    root = Path(__file__).parents[2]
    said = re.search(r"^version: (.+)$", (root / "CITATION.cff").read_text(), re.MULTILINE)
    assert said is not None and said[1] == lowtide.__version__
    others = [root / "CMakeLists.txt", root / "pyproject.toml"]
    assert not any(lowtide.__version__ in path.read_text() for path in others)


def test_this_version_is_the_right_one():
    assert versions.minor_of(torch.__version__) in versions.TESTED
    assert callable(lowtide.compile)


def test_the_extension_lies_in_the_folder_of_its_pytorch():
    folder = Path(lowtide.__file__).parent / "_for_torch" / ".".join(torch.__version__.split(".")[:2])
    assert Path(lowtide._torch.__file__).parent == folder


FIND = """
import lowtide
found = [entry for entry in lowtide.__path__ if "_for_torch" in entry]
print(*(entry.rpartition("/")[2] for entry in found))
"""


def test_the_folder_is_found_without_pytorch_being_imported(tmp_path):
    with_version = torch_of(tmp_path, "2.14.1+cu130")
    (with_version / "torch" / "version.py").write_text("__all__ = []\n__version__ = '2.14.1+cu130'\n")
    (with_version / "torch" / "__init__.py").write_text("raise AssertionError('imported')\n")
    assert run(FIND, with_version) == "2.14"
    assert run("import sys\n" + HIDDEN + FIND) == ""
    other = tmp_path / "other"
    other.mkdir()
    assert run("import torch" + FIND, torch_of(other, "2.13.9")) == "2.13"
