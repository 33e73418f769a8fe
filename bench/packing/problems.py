"""Packing problems, each a pure function of a family, a number of buffers and a seed.

    python -m bench.packing.problems FAMILY SIZE SEED [-o problem.csv]

| family  | problem                                                             | fits into                     |
|---------|---------------------------------------------------------------------|-------------------------------|
| slicing | a square of time and addresses, cut apart; 0 to 5 % left out        | its side, by construction     |
| filled  | `random`, laid out by first fit; gaps at some moments are filled up | its bound, by construction    |
| zoo     | a window of time of a captured training step                        | not known                     |
| random  | many short lives, sizes over four orders of magnitude               | not known                     |
| tiled   | captured training steps one after another, all a little different   | not known                     |

The captured steps are those of `data/zoo`, which `zoo_lifetimes.py` makes.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

ZOO = Path(__file__).parents[1] / "data" / "zoo"
HEADER = "id,lower,upper,size"
UNIT = 64  # sizes of captured buffers are multiples of this, as offsets in a plan are


@dataclass(frozen=True)
class Problem:
    """Buffers that take `size` bytes in `[lower, upper)`; the position is the id unless `ids` says otherwise."""

    name: str
    lower: Numbers
    upper: Numbers
    size: Numbers
    fits: int | None = None  # an arena that is known to be large enough
    ids: Numbers | None = None

    def __len__(self) -> int:
        return len(self.size)

    @functools.cached_property
    def bound(self) -> int:
        """The most bytes alive at once."""
        changes = np.concatenate([self.size, -self.size])
        order = np.lexsort((changes, np.concatenate([self.lower, self.upper])))  # what ends goes first
        return int(np.cumsum(changes[order]).max(initial=0))

    def permuted(self, seed: int) -> Problem:
        """The same buffers in another order; seed 0 leaves them as they are."""
        if seed == 0:
            return self
        order = np.random.default_rng(seed).permutation(len(self))
        ids = np.arange(len(self)) if self.ids is None else self.ids
        return replace(self, lower=self.lower[order], upper=self.upper[order], size=self.size[order], ids=ids[order])

    def write(self, path: Path) -> None:
        ids = np.arange(len(self)) if self.ids is None else self.ids
        columns = (column.tolist() for column in (ids, self.lower, self.upper, self.size))
        rows = [f"{a},{b},{c},{d}" for a, b, c, d in zip(*columns, strict=True)]  # much faster than savetxt
        path.write_text("\n".join([HEADER, *rows, ""]))


def read(path: Path) -> Problem:
    """A problem from a CSV file whose ids are numbers."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        names = file.readline().strip().split(",")
        rows = np.loadtxt(file, dtype=np.int64, delimiter=",", ndmin=2)
    column = {name: rows[:, i] for i, name in enumerate(names)}
    name = path.name.removesuffix(".gz").removesuffix(".csv")
    return Problem(name, column["lower"], column["upper"], column["size"], ids=column["id"])


def make(family: str, size: int, seed: int) -> Problem:
    """About `size` buffers of that family."""
    # The family is part of the seed: no two families draw the same numbers.
    random = np.random.default_rng([seed, size, *family.encode()])
    problem = FAMILIES[family](random, size)
    return replace(problem, name=f"{family}-{size}-{seed}")


def slicing(random: np.random.Generator, size: int) -> Problem:
    """Guillotine cuts of a square of 1024, a rectangle out of six large ones at a time."""
    side = 1024
    left_out, across = random.uniform(0, 0.05), random.uniform(0.4, 0.6)
    cut = [(0, side, 0, side)]
    while len(cut) < size:
        some = random.integers(len(cut), size=6)
        chosen = max(some.tolist(), key=lambda i: (cut[i][1] - cut[i][0]) * (cut[i][3] - cut[i][2]))
        begin, end, low, high = cut[chosen]
        if random.random() > across and end - begin >= 2:
            middle = int(random.integers(begin + 1, end))
            cut[chosen] = (begin, middle, low, high)
            cut.append((middle, end, low, high))
        elif high - low >= 2:
            middle = int(random.integers(low + 1, high))
            cut[chosen] = (begin, end, low, middle)
            cut.append((begin, end, middle, high))
    rectangles = np.array(cut)[random.random(len(cut)) >= left_out]
    begin, end, low, high = random.permutation(rectangles).T
    return Problem("", begin, end, high - low, fits=side)


def random_sizes(random: np.random.Generator, count: int) -> Numbers:
    return 512 * np.exp(random.uniform(0, 9.7, count)).astype(np.int64)


def short_lives(random: np.random.Generator, size: int) -> Problem:
    """About a hundred of them alive at once."""
    lower = random.integers(size, size=size)
    life = 1 + random.exponential(min(100, size / 4), size).astype(np.int64)
    return Problem("", lower, lower + life, random_sizes(random, size))


def filled(random: np.random.Generator, size: int) -> Problem:
    """Two thirds are `random`; the rest fills gaps of their layout, at its highest moment and then at any others.

    So the most bytes alive are as many as the arena has.
    """
    base = short_lives(random, 2 * size // 3)
    layout = Filling(base)
    fullest = layout.lower[np.argmax(layout.offset + layout.size)]
    for moment in [fullest, *random.permutation(base.lower)]:
        if len(layout.size) >= size and moment != fullest:
            break
        layout.fill(int(moment), random)
    order = random.permutation(len(layout.size))
    return Problem("", layout.lower[order], layout.upper[order], layout.size[order], fits=layout.arena)


class Filling:
    """A layout, at first by first fit, whose gaps are then filled."""

    def __init__(self, problem: Problem) -> None:
        order = np.argsort(problem.lower, kind="stable")
        self.lower, self.upper, self.size = problem.lower[order], problem.upper[order], problem.size[order]
        self.offset = np.zeros(len(problem), dtype=np.int64)
        for i in range(len(problem)):
            alive = np.flatnonzero(self.upper[:i] > self.lower[i])
            place = 0
            for other in alive[np.argsort(self.offset[alive])]:
                if self.offset[other] - place >= self.size[i]:
                    break
                place = max(place, int(self.offset[other] + self.size[other]))
            self.offset[i] = place
        self.arena = int((self.offset + self.size).max())

    def fill(self, moment: int, random: np.random.Generator) -> None:
        """Puts buffers into all gaps at `moment`, which live as long as their gap is open, or a part of that."""
        alive = np.flatnonzero((self.lower <= moment) & (moment < self.upper))
        alive = alive[np.argsort(self.offset[alive])]
        gaps = zip(
            [0, *(self.offset + self.size)[alive].tolist()], [*self.offset[alive].tolist(), self.arena], strict=True
        )
        for low, high in gaps:
            while low < high:
                size = min(high - low, int(random_sizes(random, 1)[0]))
                self.put(moment, low, size, random)
                low += size

    def put(self, moment: int, offset: int, size: int, random: np.random.Generator) -> None:
        beside = (self.offset < offset + size) & (offset < self.offset + self.size)
        first = self.upper[beside & (self.upper <= moment)].max(initial=int(self.lower.min()))
        last = self.lower[beside & (self.lower > moment)].min(initial=int(self.upper.max()))
        share = random.choice([1.0, random.random()], size=2)  # half of the ends touch what is beside them
        lower = moment - int((moment - first) * share[0])
        upper = moment + 1 + int((last - moment - 1) * share[1])
        self.lower, self.upper = np.append(self.lower, lower), np.append(self.upper, upper)
        self.size, self.offset = np.append(self.size, size), np.append(self.offset, offset)


@functools.cache
def captured() -> tuple[Problem, ...]:
    """The lives of the buffers of captured training steps, by name."""
    steps = tuple(read(path) for path in sorted(ZOO.glob("*.csv.gz")))
    if not steps:
        raise FileNotFoundError(f"no captured steps in {ZOO}: python -m bench.packing.zoo_lifetimes makes them")
    return steps


def zoo(random: np.random.Generator, size: int) -> Problem:
    """The buffers of a window, with lives cut off at its ends."""
    large = [step for step in captured() if len(step) > size]
    step = large[random.integers(len(large))]
    while True:
        first = int(random.choice(step.lower))
        later = np.sort(step.lower[step.lower >= first])
        wanted = size - int(((step.lower < first) & (step.upper > first)).sum())
        if 0 < wanted <= len(later):
            break
    last = int(later[wanted - 1]) + 1
    inside = (step.lower < last) & (step.upper > first)
    lower = np.maximum(step.lower[inside], first) - first
    upper = np.minimum(step.upper[inside], last) - first
    return Problem("", lower, upper, step.size[inside])


def tiled(random: np.random.Generator, size: int) -> Problem:
    """One step after another, scaled to the same peak; each begin, end and size then changes by up to 3 %."""
    peak = 1 << 30
    parts: list[list[Numbers]] = []
    count, start = 0, 0
    while count < size:
        step = captured()[random.integers(len(captured()))]
        life = step.upper - step.lower
        jitter = random.uniform(-0.03, 0.03, (3, len(step)))
        lower = start + UNIT * step.lower + (jitter[0] * UNIT * life).astype(np.int64)
        upper = start + UNIT * step.upper + (jitter[1] * UNIT * life).astype(np.int64)
        scaled = step.size * (1 + jitter[2]) * peak / (UNIT * step.bound)
        parts.append([lower, upper, UNIT * np.maximum(1, scaled.astype(np.int64))])
        start += UNIT * int(step.upper.max())
        count += len(step)
    lower, upper, sizes = (np.concatenate(column)[:size] for column in zip(*parts, strict=True))
    return Problem("", lower - lower.min(), upper - lower.min(), sizes)


FAMILIES: dict[str, Callable[[np.random.Generator, int], Problem]] = {
    "slicing": slicing,
    "filled": filled,
    "zoo": zoo,
    "random": short_lives,
    "tiled": tiled,
}


def main() -> None:
    """Writes one problem."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("size", type=int, help="how many buffers, about")
    parser.add_argument("seed", type=int)
    parser.add_argument("-o", "--output", type=Path, default=Path("/dev/stdout"))
    options = parser.parse_args()
    problem = make(options.family, options.size, options.seed)
    problem.write(options.output)
    fits = "" if problem.fits is None else f", fits into {problem.fits}"
    print(f"{problem.name}: {len(problem)} buffers, {problem.bound} bytes alive at once{fits}", file=sys.stderr)


if __name__ == "__main__":
    main()
