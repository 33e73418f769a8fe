"""Do the parts of an operator give the bits of the whole? Run side by side, on this machine, they show it.

Kernels take other paths for other shapes, so it is no matter of the operator alone: what holds for 2 parts of 512 rows
may not hold for 16 of 64, and with another number of threads or on another processor all may be different. Operands are
random and lie as they do in a plan: the windows of parts begin within their block, at multiples of the part's bytes.

A sum over parts has other rounding than the whole one and is never exact. Nor are parts whose loops may have other
left-overs than those of the whole: elements that a vectorised loop takes one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from .. import _core, _torch
from .._base.devices import CPU, alignment_on
from .._base.interrupts import signals_held
from .._base.schemas import DEFAULT
from .._capture.recorder import Ref
from .._optimizer.template import Number
from .axes import Axis, Place
from .custom_operators import own_state_kept
from .lowering import Lowered, Operator
from .part_calls import place_part
from .profiles import signature_of

# Random numbers show a kernel that sums in another order: most results differ then, unless they have fewer bits than
# the sums. Products that do are held against the whole where their sums cancel; other sums of the kind are never exact.
# Random numbers do not show a kernel that takes its last elements one by one, with other bits for few numbers. Shapes
# rule that out: `takes_same_path`.
_KINDS = ("normal", "positive", "of different sizes", "special", "cancelling")  # of draws, in turn
_MOST_DRAWS = 40
_ENOUGH_RESULTS = 8192  # of all draws, to see a difference that one in a hundred has of one kind
_LATER_PARTS = 4  # that are run of each draw after the first, of which all are


@dataclass(frozen=True, slots=True)
class Cut:
    """An operator in parts, and the buffers of which blocks hold one part alone, with their periods."""

    axis: Axis = field(hash=False)
    count: int
    alone: frozenset[tuple[int, int]]

    @staticmethod
    def of(axis: Axis, count: int, alone: Mapping[int, int]) -> Cut:
        """The same, of a mapping."""
        return Cut(axis, count, frozenset(alone.items()))


# The most elements that a vectorised loop takes at once, or a multiple of that; what is left over it takes one by one.
_LOOP = 128
_GRAIN = 32768  # from so many elements on, a loop may run on several threads, and has left-overs in each
_SPECIAL = (math.inf, -math.inf, math.nan, -math.nan, 0.0, -0.0)
_RARE = 3  # one number in so many is a special one
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
_COPIES = ("aten::clone",)


def takes_same_path(operator: Operator, axis: Axis, count: int) -> bool:
    """Whether the parts run the same loops over the same elements as the whole, as far as shapes can tell."""
    if operator.target._schema.name in _PRODUCTS:  # of sums, which random numbers tell apart
        return True
    cut = [(_argument(operator, place), dim) for place, dim in axis.arguments.items()]
    cut += [(ref, dim) for ref, dim in zip(operator.results, axis.results, strict=True) if ref and dim is not None]
    if not all(_is_outermost(ref, dim) for ref, dim in cut):
        return False
    name = operator.target._schema.name
    if name in _COPIES or not _is_pointwise(operator):
        return True
    shapes = {ref.sizes for ref in (*operator.reads(), *operator.results) if ref and math.prod(ref.sizes) > 1}
    whole = max(math.prod(sizes) for sizes in shapes)
    threads = torch.get_num_threads()
    if whole // count % _LOOP:
        return False
    if threads == 1 or whole < _GRAIN:
        return True
    even = whole // count < _GRAIN or whole // count % (threads * _LOOP) == 0
    return len(shapes) == 1 and whole % (threads * _LOOP) == 0 and even


def _argument(operator: Operator, place: Place) -> Ref:
    found = operator.arguments[place] if isinstance(place, int) else operator.arguments[place[0]][place[1]]
    assert isinstance(found, Ref)
    return found


def _is_outermost(ref: Ref, dim: int) -> bool:
    """Whether its parts along this dimension lie one behind the other."""
    others = [(n, s) for other, (n, s) in enumerate(zip(ref.sizes, ref.strides, strict=True)) if other != dim]
    return ref.strides[dim] >= 1 + sum((size - 1) * stride for size, stride in others)


def exact_signature(operator: Operator, cut: Cut) -> str:
    """Names the comparison by all that decides it."""
    call = signature_of(operator.target, operator.arguments, operator.results, operator.grad_mode)
    alone = dict(cut.alone)
    refs = [*operator.reads(), *(ref for ref in operator.results if ref is not None)]
    places = [
        f"{ref.offset * ref.dtype.itemsize % alignment_on(ref.device)}{'c' if ref.buffer in alone else ''}"
        for ref in refs
    ]
    axis = f"{sorted(cut.axis.arguments.items(), key=str)}->{list(cut.axis.results)}"
    return f"{call} at {','.join(places)} along {axis} in {cut.count}"


def compare(
    lowered: Lowered,
    operator: Operator,
    cuts: Sequence[Cut],
    number: Callable[[Number], int | float],
) -> dict[Cut, bool]:
    """For each of the cuts: whether its parts gave all bits of the whole."""
    equal = {cut: can_be_exact(operator, cut) for cut in cuts}
    if _core.op_row(operator.target._schema.name).leaves_results_unwritten:
        return dict.fromkeys(cuts, False)
    try:
        with own_state_kept(operator.target):
            for seed in range(_draws(operator)):
                left = [cut for cut in cuts if equal[cut]]
                if not left:
                    break
                operands = _Operands(lowered, operator, number, seed)
                expected = operands.run(operator, operands.fresh())
                for cut in left:
                    signals_held.look()
                    equal[cut] = _has_bits(operands, operator, cut, expected)
    except (RuntimeError, ValueError, IndexError, TypeError):  # random operands are not for this one
        return dict.fromkeys(cuts, False)
    return equal


def can_be_exact(operator: Operator, cut: Cut) -> bool:
    """Whether a comparison could show it."""
    if sums(operator, cut.axis) or _hides_sums(operator):
        return False
    return takes_same_path(operator, cut.axis, cut.count)


def _hides_sums(operator: Operator) -> bool:
    """Whether sums within it may have other bits, and its results, which have fewer, all the same."""
    few = any(ref and ref.dtype.is_floating_point and ref.dtype.itemsize < 4 for ref in operator.results)
    name = operator.target._schema.name
    if not few or name in _COPIES or _core.op_row(name).reads_what_it_picks or _is_pointwise(operator):
        return False
    operands = [ref.buffer for ref in operator.arguments if isinstance(ref, Ref)]
    return name not in _PRODUCTS or len(set(operands)) < len(operands)  # sums of these cannot be made to cancel


def _is_pointwise(operator: Operator) -> bool:
    axes = _core.op_row(operator.target._schema.name).axes
    return torch.Tag.pointwise in operator.target.tags or axes == "..."


def _kind(seed: int) -> str:
    return _KINDS[seed % len(_KINDS)]


def _draws(operator: Operator) -> int:
    results = sum(math.prod(ref.sizes) for ref in operator.results if ref is not None)
    return min(_MOST_DRAWS, max(len(_KINDS), math.ceil(_ENOUGH_RESULTS / max(1, results))))


def sums(operator: Operator, axis: Axis) -> bool:
    """Whether a result of it is the sum of the parts' results."""
    made = zip(operator.results, operator.made, axis.results, strict=True)
    return any(ref is not None and new and dim is None for ref, new, dim in made)


class _Memory(NamedTuple):
    """Buffers by number: their bytes, and which of them is the first that windows count from."""

    content: dict[int, torch.Tensor]
    first: dict[int, int]

    def window(self, ref: Ref) -> torch.Tensor:
        item = ref.dtype.itemsize
        storage = self.content[ref.buffer].untyped_storage()
        offset = (self.first[ref.buffer] + ref.offset * item) // item
        window = torch.empty(0, dtype=ref.dtype, device=ref.device)
        return window.set_(storage, offset, ref.sizes, ref.strides)


class _Operands:
    """Random operands of one operator."""

    def __init__(
        self, lowered: Lowered, operator: Operator, number: Callable[[Number], int | float], seed: int
    ) -> None:
        self.lowered = lowered
        self.number = number
        self.operator = operator
        self.seed = seed
        generator = torch.Generator().manual_seed(1000 + seed)
        bound = _index_bound(operator)
        self.drawn: dict[int, torch.Tensor] = {}
        self.first: dict[int, int] = {}
        for ref in operator.reads():
            if ref.buffer not in self.drawn:
                refs = [other for other in operator.reads() if other.buffer == ref.buffer]
                begins = [min(0, other.offset * other.dtype.itemsize) for other in refs]
                ends = [other.offset * other.dtype.itemsize + other.extent() for other in refs]
                self.first[ref.buffer] = -(min(begins) // 64 * 64)
                size = max([self.first[ref.buffer] + end for end in ends] + [lowered.buffers[ref.buffer].nbytes])
                self.drawn[ref.buffer] = _drawn(ref, size, bound, seed, generator)
        if _kind(seed) == "cancelling" and operator.target._schema.name in _PRODUCTS:
            self._let_sums_cancel(generator)

    def _let_sums_cancel(self, generator: torch.Generator) -> None:
        """Half of a product's terms are the others again, in another order and with the other sign.

        What is left of their sum is what rounding has made of it, and so depends on their order alone.
        """
        *beside, left, right = (ref for ref in self.operator.arguments if isinstance(ref, Ref))
        memory = _Memory(self.drawn, self.first)
        a, b = memory.window(left), memory.window(right)
        half = a.shape[-1] // 2
        order = torch.randperm(half, generator=generator).to(a.device)
        a[..., half : 2 * half] = a[..., order]
        b[..., half : 2 * half, :] = -b[..., order, :]
        a[..., 2 * half :] = 0
        for ref in beside:
            memory.window(ref).zero_()

    def fresh(self) -> _Memory:
        """The operands, with their own memory for what is written."""
        written = set(self.operator.writes)
        content = {b: bytes_.clone() if b in written else bytes_ for b, bytes_ in self.drawn.items()}
        return _Memory(content, self.first)

    def run(self, operator: Operator, memory: _Memory) -> list[torch.Tensor | None]:
        """What it makes, then what it has written."""
        schema = operator.target._schema
        arguments = [self._given(argument, memory) for argument in operator.arguments]
        device = next((ref.device for ref in operator.results if ref is not None), CPU)
        _, results, _ = _torch.profile(schema.name, schema.overload_name, arguments, 0, operator.grad_mode, device)
        made = [
            result if new and ref is not None else None
            for result, ref, new in zip(results, operator.results, operator.made, strict=False)
        ]
        return [*made, *(memory.content[buffer] for buffer in operator.writes)]

    def _given(self, argument: Any, memory: _Memory) -> tuple[str, Any]:
        return ("default", None) if argument is DEFAULT else ("constant", self._value(argument, memory))

    def _value(self, argument: Any, memory: _Memory) -> Any:
        if isinstance(argument, Ref):
            return memory.window(argument)
        if isinstance(argument, (list, tuple)):
            return [self._value(item, memory) for item in argument]
        return self.number(argument) if isinstance(argument, Number) else argument


def _has_bits(operands: _Operands, operator: Operator, cut: Cut, expected: Sequence[torch.Tensor | None]) -> bool:
    """Whether the parts give what the whole gives; of later draws, some parts, unless they write in place."""
    whole, alone = operands.fresh(), dict(cut.alone)
    indices = range(cut.count)
    if operands.seed > 0 and not operator.writes:
        indices = range(operands.seed % 2, cut.count, max(1, cut.count // _LATER_PARTS))
    for index in indices:
        call = place_part(operator, cut.axis, index, cut.count, operands.lowered.buffers, alone)
        content = {
            b: _part_bytes(bytes_, alone[b], index, cut.count) if b in alone else bytes_
            for b, bytes_ in whole.content.items()
        }
        results = operands.run(call.operator, _Memory(content, whole.first))
        for result, dim, target in zip(results, cut.axis.results, expected, strict=False):
            if target is None or dim is None:
                continue
            extent = target.shape[dim] // cut.count
            if not _same_bits(result, target.narrow(dim, index * extent, extent)):
                return False
        for buffer in set(operator.writes) & set(alone):
            parts = _by_part(whole.content[buffer], alone[buffer], cut.count)
            parts[:, index] = content[buffer].view(parts.shape[0], -1)
    written = [whole.content[buffer] for buffer in operator.writes]
    return all(_same_bits(a, b) for a, b in zip(written, expected[len(operator.results) :], strict=True))


def _by_part(content: torch.Tensor, period: int, count: int) -> torch.Tensor:
    return content.view(-1, count, period // count)


def _part_bytes(content: torch.Tensor, period: int, index: int, count: int) -> torch.Tensor:
    """The bytes of one part, as they lie in a block of its own."""
    return _by_part(content, period, count)[:, index].clone(memory_format=torch.contiguous_format).view(-1)


def _same_bits(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8))


def _index_bound(operator: Operator) -> int:
    """Integers below this are valid indices, whichever dimension they are for."""
    refs = [*operator.reads(), *operator.new_results()]
    sizes = [size for ref in refs if ref.dtype.is_floating_point for size in ref.sizes if size > 1]
    return min(sizes, default=2)


def _drawn(ref: Ref, size: int, bound: int, seed: int, generator: torch.Generator) -> torch.Tensor:
    """Bytes of a buffer, random as what `ref` takes them for, of the kind that the seed asks for."""
    dtype = ref.dtype
    count = math.ceil(size / dtype.itemsize)
    if dtype.is_floating_point or dtype.is_complex:
        kind = _kind(seed)
        drawn = torch.randn(count, generator=generator, dtype=torch.float32)
        if kind == "positive":
            drawn = drawn.abs_().add_(0.01)
        elif kind != "normal":
            drawn *= torch.randn(count, generator=generator).mul_(2).exp_()
        if kind == "special":
            which = torch.randint(0, _RARE * len(_SPECIAL), (count,), generator=generator)
            for index, value in enumerate(_SPECIAL):
                drawn[which == index] = value
        drawn = drawn.to(dtype)
    elif dtype is torch.bool:
        drawn = torch.rand(count, generator=generator) < 0.5
    else:
        drawn = torch.randint(0, min(bound, 100), (count,), generator=generator).to(dtype)
    return drawn.view(torch.uint8)[:size].to(ref.device)
