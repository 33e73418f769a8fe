"""Packing: `lowtide pack` beside other packers, on hard problems, fresh ones, traces, and problems of up to a million.

    python -m bench run packing_table [--minimalloc PROGRAM] [--traces DIRECTORY] [SECTION ...]

| section     | asks                                                                                          |
|-------------|-----------------------------------------------------------------------------------------------|
| challenging | how long until the 11 problems of minimalloc fit into their capacity                          |
| fresh       | how many generated problems are packed into an arena of their bound, 10 s each                |
| prove       | how far from proven the best arena of the 11 is, without a capacity, after 60 s               |
| traces      | how close to the bound the arena of each CSV file in a directory is                           |
| scale       | the same for problems of 10,000, 100,000 and a million buffers; the worst of ten              |

Other packers are measured where they are there: minimalloc as a program, omnimalloc where it can be imported. All
answers are checked (check.py); one that is wrong is shown as such, and the exit code is then 1. Time limits
are of processor time, so that a busy machine changes no answer. Ours runs on one thread.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import shutil
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.lib.markdown import header, line
from bench.lib.progress import each
from bench.packing.packers import Answer, Lowtide, Packer, competitors
from bench.packing.problems import Problem, make, read

CHALLENGING = Path(__file__).parents[1] / "data" / "minimalloc"
CAPACITY = 1048576
MIB = 2**20
FRESH = {"slicing": (100, 500), "filled": (100, 1000), "zoo": (100, 2000)}  # families, from and to how many buffers


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    names: str = "ABCDEFGHIJK"
    permutations: int = 20  # of the input, ours only
    repeats: int = 5  # of each run, of which the median counts
    patience: float = 120  # seconds for each run of the challenging ones
    fresh: int = 100
    fresh_seconds: float = 10
    prove_seconds: float = 60
    scale: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    seeds: int = 10
    scale_seconds: float | None = None  # the work that is the program's default


QUICK = Sizes("CK", 2, 1, 20, 6, 1, 1, (1_000, 4_000), 2, 0.1)


class Bench:
    """One run: prints tables, and keeps every single answer."""

    def __init__(self, sizes: Sizes, ours: Packer, others: Sequence[Packer], traces: Path | None) -> None:
        self._sizes = sizes
        self._ours = ours
        self._others = others
        self._traces = traces
        self.answers: list[dict[str, Any]] = []
        self.wrong: list[str] = []

    def challenging(self) -> None:
        sizes = self._sizes
        print(f"Each at a capacity of {CAPACITY}; CPU s / packing s, medians of {sizes.repeats}. Ours is the median")
        print(f"of {sizes.permutations} permutations of the input, the worst any single run of these.\n")
        print(header(("", "buffers", "lowtide", "worst", *(other.name for other in self._others))))
        totals = {packer.name: [0.0, 0.0] for packer in self._packers()}
        for name in sizes.names:
            problem = self._hard(name)
            cells = []
            for packer in self._packers():
                permutations = sizes.permutations if packer is self._ours else 1
                runs = [
                    self._pack("challenging", packer, problem.permuted(seed), sizes.patience, CAPACITY)
                    for seed in range(permutations)
                    for _ in range(sizes.repeats)
                ]
                cells.append(_median_cell(runs, CAPACITY))
                if packer is self._ours:
                    cells.append(f"{max(run.cpu_seconds for run in runs):.3f}")
                totals[packer.name][0] += statistics.median(run.cpu_seconds for run in runs)
                totals[packer.name][1] += statistics.median(run.seconds for run in runs)
            _print_row(name, len(problem), *cells)
        ours = totals[self._ours.name]
        print("\nSums of the medians, and ours as a share of them:\n")
        print(header(("", "CPU s", "packing s", "ours / CPU s", "ours / packing s")))
        for name, (cpu, packing) in totals.items():
            _print_row(name, f"{cpu:.3f}", f"{packing:.3f}", f"{ours[0] / cpu:.5f}", f"{ours[1] / packing:.5f}")

    def fresh(self) -> None:
        sizes = self._sizes
        print(
            f"Packed into the arena that is known to be large enough, or (zoo) of the bound, in {sizes.fresh_seconds}"
        )
        print("CPU s. Open: nobody packed it, and it is not known to fit.\n")
        minimalloc = [other for other in self._others if other.name == "minimalloc"]
        packers = [self._ours, *minimalloc]
        columns = [f"{packer.name}{what}" for packer in packers for what in ("", ", median CPU s")]
        print(header(("family", "problems", *columns, "open")))
        lists: dict[str, list[str]] = {f"not packed by {packer.name}": [] for packer in packers} | {"open": []}
        for k, (family, (smallest, largest)) in enumerate(FRESH.items()):
            count = len(range(k, sizes.fresh, len(FRESH)))
            solved: list[list[float]] = [[] for _ in packers]
            open_before = len(lists["open"])
            for seed in range(count):
                size = smallest + (largest - smallest) * seed // max(1, count - 1)
                problem = make(family, size, seed)
                capacity = problem.bound if problem.fits is None else problem.fits
                verdicts = []
                for packer, times in zip(packers, solved, strict=True):
                    answer = self._pack("fresh", packer, problem, sizes.fresh_seconds, capacity)
                    verdicts.append(answer.verdict)
                    if answer.within(capacity):
                        times.append(answer.cpu_seconds)
                    else:
                        lists[f"not packed by {packer.name}"].append(f"{problem.name} ({answer.verdict})")
                if problem.fits is None and set(verdicts) == {"limit"}:
                    lists["open"].append(problem.name)
            cells = [cell for times in solved for cell in (f"{len(times)} of {count}", _median_text(times))]
            _print_row(family, count, *cells, len(lists["open"]) - open_before)
        for title, names in lists.items():
            print(f"\n{title}: {', '.join(names) or 'none'}")

    def prove(self) -> None:
        seconds = self._sizes.prove_seconds
        print(f"Ours, without a capacity and with work of about {seconds} s.\n")
        print(header(("", "most alive", "bound", "arena", "gap", "CPU s")))
        proven = 0
        for name in self._sizes.names:
            problem = self._hard(name)
            answer = self._pack("prove", self._ours, problem, seconds)
            if answer.arena is None or answer.bound is None:
                gap = answer.verdict
            elif answer.arena > answer.bound:
                gap = f"{100 * (answer.arena / answer.bound - 1):.2f} %"
            else:
                gap = "proven"
                proven += 1
            _print_row(name, problem.bound, answer.bound, answer.arena, gap, f"{answer.cpu_seconds:.2f}")
        print(f"\nproven: {proven} of {len(self._sizes.names)}")

    def traces(self) -> None:
        if self._traces is None:
            print("absent: --traces DIRECTORY")
            return
        print("Ours, with the work that is its default.\n")
        print(header(("trace", "buffers", "arena / bound", "seconds", "CPU s", "peak MiB")))
        for path in sorted(self._traces.glob("*.csv")):
            problem = read(path)
            answer = self._pack("traces", self._ours, problem, None)
            _print_row(
                problem.name, len(problem), _ratio(answer, problem), f"{answer.seconds:.2f}",
                f"{answer.cpu_seconds:.2f}", f"{answer.peak_bytes / MIB:.0f}",
            )  # fmt: skip

    def scale(self) -> None:
        sizes = self._sizes
        work = "that is its default" if sizes.scale_seconds is None else f"of about {sizes.scale_seconds} s"
        print(f"Ours, with the work {work}: the worst of {sizes.seeds} seeds in each column. Slope: the power of the")
        print("size by which the seconds grew from the row above.\n")
        print(header(("family", "buffers", "arena / bound", "at the bound", "seconds", "CPU s", "peak MiB", "slope")))
        above = []
        for family in ("tiled", "random"):
            last: tuple[int, float] | None = None
            for size in sizes.scale:
                worst: list[Answer] = []
                ratios = []
                for seed in range(sizes.seeds):
                    problem = make(family, size, seed)
                    answer = self._pack("scale", self._ours, problem, sizes.scale_seconds)
                    worst.append(answer)
                    ratios.append(_ratio(answer, problem))
                    if answer.arena != problem.bound:
                        above.append(f"{problem.name} ({ratios[-1]})")
                seconds = max(answer.seconds for answer in worst)
                slope = "" if last is None else f"{math.log(seconds / last[1]) / math.log(size / last[0]):.2f}"
                last = (size, seconds)
                _print_row(
                    family, size, max(ratios), f"{ratios.count('1.000000')} of {sizes.seeds}", f"{seconds:.2f}",
                    f"{max(a.cpu_seconds for a in worst):.2f}", f"{max(a.peak_bytes for a in worst) / MIB:.0f}", slope,
                )  # fmt: skip
        print(f"\nabove the bound: {', '.join(above) or 'none'}")

    def _packers(self) -> list[Packer]:
        return [self._ours, *self._others]

    def _hard(self, name: str) -> Problem:
        return dataclasses.replace(read(CHALLENGING / f"{name}.{CAPACITY}.csv"), name=name)

    def _pack(
        self, section: str, packer: Packer, problem: Problem, seconds: float | None, capacity: int | None = None
    ) -> Answer:
        answer = packer.pack(problem, seconds, capacity)
        if answer.verdict == "infeasible" and capacity is not None and capacity >= (problem.fits or math.inf):
            answer = dataclasses.replace(answer, verdict="wrong: it does fit")
        if answer.wrong:
            self.wrong.append(f"{packer.name} on {problem.name}: {answer.verdict}")
        record = {"section": section, "packer": packer.name, "problem": problem.name, "buffers": len(problem)}
        record |= {"most_alive": problem.bound, "capacity": capacity} | dataclasses.asdict(answer)
        self.answers.append(record)
        return answer


SECTIONS: dict[str, Callable[[Bench], None]] = {
    "challenging": Bench.challenging,
    "fresh": Bench.fresh,
    "prove": Bench.prove,
    "traces": Bench.traces,
    "scale": Bench.scale,
}


def _print_row(*cells: object) -> None:
    print(line(cells), flush=True)


def _median_text(times: Iterable[float]) -> str:
    values = list(times)
    return f"{statistics.median(values):.3f}" if values else "-"


def _median_cell(runs: Sequence[Answer], capacity: int) -> str:
    """CPU seconds and seconds, and how many of the runs failed."""
    failed = [run for run in runs if not run.within(capacity)]
    cell = f"{_median_text(run.cpu_seconds for run in runs)} / {_median_text(run.seconds for run in runs)}"
    return cell + (f", {len(failed)} of {len(runs)} failed ({failed[0].verdict})" if failed else "")


def _ratio(answer: Answer, problem: Problem) -> str:
    if answer.arena is None:
        return answer.verdict
    return f"{answer.arena / problem.bound if problem.bound else 1:.6f}"


def _sizes(options: argparse.Namespace) -> Sizes:
    given = {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(Sizes)
        if getattr(options, field.name, None) is not None
    }
    return dataclasses.replace(QUICK if options.quick else Sizes(), **given)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all if none is named"
    )
    parser.add_argument("--minimalloc", metavar="PROGRAM", type=Path, help="minimalloc's program")
    parser.add_argument("--lowtide", metavar="PROGRAM", type=Path, help="our program, if it is not the one on the path")
    parser.add_argument("--traces", metavar="DIRECTORY", type=Path, help="CSV files for the section traces")
    parser.add_argument("--quick", action="store_true", help="only a trial, of seconds")
    for field in dataclasses.fields(Sizes):
        if isinstance(field.default, int | float | str):
            parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), metavar="N")
    parser.add_argument("--scale", type=int, nargs="+", metavar="N")


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the tables; gives every single answer. Raises if one was wrong."""
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        raise SystemExit(f"expected sections of {', '.join(SECTIONS)}; got {', '.join(sorted(unknown))}")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    program = shutil.which(options.lowtide or "lowtide", path=path)
    if program is None:
        raise SystemExit("the program lowtide is not on the path: --lowtide PROGRAM")
    others, absent = competitors(options.minimalloc)
    for text in absent:
        print(text)
    bench = Bench(_sizes(options), Lowtide(program), others, options.traces)
    for name in each(options.sections or SECTIONS, "sections"):
        print(f"\n## {name}\n")
        SECTIONS[name](bench)
    if bench.wrong:
        raise SystemExit("\n".join(bench.wrong))
    return bench.answers
