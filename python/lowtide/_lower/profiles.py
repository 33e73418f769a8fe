"""Op profiles: what each distinct operator call asks of memory and time, found by running it alone.

Before the first step every distinct call (operator, shapes, strides, dtypes, constants) is run on scratch tensors under
the recording allocator. So the first step already runs planned, with the operators' workspaces in the plan. Times are
those of scratch memory until the first steps have been run; then they *settle*: what a call takes in a real step, with
the caches and the values that it finds there, is its time from then on, for good. So does what the step takes outside
its operators. All this is kept on disk (`_base/cache_directory.py`).

Memory is served by what was seen in this process, never by what a file says: before a profile from disk is used, its
call is run once on scratch tensors, untimed, and must make the very requests and results that are stored. If it does
not, the profile is forgotten and taken anew.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from .. import _core, _torch
from .._base.cache_directory import CacheDirectory, default_directory
from .._base.devices import CPU, alignment_on
from .._base.engine_switches import SWITCH_NAMES, read_switches
from .._base.structure import instances_in
from .._capture.recorder import Ref
from .._optimizer.ledger import Number
from ..errors import CaptureError
from .profile_rows import ALIGNMENT, Behaviour, Correction, OpProfile, Request, profile_of, row_of, time_of

TIMED_RUNS = 5  # with warm caches, and as many with cold ones
MOST_FILE_BYTES = 64 * 2**20  # of profiles; a larger file is begun anew


def pack_workspace(
    requests: Sequence[tuple[int, int, int, int]], alignment: int = ALIGNMENT
) -> tuple[tuple[Request, ...], int]:
    """Places a call's temporaries in one workspace, by first fit over their lives inside the call.

    `requests` are (bytes, begin, end, result) with lives in allocator events; an end of -1 outlives the call.
    """
    placed: list[tuple[int, int, int, int]] = []  # offset, bytes, begin, end
    packed: list[Request] = []
    for size, begin, end, result in requests:
        if result >= 0 or end < 0:
            packed.append(Request(size, result, -1))
            continue
        offset = 0
        for other, other_size, other_begin, other_end in sorted(placed):
            if other_end < begin or end < other_begin:
                continue
            if offset + size <= other:
                break
            offset = max(offset, -(-(other + other_size) // alignment) * alignment)
        placed.append((offset, size, begin, end))
        packed.append(Request(size, -1, offset))
    return tuple(packed), max((offset + size for offset, size, _, _ in placed), default=0)


# What calls were seen to do in this process, by environment and signature.
_seen_here: dict[tuple[str, str], Behaviour] = {}


class ProfileCache:
    """Profiles by call signature, on disk for this machine, PyTorch version and PyTorch's switches.

    And what steps take outside their operators, by step signature. A file is shared by all caches of its directory, in
    this process and in others: each takes from it what it does not know, and times that settled there first.
    """

    def __init__(self, directory: Path | None = None, *, shares_times: bool = True) -> None:
        self.shares_times = shares_times  # with other machines, if there is a store for that
        self._directory = CacheDirectory(directory or default_directory())
        self._profiles: dict[str, OpProfile] = {}
        self._outside: dict[str, int] = {}
        self._switches: tuple[Hashable, ...] | None = None
        self._environment = ""  # these switches, and what PyTorch it is
        self._seen: tuple[int, ...] | None = None  # the file that was read or written last
        self._forgotten: set[str] = set()  # what the file still has
        self._unsaved = False
        self.taken = 0  # profiles taken by running an operator, not found on disk

    def get(self, signature: str) -> OpProfile | None:
        """The profile of a call, if it is known; from a file, unless `is_confirmed`."""
        return self._loaded().get(signature)

    def put(self, signature: str, profile: OpProfile) -> None:
        """Adds a profile that was taken here; `save` writes it."""
        self._loaded()[signature] = profile
        self.confirm(signature, profile.behaviour)
        self._unsaved = True
        self.taken += 1

    def expect(self, profiles: Mapping[str, OpProfile]) -> None:
        """Adds what others say of calls that are not known here: as from a file, until `is_confirmed`."""
        known = self._loaded()
        for signature, profile in profiles.items():
            if signature not in known and signature not in self._forgotten:
                known[signature] = profile

    def confirm(self, signature: str, behaviour: Behaviour) -> None:
        """The call was seen to do this, in this process."""
        self._loaded()
        _seen_here[self._environment, signature] = behaviour

    def is_confirmed(self, signature: str, profile: OpProfile) -> bool:
        """Whether the call was seen to do in this process what the profile says."""
        self._loaded()
        return _seen_here.get((self._environment, signature)) == profile.behaviour

    def outside_ns(self, step: str) -> int | None:
        """What this step takes outside its operators, once that has settled."""
        self._loaded()
        return self._outside.get(step)

    def settle(self, times: Mapping[str, int]) -> None:
        """Sets the times of known profiles to what the calls took in a step: once and for all."""
        self.refresh()
        profiles = self._loaded()
        for signature, time_ns in times.items():
            profile = profiles.get(signature)
            if profile is not None and not profile.settled:
                profiles[signature] = replace(profile, time_ns=time_ns, settled=True)
                self._unsaved = True

    def settle_outside(self, step: str, nanos: int) -> None:
        """Sets what this step takes outside its operators: once and for all."""
        self.refresh()
        if self.outside_ns(step) is None:
            self._outside[step] = nanos
            self._unsaved = True

    def forget(self, signature: str) -> None:
        """Drops a profile that did not hold."""
        self._loaded().pop(signature, None)
        _seen_here.pop((self._environment, signature), None)
        self._forgotten.add(signature)
        self._unsaved = True

    def refresh(self) -> None:
        """Takes what others have saved since."""
        profiles = self._loaded()
        seen = self._directory.file_state(self._file_name())
        if seen == self._seen:
            return
        self._seen = seen
        stored_profiles, stored_outside = self._read()
        self._outside.update(stored_outside)
        for signature, stored in stored_profiles.items():
            own = profiles.get(signature)
            known = own is not None and (own.settled or not stored.settled)
            if not known and signature not in self._forgotten:
                profiles[signature] = stored

    def save(self) -> None:
        """Writes what is new; a cache that cannot be written is no error."""
        if self._unsaved:
            self.refresh()
            self._write()

    def _write(self) -> None:
        rows = {signature: row_of(profile) for signature, profile in self._profiles.items()}
        text = json.dumps({"environment": self._environment, "profiles": rows, "outside": self._outside})
        written = False
        with self._directory.replacing(self._file_name()) as path:
            if path is not None:
                path.write_text(text)
                written = True
        if written:
            self._unsaved = False
            self._forgotten.clear()
            self._seen = self._directory.file_state(self._file_name())

    def _file_name(self) -> str:
        return f"profiles-{hashlib.sha256(self._environment.encode()).hexdigest()[:16]}.json"

    def _loaded(self) -> dict[str, OpProfile]:
        switches = read_switches()
        if switches != self._switches:
            if self._unsaved:
                self._write()
            self._forgotten.clear()
            self._switches = switches
            self._environment = environment(switches)
            self._seen = self._directory.file_state(self._file_name())
            self._profiles, self._outside = self._read()
        return self._profiles

    def _read(self) -> tuple[dict[str, OpProfile], dict[str, int]]:
        """What the file holds. A missing or damaged file is an empty one, a row that is not as it should be unknown."""
        path = self._directory.to_read(self._file_name(), MOST_FILE_BYTES)
        if path is None:
            return {}, {}
        try:
            stored = json.loads(path.read_bytes())
            if stored["environment"] != self._environment:
                return {}, {}
            profiles = {signature: profile_of(row) for signature, row in stored["profiles"].items()}
            outside = {step: time_of(nanos) for step, nanos in stored["outside"].items()}
        except Exception:  # of any kind: too deep, too large, not text
            return {}, {}
        known = {signature: profile for signature, profile in profiles.items() if profile is not None}
        return known, {step: nanos for step, nanos in outside.items() if nanos is not None}


def environment(switches: tuple[Hashable, ...]) -> str:
    """All but its arguments that decides what an operator does."""
    built = f"torch {torch.__version__} {torch.version.git_version} {torch.backends.cpu.get_cpu_capability()}"
    set_to = ", ".join(f"{name} {value}" for name, value in zip(SWITCH_NAMES, switches, strict=True))
    return f"10 {built}: {set_to}"


def signature_of(
    target: torch._ops.OpOverload, arguments: Sequence[Any], results: Sequence[Ref | None], grad_mode: bool
) -> str:
    """Names a call by operator, arguments and what its capture says of its results; lifted numbers do not count.

    Tensors are named by dtype, sizes and strides. Corrections are to what the capture says: where an operand was
    corrected, the same call has been captured with other results.
    """
    mode = " with gradients" if grad_mode else ""
    return f"{target}({','.join(map(_describe, arguments))})->{','.join(map(_describe, results))}{mode}"


def step_signature(calls: Sequence[str]) -> str:
    """Names a step by all that it calls."""
    return hashlib.sha256("\n".join(calls).encode()).hexdigest()[:32]


def _describe(argument: Any) -> str:
    if isinstance(argument, Ref):
        form = f"{str(argument.dtype)[6:]}{list(argument.sizes)}{list(argument.strides)}".replace(" ", "")
        return form if argument.device.type == "cpu" else f"{form}@{_device_name(argument.device)}"
    if isinstance(argument, (list, tuple)):
        return f"[{','.join(_describe(item) for item in argument)}]"
    if isinstance(argument, Number):
        return "#"
    return repr(argument)


@functools.cache
def _device_name(device: torch.device) -> str:
    return f"{device.type} {torch.cuda.get_device_name(device)}"


def _device_of(arguments: Any, results: Sequence[Ref | None], made: Sequence[bool]) -> torch.device:
    """Where an operator makes its results, or works if it makes none."""
    places = [ref.device for ref, new in zip(results, made, strict=True) if ref is not None and new]
    return next(iter([*places, *(tensor.device for tensor in instances_in(arguments, torch.Tensor))]), CPU)


def take_profile(
    target: torch._ops.OpOverload,
    arguments: Sequence[tuple[str, Any]],
    results: Sequence[Ref | None],
    made: Sequence[bool],
    grad_mode: bool,
    *,
    timed: bool,
) -> OpProfile:
    """Runs the call alone: often enough to time it, or once.

    `arguments` are scratch and follow the schema, `made[i]` says whether result i has a storage of its own. Raises
    `CaptureError` when the real results are of another kind than the capture says.
    """
    schema = target._schema
    timed_runs = TIMED_RUNS if timed else 0
    device = _device_of(arguments, results, made)
    requests, real, time_ns = _torch.profile(
        schema.name, schema.overload_name, arguments, timed_runs, grad_mode, device
    )
    corrections: list[Correction] = []
    for index, (ref, tensor) in enumerate(zip(results, real, strict=False)):
        if ref is None or not made[index]:
            continue
        if tensor is None:
            corrections.append(Correction(index, "", (), ()))
            continue
        if tuple(tensor.shape) != ref.sizes and index != _core.op_row(schema.name).runtime_sized_result:
            told, got = list(ref.sizes), list(tensor.shape)
            raise CaptureError(f"{target} gives a tensor of sizes {got} where its capture says {told}")
        on_cpu = tensor.is_cpu and ref.device != CPU  # such as the seed that fused attention has drawn
        if (tensor.dtype, tuple(tensor.shape), tensor.stride()) != (ref.dtype, ref.sizes, ref.strides) or on_cpu:
            name, sizes = str(tensor.dtype)[6:], tuple(tensor.shape)
            corrections.append(Correction(index, name, sizes, tensor.stride(), on_cpu))
        own = tensor.untyped_storage().nbytes() == 0 or any(r[3] == index for r in requests) or _shares(real, index)
        own = own or on_cpu
        if not own:
            raise CaptureError(f"{target} returns memory that is not its own where its capture says it is")
    packed, workspace = pack_workspace(requests, alignment_on(device))
    return OpProfile(packed, workspace, time_ns, tuple(corrections))


def _shares(results: Sequence[torch.Tensor], index: int) -> bool:
    storage = results[index].untyped_storage().data_ptr()
    return any(t is not None and t.untyped_storage().data_ptr() == storage for t in results[:index])
