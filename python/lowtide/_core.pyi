"""The C++ core: graphs, plans, and the judge of plans. Ids are ints that count from 0 in the order of creation."""

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from types import CellType, FunctionType
from typing import Any

class GraphBuilder:
    """Takes ops in program order and checks each as it comes.

    Raises :class:`lowtide.errors.InvalidGraphError` with a message that names the objects; a refused call changes
    nothing.
    """

    def __init__(self) -> None: ...
    def buffer(self, size: int, *, resident: bool, initial: bool, role: str, name: str) -> int:
        """Add a storage of ``size`` bytes.

        A resident buffer lies outside the arena; ``initial`` says that it has content when the step begins. ``role`` is
        one of parameter, buffer, input, activation, gradient, optimizer_state, output, constant, temporary.
        """

    def value(self, buffer: int, dtype: str, shape: Sequence[int]) -> int:
        """Add a tensor that shows the newest version of ``buffer``. It can be read until that is overwritten."""

    def op(
        self,
        name: str,
        reads: Sequence[int],
        writes: Sequence[int],
        *,
        workspace: int = 0,
        time_ns: int = 0,
        stream: int = 0,
        random: bool = False,
        mutating: bool = False,
        collective: bool = False,
        must_not_recompute: bool = False,
        may_skip_updates: bool = False,
        backward: bool = False,
        source: str = "",
        module: str = "",
        region: int = 0,
    ) -> int:
        """Append an op that reads values and writes buffers.

        The first write of a buffer creates its content; any further one changes it in place and needs what was there.
        What the ops of a ``region`` other than 0 make, and only they and ``backward`` ones use, plans drop after its
        last use in the region, and make again.
        """

    def order(self, before: int, after: int) -> None:
        """Order two ops for a reason that no buffer shows."""

    def reuse(self, op: int, source: int, result: int) -> None:
        """Let ``op`` make the buffer ``result`` in the bytes of ``source``, which it reads, if nobody needs those."""

    def axis(
        self,
        op: int,
        reads: Sequence[int],
        writes: Sequence[int],
        counts: Sequence[tuple[int, int, int, bool]],
    ) -> None:
        """Let ``op`` run in parts: a period in bytes for each of its reads and writes, 0 where it is not cut.

        ``counts`` are numbers of parts, and of one of them the workspace, the nanoseconds, and whether its bits are
        those of the whole.
        """

    def keep(self, buffer: int) -> None:
        """Ask for the last content of a planned buffer when the step ends."""

    def build(self) -> Graph:
        """Give the graph; the builder is empty afterwards."""

class Graph:
    """The ops of one step, the tensors they touch and the memory behind those. Immutable."""

    @property
    def num_ops(self) -> int: ...
    @property
    def num_buffers(self) -> int: ...
    @property
    def num_values(self) -> int: ...
    @property
    def num_versions(self) -> int: ...
    @property
    def resident_bytes(self) -> int: ...
    @property
    def program_peak_bytes(self) -> int:
        """The most planned bytes alive at once when the ops run in program order."""

    @property
    def eager_bytes(self) -> int:
        """What eager PyTorch needs, of which budgets are shares: resident bytes and the program-order peak.

        No result reuses an operand's bytes there, regions run again, as checkpoints do, and gradients are resident.
        """

    @property
    def operand_bound_bytes(self) -> int:
        """The most planned bytes that one op reads, writes and works in: no order has a smaller peak."""

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that tell graphs apart.

        They do not depend on names of buffers, sources and modules, nor on the order in which independent things were
        added.
        """

    def summary(self) -> str:
        """A few lines: what there is, and who holds the peak at which source line."""

    def save(self, path: str | PathLike[str]) -> None:
        """Write the graph as docs/formats.md describes; compressed if the name ends in ``.zst``."""

    @staticmethod
    def load(path: str | PathLike[str]) -> Graph:
        """Read a graph. Raises :class:`lowtide.errors.InvalidGraphError` with the place, or ``OSError``."""

    def op_name(self, op: int) -> str: ...
    def op_source(self, op: int) -> str: ...
    def op_module(self, op: int) -> str: ...
    def buffer_name(self, buffer: int) -> str: ...
    def buffer_size(self, buffer: int) -> int: ...
    def resident_buffers(self) -> list[int]: ...
    @property
    def has_axes(self) -> bool:
        """Whether any operator may run in parts."""

    def axes(self, op: int) -> list[tuple[list[int], list[int], list[tuple[int, int, int, bool]]]]:
        """The ways in which the op may run in parts: periods of its reads and of its writes, and for each number of
        parts that number, the workspace and the time of one part, and whether the bits are those of the whole op."""

class Plan:
    """Which op runs at each step, and where every buffer lies while it lives. Lives are half-open ``[begin, end)``."""

    @property
    def peak_bytes(self) -> int: ...
    @property
    def alignment_bytes(self) -> int: ...
    @property
    def arena_bytes(self) -> int: ...
    @property
    def resident_bytes(self) -> int: ...
    @property
    def bound_bytes(self) -> int: ...
    @property
    def gap(self) -> float: ...
    @property
    def fragmentation(self) -> float: ...
    @property
    def time_ns(self) -> int: ...
    @property
    def order(self) -> list[int]:
        """Op ids by step."""

    def summary(self) -> str: ...
    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan as docs/formats.md describes; compressed if the name ends in ``.zst``.

        A plan that was loaded can be written after :func:`verify` has accepted it, not before.
        """

    @staticmethod
    def load(path: str | PathLike[str]) -> Plan:
        """Read what has the form of a plan; whether it is right for a graph, only :func:`verify` says.

        Raises :class:`lowtide.errors.InvalidPlanError` with the place, or ``OSError``.
        """

    def buffer_offset(self, buffer: int) -> int | None:
        """Where ``buffer`` lies in the arena, the first time if it is made again; ``None`` if it is resident."""

    def buffer_life(self, buffer: int) -> tuple[int, int]: ...
    def workspace_offset(self, step: int) -> int:
        """Where the workspace of the op at ``step`` lies; 0 if it has none."""

    def block_buffers(self) -> list[int]:
        """By block: the buffer that it stands in for.

        Block i stands in for buffer i; further ones for buffers that are made again, or leave and come back.
        """

    def block_tiers(self) -> list[int]:
        """By block: 0 for memory, i for the i-th tier behind a link."""

    @property
    def tier_arena_bytes(self) -> list[int]:
        """By tier behind a link: the highest end of its blocks."""

    @property
    def tier_resident_bytes(self) -> list[int]:
        """By tier behind a link: all resident buffers whose home it is."""

    def transfers(self) -> list[tuple[int, int, int, int]]:
        """From block, to block, the step before which it is issued, and the one before which it is over."""

    def is_exact(self, graph: Graph) -> bool:
        """Whether all parts that it runs have the bits of the whole, as `graph` says."""

    def step_parts(self) -> list[tuple[int, int, int]]:
        """By step: the axis of its op, the part and the number of parts; 0, 0 and 1 for a whole op. Empty if every step
        runs a whole op."""

    def block_parts(self) -> list[tuple[int, int, int]]:
        """By block: the period, the part and the number of parts; 0, 0 and 1 for a block of the whole buffer."""

    def step_blocks(self, step: int) -> list[int]:
        """The blocks that the op at ``step`` reads, then those that it writes."""

    def offsets(self) -> list[int]:
        """By block; -1 if resident."""

    def begins(self) -> list[int]:
        """By block."""

    def ends(self) -> list[int]:
        """By block."""

    def workspace_offsets(self) -> list[int]:
        """By step."""

class _AllocatorStats:
    @property
    def live_bytes(self) -> int:
        """As asked for."""

    @property
    def allocated_bytes(self) -> int:
        """``torch.cuda.memory_allocated()``."""

    @property
    def reserved_bytes(self) -> int:
        """``torch.cuda.memory_reserved()``."""

    @property
    def peak_live_bytes(self) -> int: ...
    @property
    def peak_allocated_bytes(self) -> int: ...
    @property
    def peak_reserved_bytes(self) -> int: ...
    @property
    def fragmentation(self) -> float:
        """The share of what is reserved at most that is never asked for."""

    @property
    def segments(self) -> int: ...
    @property
    def device_allocs(self) -> int:
        """Calls of ``cudaMalloc``, or mappings of pages."""

    @property
    def device_frees(self) -> int: ...
    @property
    def retries(self) -> int:
        """Requests for which the whole cache was given back."""

    @property
    def ooms(self) -> int: ...

class CachingAllocator(_AllocatorStats):
    """PyTorch's caching allocator for CUDA, simulated: see ``caching_allocator.h``.

    ``settings`` are those of ``PYTORCH_ALLOC_CONF``, ``"expandable_segments:True"``; ``ValueError`` for what PyTorch
    refuses. Without a ``capacity``, in bytes, the device is never full.
    """

    def __init__(self, settings: str = "", capacity: int | None = None) -> None: ...
    def allocate(self, size: int, stream: int = 0) -> int:
        """The number of the request. Raises :class:`lowtide.errors.LimitError` if the device is full."""

    def free(self, request: int) -> None: ...
    def empty_cache(self) -> None: ...
    def play(self, events: Sequence[tuple[int, int]], iterations: int) -> float:
        """Requests, each by a number of the caller's with its size, 0 for its release, over and over.

        Gives the nanoseconds that the last iteration took.
        """

    def block(self, request: int) -> tuple[int, int, int] | None:
        """Segment, offset there and size; ``None`` for no bytes, and for what is freed."""

class BlockObservation:
    """One call of a block of a model, in bytes above what was there when the batch came; see estimator.h."""

    dropped: bool
    entered: int
    left: int
    forward_peak: int
    backward_peak: int
    saved: int
    lingering: int
    result: int
    before_again: int
    again_peak: int
    held_again: int
    settled_peak: int
    time_ns: int
    def __init__(self) -> None: ...

class BatchPlan:
    """Which blocks are dropped for one batch, and how high memory will rise above what was there."""

    @property
    def dropped(self) -> list[bool]: ...
    @property
    def likely_peak(self) -> int: ...
    @property
    def safe_peak(self) -> int:
        """With margins for what is not known well."""

    @property
    def again_ns(self) -> int:
        """What running again takes."""

    @property
    def known(self) -> bool:
        """False: nothing like this batch was seen; everything is dropped, and the figures are guesses."""

    @property
    def tested(self) -> bool:
        """There were more observations than it takes to fit them."""

    @property
    def extrapolates(self) -> bool: ...
    @property
    def from_cache(self) -> bool: ...

class BatchPlanner:
    """Learns what batches need, and says which blocks to drop for the next one."""

    def __init__(self, blocks: int, *, order: int = 2, cached_plans: int = 256) -> None: ...
    def observe(
        self,
        extents: Sequence[int],
        blocks: Sequence[BlockObservation],
        backward: Sequence[int],
        tail_peak: int,
        turn_peak: int,
        update_peak: int,
    ) -> None: ...
    def learn_peak(self, likely_peak: int, actual_peak: int) -> None:
        """What a batch rose to that was likely to rise to that; overshoot is set aside from then on."""

    def plan(self, extents: Sequence[int], room: int, passing: int = 0) -> BatchPlan:
        """The fastest plan whose safe peak is at most ``room``, or else that with the smallest.

        ``passing`` bytes besides are there until the model returns only.
        """

    def least_peak(self, extents: Sequence[int]) -> int:
        """The smallest likely peak of any plan."""

    def likely_peak(self, extents: Sequence[int], dropped: Sequence[bool], passing: int = 0) -> int: ...
    def likely_blocks(self, extents: Sequence[int]) -> list[tuple[int, int]]:
        """For each block the bytes that dropping it frees, and the nanoseconds that running it again takes."""

    @property
    def observations(self) -> int: ...
    @property
    def cached_plans(self) -> int: ...

class EagerMemory(_AllocatorStats):
    """What a graph takes in plain PyTorch: figures of its allocator, with their peaks."""

    @property
    def resident_bytes(self) -> int:
        """All that is there for the whole step but gradients; part of what is asked for."""

    @property
    def fits(self) -> bool: ...
    @property
    def stopped_at(self) -> int | None:
        """The op at which the device was full; ``None`` if it fits, or if not even the parameters do."""

    @property
    def out_of_memory(self) -> dict[str, int] | None:
        """The numbers of PyTorch's message, in bytes: requested, tried, capacity, free, allocated and reserved."""

def run_eager(graph: Graph, settings: str = "", capacity: int | None = None, iterations: int = 3) -> EagerMemory:
    """Run a graph in program order through a :class:`CachingAllocator`, everything freed after its last use.

    Gradients live until the next iteration; see ``eager.h``.
    """

def lay_out(
    begins: Sequence[int],
    ends: Sequence[int],
    sizes: Sequence[int],
    *,
    alignment: int,
    fixed: Sequence[int],
    algorithm: str,
    steps: int,
) -> tuple[list[int], int, int, str]:
    """Pack items that live from step ``begins[i]`` up to ``ends[i]``, without a graph: see ``layout.h``.

    Offsets are multiples of ``alignment``; the first items have those that are ``fixed``. Gives offsets, the arena's
    bytes, bytes that are proven to be needed, and the algorithm that made it.
    """

class Watch:
    """Sees by pointer comparison, in one sweep, whether any of the places it was told of holds another object.

    It keeps what it saw alive. Each ``add_`` gives the index of the new place.
    """

    def __init__(self) -> None: ...
    def add_mapping(self, mapping: dict[Any, Any], owner: object = None) -> int:
        """All entries of ``mapping``, in order, and the class of ``owner``."""

    def add_entry(self, owner: dict[Any, Any] | type, key: str) -> int:
        """One entry of a dictionary or of a class; it may be missing."""

    def add_sequence(self, sequence: list[Any]) -> int: ...
    def add_iterable(self, iterable: Iterable[Any]) -> int:
        """A set or a deque."""

    def add_cell(self, cell: CellType) -> int: ...
    def add_function(self, function: FunctionType) -> int:
        """Its code and default arguments."""

    def add_attribute(self, object: object, descriptor: object) -> int:
        """What a descriptor made in C gives for ``object``; it may be missing."""

    def add_field(self, object: object, offset: int) -> int:
        """The pointer at ``offset`` in the object's own memory, see :func:`field_offset`."""

    def __len__(self) -> int: ...
    def same(self) -> bool: ...
    def changed(self) -> list[int]:
        """Indices of the places that hold another object than the one seen."""

    def renew(self, index: int) -> None:
        """What the place holds now is what was seen."""

def field_offset(holder: object, value: object) -> int | None:
    """Where in the memory of ``holder`` a pointer to ``value`` stands, if it does."""

class Swap:
    """A memory behind a link that buffers may leave for, where a memory budget asks for it."""

    def __init__(
        self,
        name: str,
        *,
        store_rate: int,
        load_rate: int,
        latency_ns: int = 0,
        duplex: bool = False,
        may_leave: Sequence[int] = [],
        least_bytes: int = 65536,
    ) -> None:
        """Rates are bytes a second.

        ``may_leave`` names resident buffers that may have their home there. Buffers below ``least_bytes`` stay.
        """

def kept_between_steps(graph: Graph) -> list[int]:
    """Resident parameters, gradients and optimizer state: what may leave, as far as the graph says."""

ALIGNMENT: int  # of plans, unless another is asked for: what kernels of the CPU are given

def plan(
    graph: Graph,
    *,
    order: str = "best",
    layout: str = "auto",
    reuse: bool = True,
    recompute: str = "auto",
    memory_budget: int | float | None = None,
    latency_budget_ns: int | None = None,
    swap: Swap | None = None,
    parts: str = "exact",
    alignment: int = 64,
    effort: float = 1.0,
    threads: int = 1,
    time_limit: float | None = None,
    watching: Callable[[str], None] | None = None,
) -> Plan:
    """Plan ``graph``; the plan has passed :func:`verify` and keeps the budgets.

    ``memory_budget`` covers resident bytes and arena: an int is bytes, a float a share of resident bytes and
    program-order peak. Without ``reuse``, no result is made in the bytes of an operand. ``recompute`` names what
    chooses ops that run again where a budget asks for it; with ``"none"`` nothing does. ``swap`` is a memory that
    buffers may leave for instead, where that is faster. ``parts`` says which ops may run in parts where nothing
    else keeps the memory budget: ``"exact"``, those whose parts have the bits of the whole, ``"any"`` or
    ``"none"``. Offsets are multiples of ``alignment``. ``effort`` scales the work of all searches; ``threads``
    change how long they take, never the plan; ``time_limit``, in seconds, takes the best that is found by then.
    ``watching`` is called every 50 ms, with what the search under a budget has found so far, in words; what it
    raises ends the search. Raises
    :class:`lowtide.errors.InfeasibleError`, or ``ValueError`` for an unknown algorithm.
    """

def verify(graph: Graph, plan: Plan) -> None:
    """Raise :class:`lowtide.errors.InvalidPlanError` unless ``plan`` is right."""

def explain(graph: Graph, plan: Plan | None, *, top: int, swap_per_second: int) -> tuple[str, str]:
    """Who holds the peak of a plan, or of the graph as eager PyTorch runs it: in words, and as a JSON object."""

def set_leak_warnings(warn: bool) -> None:
    """Whether objects of this module that are still there when the interpreter has ended are complained about."""

def parse_bytes(text: str) -> int:
    """``"6GiB"``, ``"800MB"``, ``"1.5 GB"``, ``"123"``; ``ValueError`` says what is wrong."""

def parse_rate(text: str) -> int:
    """``"16GB/s"``; ``ValueError`` says what is wrong."""

def parse_duration_ns(text: str) -> int:
    """``"10ms"``, ``"1.5s"``; ``ValueError`` says what is wrong."""

def parse_budget(text: str) -> int | float:
    """``"6GiB"`` is bytes, ``"60%"`` the share 0.6; ``ValueError`` says what is wrong and what was meant."""

def parse_time_budget_ns(text: str) -> int:
    """As ``parse_duration_ns``, above 0."""

def format_bytes(count: int) -> str:
    """``"6.00 GiB"``."""

class OpRow:
    """What is known of an operator beyond its schema. Arguments are positions in the schema."""

    @property
    def name(self) -> str:
        """Without overload: ``"aten::relu"``; empty where the schema is the whole truth."""

    @property
    def hidden_writes(self) -> list[int]:
        """Arguments that it writes although its schema does not say so."""

    @property
    def hidden_writes_condition(self) -> int | None:
        """Only when this argument is true; always, if ``None``."""

    @property
    def hidden_writes_are_optional(self) -> bool:
        """Given ``None`` for these, it has the same results and asks for the same memory."""

    @property
    def runtime_sized_result(self) -> int | None:
        """The index of the result whose size only the real op knows, if it has one."""

    @property
    def sees_grad_mode(self) -> bool:
        """Whether the op does other things while gradients are enabled."""

    @property
    def leaves_results_unwritten(self) -> bool:
        """Whether the op gives memory as it was found, in whole or in part."""

    @property
    def moves_no_bytes(self) -> bool:
        """Whether all of its results are memory as it was found."""

    @property
    def reads_what_it_picks(self) -> bool:
        """Whether it reads of its first argument, a table, what it picks and no more."""

    @property
    def numbers_decide_shape(self) -> bool:
        """Whether another number gives a result of another size."""

    @property
    def result_over(self) -> list[int]:
        """Arguments in whose bytes its first result can be made, with the same bits."""

    @property
    def axes(self) -> str:
        """How it may run in parts, in the notation of ``include/lowtide/ops.h``; empty: it cannot."""

def op_row(name: str) -> OpRow:
    """The row of an operator; where there is none, one that says nothing."""

def op_rows() -> list[OpRow]:
    """All rows there are."""

def model_memory(graph: Graph, steps: int, seconds: int, program: str = "single") -> tuple[int, int]:
    """Peak and arena by MODeL's program, to compare with, within this work and time.

    ``"single"`` and ``"multi"`` are for the order, one op a step or several; ``"joint"`` is for order and layout.
    """

def plan_given_parts(
    graph: Graph,
    splits: Sequence[tuple[Sequence[tuple[int, int]], int]],
    *,
    recompute: str = "none",
    memory_bytes: int | None = None,
    latency_budget_ns: int | None = None,
) -> Plan:
    """A plan in which these run in parts: operators in program order, each with an axis, and their number of parts."""

def magis_plan(
    graph: Graph,
    *,
    memory_bytes: int | None = None,
    latency_ns: int | None = None,
    run_again: bool = True,
    split: bool = True,
    levels: int = 4,
    hot_spots_only: bool = True,
    reorders: bool = False,
    seconds: float = 180.0,
    threads: int = 1,
) -> tuple[Plan, int, int, int, int, int]:
    """What the search of MAGIS finds within a memory or a latency limit, to compare with.

    The plan; its peak and its time as the search has them; how many states it took up, made, and followed to their
    peak. ``run_again``, ``split``, ``levels`` and ``hot_spots_only`` leave rules and heuristics out; with ``reorders``
    each state is put in a better order.
    """

def magis_walk(graph: Graph, changes: int, per_start: int, seed: int) -> list[tuple[int, int, int, float, float]]:
    """Random states of a step, by the rules of MAGIS; from the step as it is after every ``per_start`` changes.

    The peak of each in the order that the search gives it, in the best that a full search of orders finds, and in the
    best in which parts may mix, where else they run one after the other; the seconds that the first two took.
    """

def roam_memory(graph: Graph, steps: int = 4_000_000_000) -> tuple[int, int]:
    """Peak and arena of the order and the layout of ROAM, to compare with. ``steps`` is the work allowed."""

def recompute_trades(graph: Graph, algorithm: str) -> list[tuple[int, int]]:
    """What runs again, in ns, and the peak, of every trade that one of :func:`recompute_algorithms` finds.

    From the order that :func:`plan` starts from and with the work that it allows, so that algorithms can be compared.
    """

def recompute_bounds(graph: Graph, costs: Sequence[int]) -> list[int]:
    """For each cost of what runs again: no plan that spends no more has a lower peak."""

def joint_bounds(graph: Graph, swap: Swap, memory_bytes: Sequence[int]) -> list[int]:
    """For each amount, of resident bytes and arena: no plan within it takes less time, in ns.

    Whatever runs again, and whatever leaves memory as ``swap`` allows.
    """

def order_algorithms() -> list[tuple[str, str]]:
    """Names and descriptions."""

def layout_algorithms() -> list[tuple[str, str]]:
    """Names and descriptions."""

def recompute_algorithms() -> list[tuple[str, str]]:
    """Name and description of each, the default first; besides, ``"none"``."""
