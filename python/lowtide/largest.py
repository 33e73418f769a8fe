"""The largest number that fits, asked for as rarely as possible: each question takes seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

LIMIT = 2**16


def largest_that_fits(probe: Callable[[int], tuple[bool, int | None]], capacity: int, starts: Iterable[int]) -> int:
    """The largest number, up to `LIMIT`, for which `probe` says that it fits; 0 if none does.

    `probe(number)` gives whether it fits, and the bytes that it needs, or none if they cannot be told. Bytes are taken
    to grow along a line, which says where to look, after some numbers to start with; what decides is `probe` alone: the
    answer has been seen to fit, and the number after it not to.
    """
    low, high, stride = 0, LIMIT + 1, 1
    needed: dict[int, int] = {}
    waiting = deque(starts)
    while high - low > 1:
        guess = waiting.popleft()
        fits, size = probe(guess)
        if size is not None:
            needed[guess] = size
        low, high = (max(low, guess), high) if fits else (low, min(high, guess))
        if waiting:
            continue
        predicted = _where_it_crosses(needed, capacity)
        if predicted is None:
            predicted = 2 * low if fits else (low + high) // 2
        if predicted >= high and high not in needed and high <= LIMIT:  # what cannot be told says nothing about a line
            predicted = (low + high) // 2
        elif not low < predicted < high:  # the line is wrong by a little: ever larger steps away from what it says
            predicted = low + stride if predicted <= low else high - stride
            stride *= 2
        waiting.append(min(max(predicted, low + 1), high - 1))
    return low


def _where_it_crosses(needed: Mapping[int, int], capacity: int) -> int | None:
    """By the two numbers whose bytes are nearest to the capacity; none if there is no growth to be seen.

    A single number is taken to need bytes in proportion.
    """
    if not needed:
        return None
    points = {0: 0} if len(needed) == 1 else {}
    points.update(needed)
    one, other = sorted(sorted(points, key=lambda number: abs(points[number] - capacity))[:2])
    growth = points[other] - points[one]
    return one + (capacity - points[one]) * (other - one) // growth if growth > 0 else None
