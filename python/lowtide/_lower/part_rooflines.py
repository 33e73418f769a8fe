"""What parts of operators would cost on a device that is not here, where nothing can be measured.

    time of a part = roofline of the whole x (small kernels of the part / kernels of the whole)

A roofline alone makes parts nearly free: it lets a kernel of a thousand elements run at the device's peak. What small
kernels take is in `utilisation.py`, with what that is fitted to. Each copy or sum of a result that a part
cannot make in place is a kernel of its own.

Whole operators keep their rooflines. So a step's time is the same with parts and without, one part costs what the whole
does, and whatever is said of whole steps (`fit`, the trades) stays comparable with plans that run parts. Costs of parts
are therefore in the measure of rooflines, in which an operator that reaches half of its roofline counts half: n parts
cost as many times the whole as n small kernels take times the whole's kernels.

That parts are exact is nothing that a roofline knows.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._base.devices import alignment_on
from .axes import Axis, axes_of
from .gpus import Device
from .lowering import Lowered, Operator
from .part_calls import PartCall, place_part
from .parts import periods
from .profile_rows import OpProfile
from .rooflines import time_ns
from .step_parts import CountedAxis, PartCost, counts_of, matters, may_run_in_parts
from .utilisation import Kernel, kernel_ns, operator_ns


def assume_parts(
    lowered: Lowered, profiles: Sequence[OpProfile], device: Device, least_bytes: int
) -> dict[int, list[CountedAxis]]:
    """The axes of all operators that matter, by operator, with costs from the device's published peaks."""
    found: dict[int, list[CountedAxis]] = {}
    for index, (operator, profile) in enumerate(zip(lowered.operators, profiles, strict=True)):
        if not may_run_in_parts(lowered, index) or not matters(lowered, operator, profile.workspace, least_bytes):
            continue
        whole = WholeCost(operator, device)
        for axis in axes_of(operator):
            cut = periods(operator, axis, lowered.buffers)
            if cut is not None:
                costs = [_cost(lowered, whole, axis, n, profile) for n in counts_of(axis.extent)]
                if costs:
                    found.setdefault(index, []).append(CountedAxis(axis, cut, costs))
    return found


class WholeCost:
    """An operator as it runs whole: what times of its kernels are to be multiplied with."""

    def __init__(self, operator: Operator, device: Device) -> None:
        self.operator = operator
        self.device = device
        self.roofline_ns = time_ns(operator, device)
        self.kernels_ns = operator_ns(operator, device)

    def scaled(self, kernels_ns: int) -> int:
        """Rounded up."""
        return -(-kernels_ns * self.roofline_ns // self.kernels_ns) if self.kernels_ns else kernels_ns


def _cost(lowered: Lowered, whole: WholeCost, axis: Axis, count: int, profile: OpProfile) -> PartCost:
    call = place_part(whole.operator, axis, 1, count, lowered.buffers, {})
    moved = {result: _bytes(call, result) for result, delivery in call.results.items() if not delivery.in_place}
    nanos = operator_ns(call.operator, whole.device)
    for result, size in moved.items():
        times = 3 if call.results[result].adds else 2  # a sum is read too
        nanos += kernel_ns(Kernel(times * size), 1, whole.device)
    alignment = alignment_on(lowered.device)
    scratch = sum(-(-size // alignment) * alignment for size in moved.values())
    return PartCost(count, profile.workspace + scratch, whole.scaled(nanos), exact=False)


def _bytes(call: PartCall, result: int) -> int:
    size = call.results[result].place.dtype.itemsize
    for extent in call.results[result].place.sizes:
        size *= extent
    return size
