"""The table of rooms in ARCHITECTURE.md is what includes and imports show."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARIES = {  # how their headers begin
    "CLI11": ("CLI/",),
    "HiGHS": ("interfaces/highs_c_api.h",),
    "POSIX": ("fcntl.h", "linux/", "malloc.h", "poll.h", "pthread.h", "sys/", "unistd.h"),
    "liburing": ("liburing.h",),
    "libtorch": ("ATen/", "Python.h", "c10/", "pybind11/", "torch/"),
    "nanobind": ("nanobind/",),
    "oneTBB": ("tbb/",),
    "simdjson": ("simdjson.h",),
    "zstd": ("zstd.h", "zstd_errors.h"),
}
EXTENSIONS = {"_core", "_torch", "_torch_cuda"}


def rooms_of(root: Path) -> dict[str, set[str]]:
    """By path, what a room may use."""
    page = (root / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| `([\w/]+)/` \|.*\| ?([^|]*) \|$", page.partition("| room |")[2].partition("\n\n")[0], re.M)
    return {path: set(filter(None, may_use.split(", "))) for path, may_use in rows}


def room_of(path: str, rooms: dict[str, set[str]]) -> str:
    """The innermost room around a file."""
    return max((room for room in rooms if path.startswith(f"{room}/")), key=len, default="")


def included(file: Path, root: Path) -> Iterator[str]:
    """The rooms and libraries whose headers a file includes."""
    for header in re.findall(r'^#include [<"]([^>"]+)[>"]', file.read_text(), re.M):
        library = [name for name, beginnings in LIBRARIES.items() if header.startswith(beginnings)]
        if (root / "src" / header).exists():
            yield header.partition("/")[0]
        elif library:
            yield library[0]
        elif (file.parent / header).exists():
            continue
        elif header.startswith("lowtide/"):
            yield "include"
        elif (root / "tests/cpp" / header).exists():
            yield "tests/cpp"
        elif header.endswith(".h") and not header.startswith(("gmock/", "gtest/")):
            yield f"<{header}>"


def imported(file: Path, package: Path) -> Iterator[str]:
    """The packages of ours, or modules that are in none, that a file imports."""
    folder = file.parent.relative_to(package).parts

    def visit(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if isinstance(node, ast.ImportFrom) and node.level:
            found = folder[: len(folder) + 1 - node.level] + tuple((node.module or "").split("."))
            yield from [found[0]] if found[0] else [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "lowtide":
            yield (node.module or "").split(".")[1]
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    for name in visit(ast.parse(file.read_text())):
        if name not in EXTENSIONS:
            yield name


def offences(root: Path) -> list[str]:
    """What the table does not allow, and what it allows though nobody does it."""
    rooms = rooms_of(root)
    package = root / "python/lowtide"
    used: dict[str, set[str]] = {room: set() for room in rooms}
    found = []
    for pattern, uses, base in (("*.h", included, root), ("*.cc", included, root), ("*.py", imported, package)):
        for file in sorted(
            path for top in ("include", "src", "cli", "fuzz", "python") for path in (root / top).rglob(pattern)
        ):
            path = str(file.relative_to(root))
            room = room_of(path, rooms)
            if not room:
                found.append(f"{path} is in no room")
            elif rooms[room] != {"all"}:
                others = (
                    set(uses(file, base)) - {Path(room).name} - ({"include"} if room == "include/lowtide" else set())
                )
                used[room] |= others
                found += [f"{path} uses {other}" for other in sorted(others - rooms[room])]
    for room, may_use in rooms.items():
        found += [f"{room} never uses {other}" for other in sorted(may_use - used[room] - {"all"})]
    return found


def test_every_include_and_import_is_in_the_table():
    assert len(rooms_of(ROOT)) > 30
    assert offences(ROOT) == []


PLANTED = {
    "src/verify/planted.cc": ('#include "order/best.h"\n', "uses order"),
    "src/plan/planted.h": ("#include <simdjson.h>\n", "uses simdjson"),
    "src/eager/planted.cc": ("#include <tbb/parallel_for.h>\n", "uses oneTBB"),
    "src/graph/planted.cc": ("#include <unknown.h>\n", "uses <unknown.h>"),
    "src/nowhere/planted.cc": ("\n", "is in no room"),
    "python/lowtide/_base/planted.py": ("from .._guards import walk\n", "uses _guards"),
    "python/lowtide/_adapt/planted.py": ("def late():\n    from .._step.program import assemble\n", "uses _step"),
    "python/lowtide/_oom/planted.py": ("from lowtide._fit.report import FitReport\n", "uses _fit"),
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for top in ("include", "src", "cli", "fuzz", "python", "tests/cpp"):
        shutil.copytree(ROOT / top, root / top, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copy(ROOT / "ARCHITECTURE.md", root)
    return root


@pytest.mark.parametrize("path", PLANTED)
def test_planted_ones_are_found(copy: Path, path: str):
    text, offence = PLANTED[path]
    file = copy / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    try:
        assert offences(copy) == [f"{path} {offence}"]
    finally:
        file.unlink()
