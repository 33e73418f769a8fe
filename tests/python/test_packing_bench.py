"""The benchmark of packing: its problems are what they are said to be, its check finds every overlap, and it runs."""

import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import main
from bench.packing import table as packing
from bench.packing.check import WrongLayoutError, arena_of
from bench.packing.problems import FAMILIES, Problem, make, read
from program import PROGRAM


@pytest.mark.parametrize("family", FAMILIES)
def test_problems_are_pure_functions_of_family_size_and_seed(family: str, tmp_path: Path) -> None:
    one, same, other = make(family, 400, 7), make(family, 400, 7), make(family, 400, 8)
    for name in ("lower", "upper", "size"):
        assert np.array_equal(getattr(one, name), getattr(same, name))
    assert not np.array_equal(one.size, other.size)
    assert 350 <= len(one) <= 500
    assert (one.lower >= 0).all() and (one.lower < one.upper).all() and (one.size > 0).all()
    alive = [one.size[(one.lower <= moment) & (moment < one.upper)].sum() for moment in one.lower]
    assert one.bound == max(alive)

    one.permuted(3).write(tmp_path / "problem.csv")
    again = read(tmp_path / "problem.csv")
    assert again.ids is not None and not np.array_equal(again.ids, np.arange(len(one)))
    assert np.array_equal(again.upper[np.argsort(again.ids)], one.upper)


@pytest.mark.parametrize("seed", range(5))
def test_what_fits_by_construction_is_as_full_as_it_can_be(seed: int) -> None:
    filled, slicing = make("filled", 200, seed), make("slicing", 200, seed)
    assert filled.fits == filled.bound
    assert slicing.fits == 1024 and 1000 <= slicing.bound <= 1024


def right(problem: Problem, offset: np.ndarray) -> bool:
    rows = list(zip(problem.lower, problem.upper, offset, offset + problem.size, strict=True))
    there = [row for row in rows if row[0] < row[1] and row[2] < row[3]]
    return not any(
        a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3] for a, b in itertools.combinations(there, 2)
    )


def test_check_finds_every_overlap() -> None:
    seen = []
    for seed in range(1000):
        random = np.random.default_rng(seed)
        count = random.integers(1, 9)
        lower = random.integers(12, size=count)
        problem = Problem("", lower, lower + random.integers(6, size=count), random.integers(4, size=count))
        offset = random.integers(14, size=count)
        try:
            ends = (offset + problem.size)[(problem.size > 0) & (problem.lower < problem.upper)]
            assert arena_of(problem, offset) == max(ends, default=0)
            seen.append(True)
        except WrongLayoutError:
            seen.append(False)
        assert seen[-1] == right(problem, offset), seed
    assert 200 < sum(seen) < 900


def test_benchmark_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make("zoo", 300, 1).write(tmp_path / "window.csv")
    arguments = ["--quick", "--lowtide", PROGRAM, "--traces", str(tmp_path), "--json"]
    assert main(["run", "packing_table", *arguments, *packing.SECTIONS]) == 0
    printed = capsys.readouterr()
    answers = json.loads(printed.out)["figures"]
    assert {answer["section"] for answer in answers} == set(packing.SECTIONS)
    assert all(answer["verdict"] == "packed" for answer in answers if answer["section"] != "fresh")
    assert all(answer["arena"] <= 1048576 for answer in answers if answer["section"] == "challenging")
    text = printed.err
    assert "minimalloc is absent" in text and "proven: 2 of 2" in text and "| window | 300 | 1.000000 |" in text


FAKE = """#!{python}
import sys
given = dict(argument[2:].split("=") for argument in sys.argv[1:])
header, *rows = open(given["input"]).read().split()
open(given["output"], "w").write("\\n".join([header + ",offset", *(row + ",0" for row in rows), ""]))
print("Elapsed time 0.001s", file=sys.stderr)
"""


def test_a_wrong_answer_is_seen(tmp_path: Path) -> None:
    program = tmp_path / "minimalloc"
    program.write_text(FAKE.format(python=sys.executable))
    program.chmod(0o755)
    arguments = ["--quick", "--lowtide", PROGRAM, "--minimalloc", str(program), "--names", "C", "challenging"]
    with pytest.raises(SystemExit, match="minimalloc on C: wrong: rows "):
        main(["run", "packing_table", *arguments])
