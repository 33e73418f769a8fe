"""One part of an operator as a program calls it: its windows on blocks, and how its results get to theirs.

A block of the plan holds a whole buffer or one part of it, which lies there compactly:

    4 rows of 256 bytes, by columns in 2 parts (period 256)      the whole    0 0 1 1 | 0 0 1 1 | 0 0 1 1 | 0 0 1 1
                                                                 part 1       1 1 | 1 1 | 1 1 | 1 1

What a part makes belongs in a window of a block. If that window is one stretch of aligned memory, the kernel's own
request is served there. Otherwise the kernel writes to scratch memory of the step's workspace, and the runtime copies
it in, or adds it, where parts are summed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._base.devices import alignment_on
from .._capture.recorder import Ref
from .axes import Axis
from .lowering import Buffer, Operator
from .parts import part_of


@dataclass(slots=True)
class PartCall:
    """Part `index` of `count`, its windows on blocks; `results` says how each result that it makes gets there."""

    operator: Operator
    index: int
    count: int
    results: dict[int, Delivery]

    def delivers(self) -> list[tuple[int, bool]]:
        """All results that it makes, and whether each is added."""
        return [(result, delivery.adds) for result, delivery in self.results.items()]

    def form(self) -> str:
        """What decides its requests beside the call itself: places, and how windows are aligned."""
        places = ",".join(f"{result}:{delivery.form()}" for result, delivery in self.results.items())
        return f"{places}|{','.join(str(_misaligned(ref)) for ref in self.operator.reads())}"


@dataclass(frozen=True, slots=True)
class Delivery:
    """How a result gets to its window."""

    adds: bool
    in_place: bool  # the kernel's own request can be served there
    place: Ref  # of the block
    begin: int = 0  # byte of the block, if in place

    def form(self) -> str:
        """Added, in place or copied; what copies need depends on strides."""
        return "in place" if self.in_place else f"{'added' if self.adds else 'copied'} {list(self.place.strides)}"


def place_part(
    operator: Operator, axis: Axis, index: int, count: int, buffers: Sequence[Buffer], alone: Mapping[int, int]
) -> PartCall:
    """The call of part `index` of `count`.

    `alone` are the buffers of which the block holds this part alone, with their periods.
    """
    part = part_of(operator, axis, index, count)

    def placed(tree: Any) -> Any:
        if isinstance(tree, Ref):
            return compact(tree, alone[tree.buffer], count) if tree.buffer in alone else tree
        return [placed(item) for item in tree] if isinstance(tree, (list, tuple)) else tree

    results: dict[int, Delivery] = {}
    for result, (ref, made) in enumerate(zip(operator.results, operator.made, strict=True)):
        if ref is not None and made:
            place, dim = placed(part.results[result]), axis.results[result]
            planned = buffers[ref.buffer].kind == "planned"
            if dim is None:
                results[result] = Delivery(index > 0, planned and index == 0, place)
                continue
            outermost = ref.sizes[dim] * ref.strides[dim] * ref.dtype.itemsize == buffers[ref.buffer].nbytes
            aligned = buffers[ref.buffer].nbytes // count % alignment_on(ref.device) == 0
            in_place = planned and (ref.buffer in alone or (outermost and aligned))
            results[result] = Delivery(False, in_place, place, place.offset * place.dtype.itemsize)
    own = replace(operator, arguments=placed(part.arguments), results=placed(part.results))
    return PartCall(own, index, count, results)


def compact(ref: Ref, period: int, count: int) -> Ref:
    """A window of one part, where a block holds that part alone: see above."""
    item = ref.dtype.itemsize
    first = ref.offset * item
    first = first // period * (period // count) + first % (period // count)
    strides = tuple(stride // count if stride * item >= period else stride for stride in ref.strides)
    return ref._replace(strides=strides, offset=first // item)


def _misaligned(ref: Ref) -> int:
    return ref.offset * ref.dtype.itemsize % alignment_on(ref.device)
