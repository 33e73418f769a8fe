"""The runtime on PyTorch: arena, allocator, executor. Only this package calls it."""

import datetime
from collections.abc import Callable, Mapping, Sequence

import torch

def install_allocator() -> None:
    """Put the counting and replaying allocator in place; once is enough."""

def arena_usable_bytes(device: torch.device = ...) -> int:
    """Bytes of the device's arena that open programs need."""

def arena_leased_bytes(device: torch.device = ...) -> int:
    """Bytes of it that somebody has: a step that runs, a region between its passes, gradients that stay in it."""

def empty_arena() -> None:
    """Give the arena's memory back to the system until the next step; what somebody outside holds of it stays."""

def profile(
    name: str,
    overload: str,
    arguments: Sequence[tuple[str, object]],
    timed_runs: int,
    grad_mode: bool,
    device: torch.device = ...,
) -> tuple[list[tuple[int, int, int, int]], list[torch.Tensor], int]:
    """Run one operator alone: its requests on the device (bytes, begin, end, result), its results, nanoseconds."""

def profile_part(
    name: str,
    overload: str,
    arguments: Sequence[tuple[str, object]],
    timed_runs: int,
    grad_mode: bool,
    device: torch.device,
    delivers: Sequence[tuple[int, torch.Tensor, bool]],
) -> tuple[list[tuple[int, int, int, int, int]], int]:
    """Run one part of an operator alone, and copy or add results to where they belong.

    Gives its requests (bytes, begin, end, result, and which result was being delivered then, or -1), and nanoseconds.
    """

def engine_word() -> bytes:
    """PyTorch's switches as they are now: other bytes where one of them is another."""

def call_word() -> bytes:
    """The same with grad mode, inference mode and autocast."""

def runtime() -> object:
    """What the extension of another device needs."""

def autocast_cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The cast that autocast works with: the one that it keeps, or a new one, which it then keeps."""

class Meter:
    """Counts allocator bytes of a device from its creation until it is closed."""

    def __init__(self, device: torch.device = ...) -> None: ...
    def close(self) -> None: ...
    def read(self) -> tuple[int, int, int, int]:
        """Live ordinary bytes, arena bytes, peak of their sum, allocations."""
    def mark(self) -> tuple[int, int]:
        """Bytes that are there and their peak since the last mark; the next peak begins here."""
    def limit(self, bytes: int | None) -> None:
        """A request that would raise the bytes above this raises torch.OutOfMemoryError; None for no limit."""

class Recording:
    """The requests of one iteration of eager code, in their sequence; lives are counted in requests."""

    def __init__(
        self,
        bytes: Sequence[int],
        begins: Sequence[int],
        ends: Sequence[int],
        stays: Sequence[bool],
        alignment: int = ...,
    ) -> None: ...
    @property
    def bytes(self) -> list[int]: ...
    @property
    def begins(self) -> list[int]: ...
    @property
    def ends(self) -> list[int]: ...
    @property
    def stays(self) -> list[bool]:
        """Whether it was alive when the iteration ended."""

    @property
    def ops(self) -> list[str]:
        """The operators that made the requests, ``""`` for none; empty if nobody looked."""

    @property
    def alignment(self) -> int:
        """Of places for them."""

    def actions(self) -> list[tuple[int, bool]]:
        """What to do one after the other: a request, and whether it is made or released."""

    def __len__(self) -> int: ...

class Script:
    """Where each request of an iteration is served: an offset of the arena, or -1 for outside."""

    def __init__(self, recording: Recording, offsets: Sequence[int]) -> None: ...
    @property
    def arena_bytes(self) -> int: ...
    @property
    def offsets(self) -> list[int]: ...
    def __len__(self) -> int: ...

class ReplayOutcome:
    """What happened in an iteration: see ``replay/server.h``."""

    @property
    def hits(self) -> int: ...
    @property
    def outside(self) -> int: ...
    @property
    def misses(self) -> int: ...
    @property
    def departed_at(self) -> int:
        """The first request that was not served as the script has it; -1 if all were."""

    @property
    def unplanned(self) -> int:
        """Requests made without a script."""

    @property
    def escaped(self) -> int: ...
    @property
    def blocked(self) -> bool:
        """Whether something that had escaped before was in the way."""

class EagerIterations:
    """Iterations of eager code, served from one arena: see ``eager_iterations.h``."""

    def stop(self) -> None: ...
    def set_paused(self, paused: bool) -> None: ...
    def set_arena(self, bytes: int) -> None: ...
    def begin(self, variants: Sequence[Script], smaller: bool, record: bool) -> None: ...
    def finish(self) -> ReplayOutcome: ...
    def take_recording(self) -> Recording: ...
    @property
    def requests_elsewhere(self) -> int: ...
    @property
    def blocks_left_behind(self) -> int: ...

class EagerReplay(EagerIterations):
    """Those of the CPU: see ``eager_replay.h``."""

    def start(self) -> bool: ...
    def spill_to(self, folder: str) -> None: ...

def eager_replay() -> EagerReplay:
    """That of the process."""

class DeviceReplay(EagerIterations):
    """Those of another device: see ``device_replay.h``."""

    def take_over(self, device: torch.device) -> None:
        """Follow the loop on this device, instead of the CPU's replay, which is stopped."""
    @property
    def requests_on_other_streams(self) -> int: ...
    def leave_out_waits(self, leave_out: bool) -> None:
        """Plant a fault, for tests: what other streams do is not waited for."""

def device_replay() -> DeviceReplay:
    """That of the process."""

def time_allocations(recording: Recording, script: Script, rounds: int) -> tuple[float, float]:
    """Nanoseconds of all requests and releases by themselves: PyTorch's own allocator, and the script."""

class ReplayStats:
    """What happened while the last step was replayed."""

    @property
    def highest_end(self) -> int: ...
    @property
    def misses(self) -> int: ...
    @property
    def unplanned_peak(self) -> int: ...

GUARD_MARGIN: int

class MemoryFault:
    """What the memory guard found; buffers by index (-1: a workspace), suspects by call."""

    @property
    def kind(self) -> str: ...
    @property
    def buffer(self) -> int: ...
    @property
    def other(self) -> int: ...
    @property
    def distance(self) -> int: ...
    @property
    def first_suspect(self) -> int: ...
    @property
    def last_suspect(self) -> int: ...

class SlowTier:
    """A memory behind a link that programs swap to."""

def file_tier(file: TierFile) -> SlowTier:
    """For programs on the CPU."""

def host_tier(device: torch.device) -> SlowTier | None:
    """Pinned memory of the host, for programs on a CUDA device; None for the CPU."""

def has_homes() -> bool:
    """Whether the memory of any tensor is in a file."""

def put_away(tensor: torch.Tensor, tier: SlowTier) -> None:
    """Give the tensor's storage a home in the tier instead of its memory, if it has none there."""

def bring_back(tensor: torch.Tensor, tier: SlowTier) -> None:
    """Give the tensor's storage ordinary memory, if its home is in the tier; what is loaded is verified."""

def has_own_memory(tensor: torch.Tensor) -> bool:
    """Whether its memory is its storage's own, and not lent to it."""

def was_shown_as_array(tensor: torch.Tensor) -> bool:
    """Whether an array of NumPy has ever shown its memory."""

def storage_uses(tensor: torch.Tensor) -> int:
    """How many tensors refer to its storage, but for those of programs."""

def count_tensors(tensors: Sequence[torch.Tensor], objects: Sequence[object]) -> list[int]:
    """How many of the objects are tensors with the storage of each of these, and certainly held by Python alone."""

def move_gradients_out(leaves: Sequence[torch.Tensor]) -> None:
    """Give gradients of these leaves that lie in the arena ordinary memory, where nobody else holds them."""

def is_in(tensor: torch.Tensor, tier: SlowTier) -> bool:
    """Whether the tensor's memory is in this tier."""

def any_has_hooked_node(leaves: Sequence[torch.Tensor]) -> bool:
    """Whether the node that adds to the gradient of one of them has hooks."""

def is_away(tensor: torch.Tensor) -> bool:
    """Whether the tensor's memory is in a tier."""

class Program:
    """A planned step, ready to run."""

    def __init__(self, device: torch.device, arena_bytes: int, guard: str) -> None: ...
    def add_buffer(self, kind: str, bytes: int, offset: int, device: torch.device) -> int: ...
    def add_value(
        self, buffer: int, dtype: torch.dtype, sizes: Sequence[int], strides: Sequence[int], offset: int
    ) -> int: ...
    def add_call(
        self,
        name: str,
        overload: str,
        arguments: Sequence[tuple[str, object]],
        results: Sequence[int],
        requests: Sequence[tuple[int, int]],
        ends: Sequence[int],
        writes: Sequence[int],
        replaces: Sequence[tuple[int, int]],
        workspace: tuple[int, int],
        grad_mode: bool,
        leaves_unwritten: bool,
        copies: bool,
        draws_like: int,
        delivers: Sequence[tuple[int, bool]] = ...,
        opens: Sequence[int] = ...,
    ) -> int:
        """Add a call.

        It `delivers` those results, by copying or adding, to values that are there; `opens` are the buffers for which
        it is the first to do so.
        """
    def add_output(self, value: int) -> None: ...
    def use_tier(self, tier: SlowTier, slot_bytes: int) -> None:
        """Before any buffer: slots lie in the first `slot_bytes` that are reserved there."""
    def add_transfer(self, source: int, target: int, issue: int, wait: int, stores: bool) -> None:
        """Between two buffers: begins before call `issue`, is over before call `wait`."""
    def add_home(self, buffer: int, home: int) -> None:
        """The planned `buffer` stands for one that is bound or made, and has its home in the tier."""
    def add_pause(self, call: int) -> None: ...
    def finish(self, numbers: Sequence[int | float]) -> None: ...
    def bind(self, buffer: int, tensor: torch.Tensor, transient: bool = False) -> None: ...
    def stale_binding(self) -> int: ...
    def mark_written(self, buffer: int) -> None:
        """What is bound to it is written after the program and before the step is over."""

    def overlap(self) -> tuple[int, int] | None:
        """Two bound buffers that share bytes which the step writes, as they are bound now."""

    def run(self, numbers: Sequence[int | float], look: Callable[[], None] | None = None) -> list[torch.Tensor]:
        """Run the step, or what is left of one that has paused.

        `look` is called between two operators now and then, and stops the step if it raises.
        """

    def run_to_pause(self, look: Callable[[], None] | None = None) -> torch.Tensor:
        """Run up to the next pause; give its value. Only what is used until then must be bound."""

    def add_turn(self, kept_bytes: int) -> None:
        """The first half of a region ends here; what the second needs lies in the first `kept_bytes`."""

    def claim(self) -> bool:
        """Whether no run of this region is under way; then the caller has one."""

    def unclaim(self) -> None:
        """End a claim without a run."""

    @property
    def bytes_below(self) -> int:
        """Bytes of the arena below the last run, which are somebody else's."""

    @property
    def held_outputs(self) -> list[int]:
        """Of what the last run made and gave at its end, the outputs that somebody still has."""

    @property
    def is_under_way(self) -> bool:
        """Whether a half of the region runs, or the second half is to come."""

    def run_to_turn(self, look: Callable[[], None] | None = None) -> list[torch.Tensor]:
        """Run the first half: its outputs, and if there is a second half the run's token behind them.

        A run whose token is freed before the second half has run is given up.
        """

    @staticmethod
    def claim_turned(token: torch.Tensor) -> Program | None:
        """The program whose run a token is for, if that has turned and is not over."""

    def changed_since_turn(self) -> int:
        """The first bound or handed out buffer that the second half needs and somebody has written or moved, or -1."""

    def run_from_turn(self, again: bool, look: Callable[[], None] | None = None) -> list[torch.Tensor]:
        """Run the second half; `again`: it can run once more afterwards."""

    @property
    def bytes_put_aside(self) -> int:
        """Bytes of ordinary memory that a run which is to run once more has put aside."""

    @property
    def annex_bytes(self) -> int:
        """Bytes that a run under way has beside the arena, which cannot grow now."""

    def can_go_on(self) -> bool:
        """Whether it has paused, no other step has run since, and what is bound has not moved."""

    def abandon(self) -> None:
        """Let go of a run that has paused."""

    def time_calls(self) -> None:
        """Take the time of each call until enough runs have gone as planned; not in a guarded program."""

    def close(self) -> None: ...
    @property
    def call_nanos(self) -> list[int]:
        """What each call takes, 0 where there was nothing to do; empty until it is known."""

    @property
    def failed_call(self) -> int: ...
    @property
    def wrote_bound(self) -> bool:
        """Whether the last run had begun a call that writes bound memory; if not, all of that is as it was."""

    @property
    def memory_fault(self) -> MemoryFault | None: ...
    @property
    def stats(self) -> ReplayStats: ...
    @property
    def missed_calls(self) -> list[int]: ...
    @property
    def escapes(self) -> list[tuple[int, int]]: ...

class TierFile:
    """A file without a name to swap to: bytes are stored and loaded back asynchronously. Raises OSError.

    `way` is "io_uring", "threads" or "best". A wait gives up when nothing has moved for `patience`.
    """

    def __init__(
        self, folder: str, way: str = "best", direct: bool = True, patience: datetime.timedelta = ...
    ) -> None: ...
    @property
    def folder(self) -> str: ...
    @property
    def way(self) -> str:
        """What moves bytes: "io_uring" or "threads"."""
    @property
    def direct(self) -> bool:
        """Whether they pass by the page cache."""
    def reserve(self, bytes: int) -> int:
        """The offset of a slot with room on the disk."""
    def release(self, offset: int, bytes: int) -> None: ...
    def tensor(self, bytes: int) -> torch.Tensor:
        """Bytes of the file as a tensor: a slot, released with its storage."""
    def store(self, tensor: torch.Tensor, offset: int) -> int:
        """Begin to copy a tensor to the file: a ticket to wait for, and until then the tensor must stay as it is."""
    def load(self, tensor: torch.Tensor, offset: int) -> int:
        """Begin to copy what was stored to a tensor: a ticket to wait for."""
    def wait(self, ticket: int) -> None: ...
    def wait_all(self) -> None: ...
    def set_faults(self, kinds: Mapping[int, str]) -> None:
        """For tests: what goes wrong with which of the transfers that are issued from now on."""
    @staticmethod
    def find(tensor: torch.Tensor) -> tuple[TierFile, int] | None:
        """Where a tensor's first byte is, if its memory is a part of a file."""
    @staticmethod
    def is_touched(tensor: torch.Tensor) -> bool:
        """Whether this part of a file was looked at or written as a tensor since it was stored or forgotten."""
    @staticmethod
    def forget_pages(tensor: torch.Tensor) -> None:
        """Give the memory of this part of a file back to the system; the file has its bytes."""

def measure_link(folder: str) -> tuple[int, int, int]:
    """Of the disk behind a folder: bytes per second stored and loaded, and nanoseconds of latency. Takes a second."""
