"""`lowtide.plan`: a verified plan of a graph, within budgets given as people write them."""

from __future__ import annotations

from . import _core
from ._base.budgets import read_latency_budget, read_link, read_memory_budget
from ._base.progress import plan_in_sight


def plan(
    graph: _core.Graph,
    *,
    memory_budget: int | float | str | None = None,
    latency_budget: int | float | str | None = None,
    order: str = "best",
    layout: str = "auto",
    reuse: bool = True,
    recompute: str = "auto",
    link: str | None = None,
    allow_inexact: bool = False,
    alignment: int = _core.ALIGNMENT,
    effort: float = 1.0,
    threads: int = 1,
    time_limit: float | None = None,
) -> _core.Plan:
    """A plan of `graph` that `verify` has accepted and that keeps the budgets, or `InfeasibleError`.

    `memory_budget` is bytes, text ("6GiB") or a share (0.6 or "60%") of what eager needs, which is
    `graph.eager_bytes`: resident bytes and program-order peak. It covers resident bytes and arena. `latency_budget` is
    milliseconds or text ("20ms"). With `reuse`, operators that can do so with the same bits make their result in the
    bytes of an operand that nobody needs any more.

    Every operator runs once, if the memory budget allows that. If not, some run again, so that what they make need not
    be kept: as few and cheap ones as are found. With a latency budget alone, as much runs again as that allows, and the
    plan needs as little memory as is found. `recompute` names what chooses them; "none" lets nothing run again.

    With a `link` ("16GB/s"), the memory budget may also move tensors to the host's memory and back over a bus with that
    rate each way: activations, and what is kept between steps. What is the fastest is taken.

    Where nothing else keeps the memory budget, operators that have axes run in parts: those that are known to have the
    bits of the whole, or with `allow_inexact` all of them.

    Offsets are multiples of `alignment`. `effort` scales the work of all searches; `threads` change how long they take,
    never the plan. `time_limit`, in seconds, takes the best plan that is found by then, which may be another one on
    another machine.

        plan = lowtide.plan(graph, memory_budget="6GiB")
        print(plan.summary())
    """
    if threads < 1:
        raise ValueError(f"threads: expected a number above 0, got {threads!r}")
    if time_limit is not None and not time_limit > 0:
        raise ValueError(f"time_limit: expected seconds above 0, got {time_limit!r}")
    return plan_in_sight(
        graph,
        order=order,
        layout=layout,
        reuse=reuse,
        recompute=recompute,
        memory_budget=read_memory_budget(memory_budget),
        latency_budget_ns=read_latency_budget(latency_budget),
        swap=None if link is None else swap_to_host(graph, link),
        parts="any" if allow_inexact else "exact",
        alignment=alignment,
        effort=effort,
        threads=threads,
        time_limit=time_limit,
    )


def swap_to_host(graph: _core.Graph, link: str, *, duplex: bool = True) -> _core.Swap:
    """All that is kept between steps may leave, over a link with that rate."""
    rate = read_link(link)
    return _core.Swap("host", store_rate=rate, load_rate=rate, duplex=duplex, may_leave=_core.kept_between_steps(graph))
