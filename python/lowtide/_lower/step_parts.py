"""How the operators of a step can run in parts: their axes, what a part needs in each number of parts, and its calls.

    parts = find_parts(lowered, profiles, PartCache(), number, least_bytes=1 << 20)
    graph = build_graph(lowered, profiles, axes=parts.axes)
    plan = ...
    if parts.confirm(plan): program = assemble(lowered, profiles, plan, numbers, parts=parts)

Only operators that matter have axes: those with a planned operand, or a workspace, of at least `least_bytes`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from .. import _core
from .._base.random_states import read_random_states, set_random_states
from .._optimizer.opaque import OPAQUE_UPDATE
from .._optimizer.template import Number
from ..errors import InvalidPlanError
from .axes import Axis, axes_of
from .exactness import Cut, can_be_exact, compare, exact_signature
from .lowering import Lowered, Operator
from .part_cache import PartCache
from .part_calls import PartCall, place_part
from .part_profiles import WholeTime, known_part, part_signature
from .parts import Periods, part_of, periods
from .profile_rows import OpProfile, PartProfile
from .profiles import signature_of

MOST_PARTS = 64
_WANTED = (2, 4, 8, 16, 32, 64)

Bits = Literal["assumed", "compared", "any"]
"""Which parts are said to have the bits of the whole, of those that were not held against it yet: all, until a plan
takes them and `Parts.confirm` does so; those that pass it at once; or none, where other bits will do."""


@dataclass(frozen=True, slots=True)
class PartCost:
    """What an operator needs in this many parts; of one part."""

    count: int
    workspace: int
    time_ns: int
    exact: bool  # the bits of the whole


@dataclass(frozen=True, slots=True)
class CountedAxis:
    """An axis of an operator, the periods of its operands, and the numbers of parts it may run in."""

    axis: Axis
    periods: Periods
    counts: Sequence[PartCost]


class PartRun(NamedTuple):
    """A part as it is called, and what it does then."""

    call: PartCall
    profile: PartProfile
    signature: str


def counts_of(extent: int) -> list[int]:
    """The numbers of parts to offer: of each power of 2 the next divisor, up to 64."""
    divisors = [count for count in range(2, min(extent, MOST_PARTS) + 1) if extent % count == 0]
    wanted = [next((count for count in divisors if count >= least), None) for least in _WANTED]
    return list(dict.fromkeys(count for count in wanted if count is not None))


def may_run_in_parts(lowered: Lowered, index: int) -> bool:
    """Whether anything about the step keeps it whole, beyond what the operator allows."""
    operator = lowered.operators[index]
    operands = {ref.buffer for ref in operator.reads()} | {ref.buffer for ref in operator.results if ref is not None}
    return (
        operator.target is not OPAQUE_UPDATE
        and index not in lowered.pauses
        and all(lowered.buffers[buffer].kind == "planned" for buffer in operator.writes)  # an update is made or not
        and not any(lowered.buffers[buffer].kind == "aside" or buffer in lowered.absent for buffer in operands)
    )


def matters(lowered: Lowered, operator: Operator, workspace: int, least_bytes: int) -> bool:
    """Whether it has an operand in the arena, or a workspace, that is this large."""
    operands = [*operator.reads(), *operator.new_results()]
    planned = [lowered.buffers[ref.buffer] for ref in operands]
    return max([workspace, *(buffer.nbytes for buffer in planned if buffer.kind == "planned")]) >= least_bytes


@dataclass(slots=True)
class Parts:
    """The axes of a step's operators, and how their parts are called."""

    lowered: Lowered
    cache: PartCache
    number: Callable[[Number], int | float]
    axes: dict[int, list[CountedAxis]] = field(default_factory=dict)  # by operator

    def workspace(self, index: int, axis: int, count: int) -> int:
        """What a plan gives a part."""
        cost = self._cost(index, axis, count)
        assert cost is not None, "a plan takes what it was offered"
        return cost.workspace

    def run(self, index: int, axis: int, part: int, count: int, alone: Mapping[int, int]) -> PartRun:
        """A part of operator `index`; of the buffers `alone` blocks hold this part only, with these periods."""
        operator, along = self.lowered.operators[index], self.axes[index][axis].axis
        profile, signature = self._profile(operator, along, _profiled_part(operator, along, part, count), count, alone)
        if profile is None:
            raise InvalidPlanError(f"{operator.target} cannot run in {count} parts")
        return PartRun(place_part(operator, along, part, count, self.lowered.buffers, alone), profile, signature)

    def _profile(
        self, operator: Operator, axis: Axis, part: int, count: int, alone: Mapping[int, int]
    ) -> tuple[PartProfile | None, str]:
        """As it was seen in this process."""
        call = place_part(operator, axis, part, count, self.lowered.buffers, alone)
        signature = part_signature(operator, call)
        return known_part(WholeTime(operator, self.number), call, self.cache, signature, seen=True), signature

    def confirm(self, plan: _core.Plan) -> bool:
        """Whether all parts that the plan runs do here what it was made for; what does not hold is forgotten.

        If not, the axes are as they are now, and the step is to be planned again.
        """
        order, buffers, held = plan.order, plan.block_buffers(), plan.block_parts()
        taken: dict[tuple[int, int, int, frozenset[tuple[int, int]]], None] = {}
        for step, (axis, _, count) in enumerate(plan.step_parts()):
            if count > 1:
                alone = {buffers[block]: held[block][0] for block in plan.step_blocks(step) if held[block][2] > 1}
                taken[order[step], axis, count, frozenset(alone.items())] = None
        random_state = read_random_states()
        try:
            seen = [(part, self._seen(*part)) for part in taken]
        finally:
            set_random_states(random_state)
        holds = [self._note(index, axis, count, cost) for (index, axis, count, _), cost in seen]
        self.axes = {index: [axis for axis in axes if axis.counts] for index, axes in self.axes.items()}
        self.cache.save()
        return all(holds)

    def _seen(self, index: int, axis: int, count: int, alone: frozenset[tuple[int, int]]) -> PartCost | None:
        """What a part needs here, with these blocks that hold it alone; None if it cannot run so."""
        cost, operator = self._cost(index, axis, count), self.lowered.operators[index]
        assert cost is not None, "a plan takes what it was offered"
        cut = Cut(self.axes[index][axis].axis, count, alone)
        found, _ = self._profile(operator, cut.axis, 1, count, dict(alone))
        if found is None:
            return None
        signature = exact_signature(operator, cut)
        if cost.exact and not self.cache.is_compared(signature):
            self.cache.put_exact(signature, compare(self.lowered, operator, [cut], self.number)[cut])
        exact = cost.exact and bool(self.cache.exact(signature))
        return replace(cost, workspace=max(cost.workspace, found.workspace), exact=exact)

    def _note(self, index: int, axis: int, count: int, seen: PartCost | None) -> bool:
        """Whether that is what was offered; if not, from now on it is."""
        known = self._cost(index, axis, count)
        if known == seen or known is None:
            return known == seen
        counted = self.axes[index][axis]
        counts = [cost for cost in counted.counts if cost.count != count]
        if seen is not None:
            both = replace(seen, workspace=max(seen.workspace, known.workspace), exact=seen.exact and known.exact)
            counts = sorted([*counts, both], key=lambda cost: cost.count)
        self.axes[index][axis] = CountedAxis(counted.axis, counted.periods, counts)
        return False

    def _cost(self, index: int, axis: int, count: int) -> PartCost | None:
        return next((cost for cost in self.axes[index][axis].counts if cost.count == count), None)


def find_parts(
    lowered: Lowered,
    profiles: Sequence[OpProfile],
    cache: PartCache,
    number: Callable[[Number], int | float],
    least_bytes: int,
    *,
    bits: Bits = "assumed",
) -> Parts:
    """The axes of all operators that matter, with what parts of them need on this machine.

    Each distinct part that the cache does not know is run on scratch memory.
    """
    parts = Parts(lowered, cache, number)
    known: dict[Hashable, list[CountedAxis]] = {}  # layers of a model are alike
    random_state = read_random_states()
    try:
        for index, (operator, profile) in enumerate(zip(lowered.operators, profiles, strict=True)):
            if may_run_in_parts(lowered, index) and matters(lowered, operator, profile.workspace, least_bytes):
                form = _form(lowered, operator, profile)
                if form not in known:
                    known[form] = _counted_axes(parts, operator, profile, bits)
                if known[form]:
                    parts.axes[index] = list(known[form])
    finally:
        set_random_states(random_state)
    cache.save()
    return parts


def _counted_axes(parts: Parts, operator: Operator, profile: OpProfile, bits: Bits) -> list[CountedAxis]:
    lowered = parts.lowered
    along = [(axis, periods(operator, axis, lowered.buffers)) for axis in axes_of(operator)]
    choices = [
        (axis, cut, count, _layouts(lowered, operator, cut))
        for axis, cut in along
        if cut is not None and not _sums_narrow(operator, axis)
        for count in counts_of(axis.extent)
    ]
    cuts = [[Cut.of(axis, count, alone) for alone in layouts] for axis, _, count, layouts in choices]
    exact = _are_exact(parts, operator, cuts, bits)
    whole = WholeTime(operator, parts.number)
    found: list[CountedAxis] = []
    for (axis, cut, count, layouts), is_exact in zip(choices, exact, strict=True):
        calls = [place_part(operator, axis, 1, count, lowered.buffers, alone) for alone in layouts]
        taken = (known_part(whole, call, parts.cache, part_signature(operator, call), seen=False) for call in calls)
        known = [part for part in taken if part is not None]
        if len(known) < len(calls):
            continue
        time_ns = max(_scaled(part, profile.time_ns) for part in known)
        cost = PartCost(count, max(part.workspace for part in known), time_ns, is_exact)
        if found and found[-1].axis == axis:
            found[-1] = CountedAxis(axis, cut, [*found[-1].counts, cost])
        else:
            found.append(CountedAxis(axis, cut, [cost]))
    return found


def _form(lowered: Lowered, operator: Operator, profile: OpProfile) -> Hashable:
    """What decides its axes, whichever buffers it has."""
    places: list[tuple[int, ...]] = []
    numbers: dict[int, int] = {}
    for ref in [*operator.reads(), *operator.held, *(ref for ref in operator.results if ref is not None)]:
        buffer = lowered.buffers[ref.buffer]
        number = numbers.setdefault(ref.buffer, len(numbers))
        written = ref.buffer in operator.writes
        places.append((number, ref.offset, buffer.nbytes, buffer.kind == "planned", written, *ref.strides, *ref.sizes))
    signature = signature_of(operator.target, operator.arguments, operator.results, operator.grad_mode)
    return signature, tuple(places), tuple(operator.made), profile.time_ns


def _layouts(lowered: Lowered, operator: Operator, cut: Periods) -> list[dict[int, int]]:
    """Which blocks may hold a part alone, as far as that changes windows: none or all."""
    reads = [ref.buffer for ref in dict.fromkeys([*operator.reads(), *operator.held])]
    writes = [*operator.writes, *(ref.buffer for ref in operator.new_results())]
    found: dict[int, set[int]] = {}
    for buffer, period in [*zip(reads, cut.reads, strict=True), *zip(writes, cut.writes, strict=True)]:
        found.setdefault(buffer, set()).add(period)
    inner = {
        buffer: max(seen)
        for buffer, seen in found.items()
        if len(seen) == 1
        and lowered.buffers[buffer].kind == "planned"
        and 0 < max(seen) < lowered.buffers[buffer].nbytes
    }
    return [{}, inner] if inner else [{}]


def _sums_narrow(operator: Operator, axis: Axis) -> bool:
    """Whether results of few bits would be summed: the whole sums them with more."""
    summed = (ref for ref, dim in zip(operator.results, axis.results, strict=True) if ref is not None and dim is None)
    return any(ref.dtype.is_floating_point and ref.dtype.itemsize < 4 for ref in summed)


def _are_exact(parts: Parts, operator: Operator, cuts: Sequence[Sequence[Cut]], bits: Bits) -> list[bool]:
    """Whether each gives the bits of the whole in all layouts, as far as that is known."""
    signatures = {cut: exact_signature(operator, cut) for group in cuts for cut in group}
    unknown = [cut for cut, signature in signatures.items() if parts.cache.exact(signature) is None]
    if bits == "compared" and unknown:
        for cut, exact in compare(parts.lowered, operator, unknown, parts.number).items():
            parts.cache.put_exact(signatures[cut], exact)
    known = {cut: can_be_exact(operator, cut) and parts.cache.exact(signatures[cut]) for cut in signatures}
    return [all(known[cut] or (known[cut] is None and bits == "assumed") for cut in group) for group in cuts]


def _scaled(part: PartProfile, whole_ns: int) -> int:
    """Its time, held against that of the whole as both were profiled; the whole's may have settled since."""
    return max(1, round(part.time_ns * whole_ns / part.whole_ns)) if part.whole_ns and whole_ns else part.time_ns


def _profiled_part(operator: Operator, axis: Axis, index: int, count: int) -> int:
    """The part whose profile serves: the second, unless the first has other constants."""
    first, second = part_of(operator, axis, 0, count), part_of(operator, axis, 1, count)
    target, grad_mode = operator.target, operator.grad_mode
    names = [signature_of(target, part.arguments, part.results, grad_mode) for part in (first, second)]
    return 0 if index == 0 and names[0] != names[1] else 1
