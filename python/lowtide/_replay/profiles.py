"""What was recorded of iterations, packed beside the training, one profile for each signature."""

from __future__ import annotations

import itertools
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

from .. import _core, _torch
from .._base.decisions import decided
from .._base.sources import warn_user
from ..errors import LowtideError
from .signature import Signature

_WORK = 1_000_000_000  # steps of packing, about a nanosecond each
_MOST_PACKINGS = 8  # of one signature: what departs more often than that has no sequence to be known
_MOST_VARIANTS = 8
_TIMED_REQUESTS = 20_000


@dataclass(eq=False)
class Packed:
    """An iteration that was recorded, and where its requests are served."""

    recording: _torch.Recording
    script: _torch.Script
    arena_bytes: int
    bound_bytes: int  # proven: no arena is smaller, if the first requests are where they are in another variant
    algorithm: str
    seconds: float  # that packing took
    nanos: tuple[float, float] | None = None  # of a request and its release: ordinary, and from the arena

    @classmethod
    def pack(cls, recording: _torch.Recording, first_offsets: Sequence[int] = (), algorithm: str = "auto") -> Packed:
        """Offsets for all that is released within the iteration. The first requests have theirs: -1 for outside."""
        begin = time.perf_counter()
        is_outside = recording.stays
        is_outside[: len(first_offsets)] = [offset < 0 for offset in first_offsets]
        sizes = [0 if outside else size for outside, size in zip(is_outside, recording.bytes, strict=True)]
        offsets, arena, bound, algorithm = _core.lay_out(
            recording.begins,
            recording.ends,
            sizes,
            alignment=recording.alignment,
            fixed=[max(offset, 0) for offset in first_offsets],
            algorithm=algorithm,
            steps=_WORK,
        )
        script = _torch.Script(
            recording, [-1 if outside else offset for outside, offset in zip(is_outside, offsets, strict=True)]
        )
        seconds = time.perf_counter() - begin
        decided(
            "replay", "packed", requests=len(sizes), arena_bytes=arena, bound_bytes=bound, name=algorithm,
            seconds=round(seconds, 4),
        )  # fmt: skip
        return cls(recording, script, arena, bound, algorithm, seconds)

    def op_at(self, request: int) -> str:
        """The operator that made it, if that is known."""
        ops = self.recording.ops
        return ops[request] if request < len(ops) else ""

    @cached_property
    def events(self) -> list[tuple[int, int]]:
        """What is in the arena, in turn: request and bytes, 0 for its release."""
        sizes, stays = self.recording.bytes, self.recording.stays
        actions = self.recording.actions()
        return [(request, 0 if releases else sizes[request]) for request, releases in actions if not stays[request]]

    @cached_property
    def peak_bytes(self) -> int:
        """The most bytes that were alive at once, of those that the arena serves."""
        sizes = self.recording.bytes
        changes = (size if size else -sizes[request] for request, size in self.events)
        return max(itertools.accumulate(changes), default=0)

    @cached_property
    def pooled_bytes(self) -> int:
        """What PyTorch's caching allocator for CUDA would reserve for the same requests, three iterations long."""
        pool = _core.CachingAllocator()
        pool.play(self.events, iterations=3)
        return pool.peak_reserved_bytes

    def measure_time(self) -> None:
        """How long its requests take by themselves. Not in the middle of an iteration."""
        if not 0 < len(self.recording) <= _TIMED_REQUESTS:
            return
        try:
            ordinary, replayed = _torch.time_allocations(self.recording, self.script, rounds=5)
        except RuntimeError:  # there is no memory to try it with
            return
        self.nanos = (ordinary / len(self.recording), replayed / len(self.recording))


class Profile:
    """The iterations of one signature: the ways in which they go, each packed.

    Variants that begin alike have the same places for what they have in common, so that the requests themselves show
    which of them an iteration follows.
    """

    def __init__(self, variants: Sequence[Packed]) -> None:
        self.variants = list(variants)

    @property
    def scripts(self) -> list[_torch.Script]:
        """Of the variants, that used first in front."""
        return [variant.script for variant in self.variants]

    @property
    def largest(self) -> Packed:
        """The variant with the largest arena."""
        return max(self.variants, key=lambda variant: variant.arena_bytes)


def pack_beside(recording: _torch.Recording, variants: Sequence[Packed]) -> list[Packed]:
    """The variants of a signature, with one more way in which its iterations go."""
    sizes = recording.bytes
    alike = [variant for variant in variants if variant.recording.bytes == sizes]
    if alike:  # the same requests, with other lives: from now on the longer ones
        others = [variant for variant in variants if variant not in alike]
        return [*others, Packed.pack(_longer_lives(recording, alike[0].recording))]
    if not variants or len(variants) >= _MOST_VARIANTS:
        return [Packed.pack(recording)]
    common, nearest = max(
        ((_common_length(sizes, variant.recording.bytes), variant) for variant in variants), key=lambda found: found[0]
    )
    try:
        return [*variants, Packed.pack(recording, nearest.script.offsets[:common])]
    except LowtideError:  # what they have in common lives longer here, and has no room for that
        return [Packed.pack(recording)]


def _common_length(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return sum(1 for _ in pairs)


def _longer_lives(first: _torch.Recording, second: _torch.Recording) -> _torch.Recording:
    ends = [max(a, b) for a, b in zip(first.ends, second.ends, strict=True)]
    stays = [a or b for a, b in zip(first.stays, second.stays, strict=True)]
    return _torch.Recording(first.bytes, first.begins, ends, stays, first.alignment)


@dataclass
class _Packing:
    """A recording on its way into a profile."""

    signature: Signature
    variants: Future[list[Packed]]


class Profiles:
    """The profiles that were used last, at most so many."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.seconds = 0.0  # of packing
        self._known: OrderedDict[Signature, Profile] = OrderedDict()
        self._packings: list[_Packing] = []
        self._times_packed: OrderedDict[Signature, int] = OrderedDict()
        self._packer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lowtide-replay")

    def find(self, signature: Signature) -> Profile | None:
        """That of the signature itself."""
        profile = self._known.get(signature)
        if profile is not None:
            self._known.move_to_end(signature)
        return profile

    def largest_of(self, signature: Signature, only_larger: bool) -> Packed | None:
        """The one with the largest arena among those that differ in the shapes of inputs only."""
        alike = [
            profile.largest
            for known, profile in self._known.items()
            if known.kind == signature.kind and (signature.is_within(known) or not only_larger)
        ]
        return max(alike, key=lambda packed: packed.arena_bytes, default=None)

    def wants(self, signature: Signature) -> bool:
        """Whether what an iteration of this signature does should be packed, if it is new."""
        if any(packing.signature == signature for packing in self._packings):
            return False
        return self._times_packed.get(signature, 0) < _MOST_PACKINGS

    def pack(self, signature: Signature, recording: _torch.Recording) -> None:
        """Begins to pack, on a thread of its own."""
        self._times_packed[signature] = self._times_packed.get(signature, 0) + 1
        if len(self._times_packed) > 64 * self.most:
            self._times_packed.popitem(last=False)
        known = self._known.get(signature)
        variants = known.variants if known is not None else []
        try:
            self._packings.append(_Packing(signature, self._packer.submit(pack_beside, recording, variants)))
        except RuntimeError:  # no more threads, or Python is about to end
            self._times_packed[signature] = _MOST_PACKINGS

    def collect(self) -> list[Packed]:
        """Takes in what is packed; gives what is new. Profiles that were not used for long make room."""
        done = [packing for packing in self._packings if packing.variants.done()]
        self._packings = [packing for packing in self._packings if packing not in done]
        collected = []
        for packing in done:
            failure = packing.variants.exception()
            if failure is not None:
                warn_user(
                    f"lowtide.replay cannot pack an iteration, which uses ordinary memory: {failure}", UserWarning
                )
                continue
            variants = packing.variants.result()
            self._known[packing.signature] = Profile(variants)
            self._known.move_to_end(packing.signature)
            collected.append(variants[-1])
            self.seconds += variants[-1].seconds
        while len(self._known) > self.most:
            self._known.popitem(last=False)
        return collected

    def forget(self, packed: Sequence[Packed]) -> None:
        """Profiles with these, for which there is no memory."""
        for signature, profile in list(self._known.items()):
            if any(variant in packed for variant in profile.variants):
                del self._known[signature]

    def wait(self) -> None:
        """Until nothing is being packed."""
        for packing in self._packings:
            packing.variants.exception()

    def close(self) -> None:
        """No more packing."""
        self._packer.shutdown(wait=False, cancel_futures=True)

    def packed(self) -> list[Packed]:
        """All variants of all profiles, those used last at the end."""
        return [variant for profile in self._known.values() for variant in profile.variants]

    def __len__(self) -> int:
        return len(self._known)

    @property
    def largest(self) -> Packed | None:
        """The one with the largest arena."""
        return max(self.packed(), key=lambda packed: packed.arena_bytes, default=None)
