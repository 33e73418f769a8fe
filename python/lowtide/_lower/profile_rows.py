"""What is known about an operator call, and the rows of the profile cache: read as from anybody's file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

ALIGNMENT = 64
_MOST_BYTES = 2**48  # of one request, or of a workspace
_MOST_NANOS = 10**12  # of one call; a million of them are still a number of 64 bits
_MOST_ITEMS = 1_000_000  # requests, results or dimensions


@dataclass(frozen=True, slots=True)
class Request:
    """The k-th allocation of a call: one of its results, or a part of its workspace."""

    bytes: int
    result: int  # index among the returned tensors, or -1
    offset: int  # inside the workspace; -1 for a result, and for memory that the operator keeps for itself


@dataclass(frozen=True, slots=True)
class Correction:
    """A result that the real operator gives another form than its fake does, or not at all."""

    result: int
    dtype: str  # empty: there is no such result
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    on_cpu: bool = False  # its fake says that it is on another device


@dataclass(frozen=True, slots=True)
class OpProfile:
    """What one call allocates, in order, how long it takes, and where its fake results are wrong."""

    requests: tuple[Request, ...]
    workspace: int
    time_ns: int
    corrections: tuple[Correction, ...] = ()
    settled: bool = False  # the time is that of real steps, and stays

    @property
    def behaviour(self) -> Behaviour:
        """Everything but the time, which changes."""
        return self.requests, self.workspace, self.corrections


Behaviour = tuple[tuple[Request, ...], int, tuple[Correction, ...]]


@dataclass(frozen=True, slots=True)
class PartRequest:
    """The k-th allocation of a part: of its operator, or made while a result is delivered."""

    bytes: int
    result: int  # index among the returned tensors, or -1
    offset: int  # inside the workspace; -1 for a result that is never scratch, and for memory that is kept
    delivers: int  # the result that is being delivered, or -1


@dataclass(frozen=True, slots=True)
class PartProfile:
    """What one part allocates and how long it takes, with its deliveries."""

    requests: tuple[PartRequest, ...]
    workspace: int
    time_ns: int
    in_place: tuple[int, ...]  # results that have the form of their windows
    whole_ns: int = 0  # what the whole operator took when this was timed

    @property
    def behaviour(self) -> PartBehaviour:
        """Everything but the time, which changes."""
        return self.requests, self.workspace, self.in_place


PartBehaviour = tuple[tuple[PartRequest, ...], int, tuple[int, ...]]


def row_of(profile: OpProfile) -> list[Any]:
    """A profile as JSON."""
    return [
        [[r.bytes, r.result, r.offset] for r in profile.requests],
        profile.workspace,
        profile.time_ns,
        [[c.result, c.dtype, c.sizes, c.strides, c.on_cpu] for c in profile.corrections],
        profile.settled,
    ]


def profile_of(row: Any) -> OpProfile | None:
    """The profile of a row, or None if no operator could have made it."""
    try:
        requests, workspace, time_ns, corrections, settled = row
        profile = OpProfile(
            tuple([_request(*item) for item in _items(requests)]),
            _whole(workspace, 0, _MOST_BYTES),
            _whole(time_ns, 0, _MOST_NANOS),
            tuple([_correction(*item) for item in _items(corrections)]),
            settled,
        )
    except (TypeError, ValueError):
        return None
    return profile if type(settled) is bool and _is_sound(profile) else None


def part_row_of(profile: PartProfile) -> list[Any]:
    """The profile of a part as JSON."""
    requests = [[r.bytes, r.result, r.offset, r.delivers] for r in profile.requests]
    return [requests, profile.workspace, profile.time_ns, list(profile.in_place), profile.whole_ns]


def part_profile_of(row: Any) -> PartProfile | None:
    """The profile of a row, or None if no part could have made it."""
    try:
        requests, workspace, time_ns, in_place, whole_ns = row
        profile = PartProfile(
            tuple([_part_request(*item) for item in _items(requests)]),
            _whole(workspace, 0, _MOST_BYTES),
            _whole(time_ns, 0, _MOST_NANOS),
            tuple([_whole(result, 0, _MOST_ITEMS) for result in _items(in_place)]),
            _whole(whole_ns, 0, _MOST_NANOS),
        )
    except (TypeError, ValueError):
        return None
    results = [request.result for request in profile.requests if request.result >= 0]
    inside = [request for request in profile.requests if request.offset >= 0]
    sound = (
        len(set(results)) == len(results)
        and len(set(profile.in_place)) == len(profile.in_place)
        and all(request.offset % ALIGNMENT == 0 for request in inside)
        and max((request.offset + request.bytes for request in inside), default=0) == profile.workspace
    )
    return profile if sound else None


def _part_request(size: Any, result: Any, offset: Any, delivers: Any) -> PartRequest:
    return PartRequest(
        _whole(size, 1, _MOST_BYTES),
        _whole(result, -1, _MOST_ITEMS),
        _whole(offset, -1, _MOST_BYTES),
        _whole(delivers, -1, _MOST_ITEMS),
    )


def time_of(value: Any) -> int | None:
    """Nanoseconds, or None if it is no such number."""
    try:
        return _whole(value, 0, _MOST_NANOS)
    except ValueError:
        return None


def _is_sound(profile: OpProfile) -> bool:
    """Each result is asked for once and corrected once; what lies in the workspace is aligned and fits."""
    results = [request.result for request in profile.requests if request.result >= 0]
    corrected = [correction.result for correction in profile.corrections]
    inside = [request for request in profile.requests if request.offset >= 0]
    return (
        len(set(results)) == len(results)
        and len(set(corrected)) == len(corrected)
        and all(r.result < 0 and r.offset % ALIGNMENT == 0 for r in inside)
        and max((r.offset + r.bytes for r in inside), default=0) == profile.workspace
    )


def _request(size: Any, result: Any, offset: Any) -> Request:
    return Request(_whole(size, 1, _MOST_BYTES), _whole(result, -1, _MOST_ITEMS), _whole(offset, -1, _MOST_BYTES))


def _correction(result: Any, dtype: Any, sizes: Any, strides: Any, on_cpu: Any) -> Correction:
    if not isinstance(dtype, str) or (dtype and not isinstance(getattr(torch, dtype, None), torch.dtype)):
        raise ValueError
    if type(on_cpu) is not bool:
        raise ValueError
    extents = [tuple([_whole(n, 0, _MOST_BYTES) for n in _items(numbers)]) for numbers in (sizes, strides)]
    if len(extents[0]) != len(extents[1]):
        raise ValueError
    return Correction(_whole(result, 0, _MOST_ITEMS), dtype, extents[0], extents[1], on_cpu)


def _items(value: Any) -> list[Any]:
    if type(value) is not list or len(value) > _MOST_ITEMS:
        raise ValueError
    return value


def _whole(value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:  # True is none
        raise ValueError
    return value
