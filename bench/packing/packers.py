"""Packers behind one call: ours, and those that it is measured beside. Every answer is checked.

    answer = Lowtide("lowtide").pack(problem, capacity=1048576, seconds=10)

Each runs as a program of its own on a CSV file. Seconds are those of packing alone, as the packer itself has them; CPU
seconds are the whole program's, but for omnimalloc, whose program starts Python first.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import signal
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from bench.lib.apart import ROOT, command_of
from bench.lib.measured_run import Run, measure
from bench.packing.check import WrongLayoutError, arena_of
from bench.packing.problems import Problem

STEPS_A_SECOND = 750_000_000  # cautious: an answer that comes too late counts as none
OUT_OF_TIME = (-signal.SIGXCPU, -signal.SIGKILL)


@dataclass(frozen=True)
class Answer:
    """What came of a problem."""

    verdict: str  # "packed", "infeasible" for a capacity that is said to be too small, "limit", or "wrong: " and why
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    arena: int | None = None
    bound: int | None = None  # what the packer says to have proven

    @property
    def wrong(self) -> bool:
        return self.verdict.startswith("wrong")

    def within(self, capacity: int) -> bool:
        return self.verdict == "packed" and self.arena is not None and self.arena <= capacity


class Packer(Protocol):
    """A program that packs."""

    name: str

    def pack(self, problem: Problem, seconds: float | None, capacity: int | None = None) -> Answer:
        """An arena, one of that capacity if there is one, in so many seconds of one processor (None: its default)."""


class Lowtide:
    """Ours."""

    name = "lowtide"

    def __init__(self, program: str) -> None:
        self._program = program

    def pack(self, problem: Problem, seconds: float | None, capacity: int | None = None) -> Answer:
        """Without a capacity it always answers, and may take longer; with one it is held to the time."""
        with _files(problem) as (path, output):
            command = [self._program, "pack", str(path), "-o", str(output), "--threads", "1", "--json"]
            if seconds is not None:
                command += ["--work", str(round(seconds * STEPS_A_SECOND))]
            if capacity is not None:
                command += ["--capacity", str(capacity)]
            run = measure(command, cpu_seconds=seconds if capacity is not None else None)
            if run.code in OUT_OF_TIME:
                return _answer("limit", run)
            said = json.loads(run.stdout)
            if not said["ok"]:
                return _answer({3: "infeasible", 4: "limit"}.get(said["exit_code"], f"wrong: {run.stdout}"), run)
            answer = _checked(problem, output, replace(_answer("packed", run), seconds=said["seconds"]))
        if not answer.wrong and answer.arena != said["arena_bytes"]:
            return replace(answer, verdict=f"wrong: an arena of {answer.arena} is said to be {said['arena_bytes']}")
        return replace(answer, bound=said["bound_bytes"])


class Minimalloc:
    """The solver of google/minimalloc."""

    name = "minimalloc"

    def __init__(self, program: Path) -> None:
        self._program = str(program)

    def pack(self, problem: Problem, seconds: float | None, capacity: int | None = None) -> Answer:
        with _files(problem) as (path, output):
            command = [self._program, f"--input={path}", f"--output={output}"]
            command += [f"--capacity={problem.size.sum() if capacity is None else capacity}"]
            if capacity is None:
                command += ["--minimize_capacity"]
            run = measure(command, cpu_seconds=seconds, memory_bytes=4 << 30)
            elapsed = re.search(r"Elapsed time ([\d.]+)s", run.stderr)
            if elapsed is None:  # ended by the limit on time or on memory
                return _answer("limit", run)
            answer = replace(_answer("packed", run), seconds=float(elapsed[1]))
            if run.code == 0:
                return _checked(problem, output, answer)
            return replace(answer, verdict="infeasible" if "NOT_FOUND" in run.stderr else f"wrong: {run.stderr}")


class Supermalloc:
    """The strongest of omnimalloc's allocators.

    Its limit is of the clock, however many threads it has; a round of its search that finds an arena goes on to the
    limit if any thread still looks for a smaller one.
    """

    def __init__(self, threads: int = 12) -> None:
        self.name = f"supermalloc, {threads} threads"
        self._threads = threads

    def pack(self, problem: Problem, seconds: float | None, capacity: int | None = None) -> Answer:
        with _files(problem) as (path, output):
            arguments = [str(path), str(output), str(self._threads), str(seconds or 3)]
            arguments += [] if capacity is None else [str(capacity)]
            command = command_of("bench.packing.omnimalloc_run", *arguments)
            run = measure(command, memory_bytes=16 << 30, cwd=ROOT)
            if run.code != 0:
                return _answer(f"wrong: {run.stderr}", run)
            said = json.loads(run.stdout)
            answer = replace(_answer("packed", run), seconds=said["seconds"], cpu_seconds=said["cpu_seconds"])
            return _checked(problem, output, answer)


def competitors(minimalloc: Path | None) -> tuple[list[Packer], list[str]]:
    """Those that are there, and what is said of the others."""
    found: list[Packer] = []
    absent = []
    if minimalloc is not None:
        found.append(Minimalloc(minimalloc))
    else:
        absent.append("minimalloc is absent: --minimalloc PROGRAM")
    if importlib.util.find_spec("omnimalloc") is not None:
        found.append(Supermalloc())
    else:
        absent.append("omnimalloc is absent: it cannot be imported")
    return found, absent


@contextlib.contextmanager
def _files(problem: Problem) -> Iterator[tuple[Path, Path]]:
    """One with the problem, and one to be written; both are gone in the end."""
    with tempfile.TemporaryDirectory() as directory:
        path, output = Path(directory) / "problem.csv", Path(directory) / "packed.csv"
        problem.write(path)
        yield path, output


def _answer(verdict: str, run: Run) -> Answer:
    return Answer(verdict, run.seconds, run.cpu_seconds, run.peak_bytes)


def _checked(problem: Problem, output: Path, answer: Answer) -> Answer:
    """With the arena that the offsets in the file take, if they are right."""
    with output.open() as file:
        names = file.readline().strip().split(",")
        rows = np.loadtxt(file, dtype=np.int64, delimiter=",", ndmin=2)
    rows = rows[np.argsort(rows[:, names.index("id")])]
    order = np.arange(len(problem)) if problem.ids is None else np.argsort(problem.ids)
    same: Sequence[bool] = [
        len(rows) == len(problem) and np.array_equal(rows[:, names.index(name)], getattr(problem, name)[order])
        for name in ("lower", "upper", "size")
    ]
    if not all(same):
        return replace(answer, verdict="wrong: these are other buffers")
    offsets = np.empty(len(problem), dtype=np.int64)
    offsets[order] = rows[:, names.index("offset")]
    try:
        return replace(answer, arena=arena_of(problem, offsets))
    except WrongLayoutError as why:
        return replace(answer, verdict=f"wrong: {why}")
