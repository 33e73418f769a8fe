"""A version of a step: a graph file, or what a function makes, here or as a commit of git has it.

version_at("0f84376", "train.py:make", ...)   the files of that commit in a folder of their own, in which another
                                               process captures the step
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from .. import _core
from .._base.program import UsageError, size
from .._report.program import graph_named
from .._report.source_lines import short, text_of
from ..errors import CaptureError
from .holders import Peak, Sources, peak_of


class Version(NamedTuple):
    """Its graph, and who holds its peak."""

    graph: _core.Graph
    peak: Peak


class Asked(NamedTuple):
    """What a step that is captured is captured for."""

    device: str | None = None
    batch: int | None = None
    length: int | None = None


def version_named(step: str, asked: Asked, *, is_now: bool) -> Version:
    """A graph file or `MODULE:FUNCTION`. Of a file, lines are read only if they are those of now, and to be shown."""
    graph = graph_named(step, *asked)
    as_captured = not Path(step).exists()
    sources = Sources(short, text_of if as_captured or is_now else _unknown, as_captured)
    return Version(graph, peak_of(graph, sources))


def _unknown(source: str) -> str:
    return ""


def version_at(revision: str, step: str, asked: Asked) -> Version:
    """As a commit has it; of a folder, as it is there."""
    with _files_of(revision) as folder:
        graph = _captured_in(folder, step, asked)
        inside = str(folder.resolve()) + os.sep

        def name_of(source: str) -> str:
            return source.removeprefix(inside) if source.startswith(inside) else short(source)

        return Version(graph, peak_of(graph, Sources(name_of, text_of, as_captured=True)))


@contextmanager
def _files_of(revision: str) -> Iterator[Path]:
    if Path(revision).is_dir():
        yield Path(revision)
        return
    if revision.startswith("-"):
        raise UsageError(f"{revision} is no commit")
    packed = subprocess.run(["git", "archive", "--format=tar", revision], capture_output=True)
    if packed.returncode:
        raise UsageError(f"git has no commit {revision} here: {packed.stderr.decode(errors='replace').strip()}")
    with tempfile.TemporaryDirectory(prefix="lowtide-diff-") as folder:
        with tarfile.open(fileobj=BytesIO(packed.stdout)) as files:
            files.extractall(folder, filter="data")
        yield Path(folder)


def _captured_in(folder: Path, step: str, asked: Asked) -> _core.Graph:
    """In a process of its own: two versions of one module cannot be imported side by side."""
    with tempfile.TemporaryDirectory(prefix="lowtide-diff-") as results:
        path = Path(results) / "step.json"
        command = [sys.executable, "-m", __name__, step, str(path)]
        for name, number in asked._asdict().items():
            command += [] if number is None else [f"--{name}={number}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            said = done.stderr.strip().splitlines()
            raise CaptureError(f"{step} in {folder}: {said[-1] if said else f'exit code {done.returncode}'}")
        return _core.Graph.load(path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Captures a step and writes its graph."""
    parser = argparse.ArgumentParser()
    parser.add_argument("step")
    parser.add_argument("graph")
    parser.add_argument("--device")
    parser.add_argument("--batch", type=size)
    parser.add_argument("--length", type=size)
    options = parser.parse_args(arguments)
    graph_named(options.step, options.device, options.batch, options.length).save(options.graph)


if __name__ == "__main__":
    main()
