"""What parts of operators would cost on a device that is not here, where nothing can be measured.

    time of a part = roofline of the part + launch + ramp
                     and the same again for each copy or sum of a result that it cannot make in place

A roofline alone makes parts nearly free: it lets a kernel of a thousand elements run at the device's peak. Real kernels
need some microseconds to fill a device and to drain it. With a ramp r, a kernel whose roofline is t reaches t / (t + r)
of the peak: half of it where t = r. The ramp is an assumption, not fitted to any device: 5 us, about the shortest time
that kernels of cuBLAS take on recent devices beyond their launch. Whole operators have times without it
(`rooflines.py`), so that n parts cost n ramps more than the whole.

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
from .rooflines import move_ns, time_ns
from .step_parts import CountedAxis, PartCost, counts_of, matters, may_run_in_parts

RAMP_NS = 5_000


def assume_parts(
    lowered: Lowered, profiles: Sequence[OpProfile], device: Device, least_bytes: int
) -> dict[int, list[CountedAxis]]:
    """The axes of all operators that matter, by operator, with costs from the device's published peaks."""
    found: dict[int, list[CountedAxis]] = {}
    for index, (operator, profile) in enumerate(zip(lowered.operators, profiles, strict=True)):
        if not may_run_in_parts(lowered, index) or not matters(lowered, operator, profile.workspace, least_bytes):
            continue
        for axis in axes_of(operator):
            cut = periods(operator, axis, lowered.buffers)
            if cut is not None:
                costs = [_cost(lowered, operator, axis, n, profile, device) for n in counts_of(axis.extent)]
                if costs:
                    found.setdefault(index, []).append(CountedAxis(axis, cut, costs))
    return found


def _cost(lowered: Lowered, operator: Operator, axis: Axis, count: int, profile: OpProfile, device: Device) -> PartCost:
    call = place_part(operator, axis, 1, count, lowered.buffers, {})
    copies = [_bytes(call, result) for result, delivery in call.results.items() if not delivery.in_place]
    nanos = time_ns(call.operator, device) + RAMP_NS
    nanos += sum(move_ns(3 * size, device) + RAMP_NS for size in copies)
    alignment = alignment_on(lowered.device)
    scratch = sum(-(-size // alignment) * alignment for size in copies)
    return PartCost(count, profile.workspace + scratch, nanos, exact=False)


def _bytes(call: PartCall, result: int) -> int:
    size = call.results[result].place.dtype.itemsize
    for extent in call.results[result].place.sizes:
        size *= extent
    return size
