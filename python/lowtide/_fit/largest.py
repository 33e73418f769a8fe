"""The largest number that fits, asked for as rarely as possible: each question takes seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

LIMIT = 2**24  # nothing larger is tried by itself


def largest_that_fits(probe: Callable[[int], tuple[bool, int | None]], capacity: int, starts: Iterable[int]) -> int:
    """The largest number for which `probe` says that it fits; 0 if none does.

    `probe(number)` gives whether it fits, and the bytes that it needs, or none if they cannot be told. Bytes are taken
    to grow along a line, which says where to look, after some numbers to start with; what decides is `probe` alone: the
    answer has been seen to fit, and the number after it not to, unless it is `LIMIT` or the largest start.
    """
    waiting = deque(starts)
    limit = max(LIMIT, *waiting)
    low, high, stride = 0, limit + 1, 1
    needed: dict[int, int] = {}
    slow = 0  # how often in a row the interval was not halved
    while high - low > 1:
        guess = waiting.popleft()
        width = high - low
        fits, size = probe(guess)
        if size is not None:
            needed[guess] = size
        low, high = (max(low, guess), high) if fits else (low, min(high, guess))
        slow = 0 if high - low <= width // 2 else slow + 1
        if waiting:
            continue
        predicted = _where_it_crosses(needed, capacity)
        if predicted is None:
            predicted = 2 * low if fits else (low + high) // 2
        if high <= limit and (slow > 2 or (predicted >= high and high not in needed)):
            predicted = (low + high) // 2  # bytes grow by steps, or it cannot be told how many these are: no line helps
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
