"""Parts of an operator along one of its axes, and the bytes that they read and write.

part_of(operator, axis, 0, 4).arguments     of the first of four parts
periods(operator, axis, lowered.buffers)    for the planner (include/lowtide/axis.h)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .._capture.recorder import Ref
from .axes import Axis, Constant, Place
from .lowering import Buffer, Operator


class Part(NamedTuple):
    """A call that computes one part. Windows are on the whole buffers."""

    arguments: list[Any]
    results: list[Ref | None]  # what the part makes of each; of a sum the whole, to which it adds


class Periods(NamedTuple):
    """In bytes; 0: not cut."""

    reads: tuple[int, ...]  # of each window that it reads or holds, as `build_graph` lists them
    writes: tuple[int, ...]  # of each buffer that it writes, then of those that it makes


def part_of(operator: Operator, axis: Axis, index: int, count: int) -> Part:
    """Part `index` of `count`, which divides the extent of the axis."""
    arguments = [list(argument) if isinstance(argument, list) else argument for argument in operator.arguments]
    for place, dim in axis.arguments.items():
        _set(arguments, place, cut(_get(arguments, place), dim, index, count))
    for place, constant in axis.constants.items():
        _set(arguments, place, _constant(_get(arguments, place), constant, index, count))
    results = [
        ref if ref is None or dim is None else cut(ref, dim, index, count)
        for ref, dim in zip(operator.results, axis.results, strict=True)
    ]
    return Part(arguments, results)


def cut(ref: Ref, dim: int, index: int, count: int) -> Ref:
    """The window on part `index` of `count` along a dimension."""
    size = ref.sizes[dim] // count
    sizes = (*ref.sizes[:dim], size, *ref.sizes[dim + 1 :])
    return ref._replace(sizes=sizes, offset=ref.offset + index * size * ref.strides[dim])


def _get(arguments: list[Any], place: Place) -> Any:
    return arguments[place] if isinstance(place, int) else arguments[place[0]][place[1]]


def _set(arguments: list[Any], place: Place, value: Any) -> None:
    if isinstance(place, int):
        arguments[place] = value
    else:
        arguments[place[0]][place[1]] = value


def _constant(value: Any, kind: Constant, index: int, count: int) -> Any:
    if kind == "size":
        return value // count
    if index == 0:
        return value
    return None if isinstance(value, Ref) else 0


def periods(operator: Operator, axis: Axis, buffers: Sequence[Buffer]) -> Periods | None:
    """Which bytes of which operand belong to which part, if periods can say that of all that is written.

    A window whose parts lie among each other is read whole, by every part.
    """
    windows: dict[Ref, int] = {}
    for ref, dim in _windows(operator, axis):
        period = 0 if dim is None else _period(ref, dim, buffers)
        windows[ref] = period if windows.get(ref, period) == period else 0
    new = {ref.buffer for ref in operator.new_results()}
    writes: dict[int, int] = {}
    for buffer in operator.writes:
        found = {period for ref, period in windows.items() if ref.buffer == buffer}
        if len(found) != 1 or 0 in found:
            return None
        writes[buffer] = found.pop()
    for result, dim in zip(operator.results, axis.results, strict=True):
        if result is None or result.buffer not in new or not buffers[result.buffer].nbytes:
            continue
        period = 0 if dim is None else _period(result, dim, buffers)
        if result.buffer in writes or (dim is not None and not period):
            return None
        writes[result.buffer] = period
    if not any((*windows.values(), *writes.values())):
        return None
    listed = [*operator.writes, *(ref.buffer for ref in operator.new_results())]
    return Periods(tuple(windows.values()), tuple(writes.get(buffer, 0) for buffer in listed))


def _windows(operator: Operator, axis: Axis) -> Iterator[tuple[Ref, int | None]]:
    """In the order of `build_graph`, which dimension is cut of each."""
    for position, argument in enumerate(operator.arguments):
        if isinstance(argument, Ref):
            yield argument, axis.arguments.get(position)
        elif isinstance(argument, list):
            for index, item in enumerate(argument):
                if isinstance(item, Ref):
                    yield item, axis.arguments.get((position, index))
    for ref in operator.held:
        yield ref, None


def _period(ref: Ref, dim: int, buffers: Sequence[Buffer]) -> int:
    """0 if every part sees the same bytes, or bytes among those of others."""
    period = ref.sizes[dim] * ref.strides[dim]
    if period == 0:
        return 0
    inner = ref.offset % period  # how far the elements of one place along the dimension lie apart
    for other, (size, stride) in enumerate(zip(ref.sizes, ref.strides, strict=True)):
        if other != dim and size > 1 and stride % period:
            inner += (size - 1) * stride
    nbytes = period * ref.dtype.itemsize
    return nbytes if inner < ref.strides[dim] and buffers[ref.buffer].nbytes % nbytes == 0 else 0
