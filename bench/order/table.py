"""Memory of training steps beside what others plan: the models and batches of ROAM's evaluation.

    python -m bench run order_table [--slow [--seconds N]] [--optimizer sgd] [--cache DIR] [MODEL ...]

Methods:

    PyTorch live       the most bytes alive in eager execution, where gradients live until the next step zeroes them
    PyTorch reserved   what its caching allocator for CUDA reserves for that (simulated)
    expandable         the same, with expandable_segments:True
    LESCEA + LLFB      the heuristics that ROAM compares with: an order that leaves the least alive at each op, and
                       Sekiyama's best fit (`skyline`) as the layout
    ROAM               its order and its layout
    MODeL              its integer program for the order, on HiGHS, from program order on, with the best layout; any
                       number of ops a step, as published, or one; and the program for order and layout at once. Only
                       with --slow
    Lowtide, order     the best order and layout; as in the others, every result has bytes of its own
    Lowtide            as `lowtide.plan` does it: results may be made in the bytes of operands

All but PyTorch's plan gradients as they plan activations: nobody keeps them. *Planned* is the arena (for PyTorch, all
but what is resident), *total* adds parameters, the state of Adam and the batch. *Fragmentation* is the share that is
not in use even at the peak: of the arena, and for PyTorch of all that is reserved. Operators' own workspaces are left
out. The optimizer updates one parameter after the other; MODeL was measured with SGD, which leaves smaller graphs.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import lowtide
from bench.lib.markdown import header, line
from bench.order.reductions import reduction
from bench.zoo import graphs as zoo_graphs
from bench.zoo.graphs import GRADIENTS, MIB, Form, Step
from lowtide import _core

MODELS = ("alexnet", "vgg16", "mnasnet", "mobilenet_v2", "efficientnet_b0", "vit_base", "bert_base", "gpt2_xl")


@dataclass(frozen=True)
class Method:
    """A way to plan a step: gives the peak and the arena."""

    name: str
    run: Callable[[lowtide.Graph], tuple[int, int]]


def by_name(order: str, layout: str, *, reuse: bool = False) -> Callable[[lowtide.Graph], tuple[int, int]]:
    """A plan by algorithms of the registries."""

    def run(graph: lowtide.Graph) -> tuple[int, int]:
        plan = lowtide.plan(graph, order=order, layout=layout, reuse=reuse)
        return plan.peak_bytes, plan.arena_bytes

    return run


OURS = Method("Lowtide", by_name("best", "auto", reuse=True))
ORDER_ALONE = Method("Lowtide, order", by_name("best", "auto"))
OTHERS = (Method("LESCEA + LLFB", by_name("lescea", "skyline")), Method("ROAM", _core.roam_memory))
FAST = (*OTHERS, ORDER_ALONE, OURS)
PYTORCH = ("PyTorch live", "PyTorch reserved", "PyTorch reserved, expandable")
COLUMNS = ("model", "batch", "method", "planned MiB", "total MiB", "fragmentation", "seconds")


def programs(seconds: int) -> list[Method]:
    """The integer programs of MODeL, with so much time for each."""

    def by(program: str) -> Callable[[lowtide.Graph], tuple[int, int]]:
        return lambda graph: _core.model_memory(graph, 10**9 * seconds, seconds, program=program)

    return [
        Method("MODeL", by("multi")),
        Method("MODeL, one op a step", by("single")),
        Method("MODeL, joint", by("joint")),
    ]


@dataclass(frozen=True)
class Memory:
    """What a method needs for a step."""

    method: str
    model: str
    batch: int
    planned: int
    resident: int
    fragmentation: float
    seconds: float

    @property
    def total(self) -> int:
        return self.planned + self.resident


@dataclass(frozen=True)
class Refused:
    """Why a method has no plan for a step."""

    method: str
    model: str
    batch: int
    refused: str


def pytorch(step: Step) -> list[Memory]:
    """The figures of PyTorch itself, of a step that keeps its gradients."""
    eager, expandable = (_core.run_eager(step.graph, settings) for settings in ("", "expandable_segments:True"))
    amounts = (
        (eager.peak_live_bytes, 0.0),
        *((run.peak_reserved_bytes, run.fragmentation) for run in (eager, expandable)),
    )
    return [
        Memory(name, step.model, step.batch, total - eager.resident_bytes, eager.resident_bytes, fragmentation, 0.0)
        for name, (total, fragmentation) in zip(PYTORCH, amounts, strict=True)
    ]


def planned(step: Step, method: Method) -> Memory | Refused:
    """Of a step that drops its gradients."""
    begin = time.process_time()
    try:
        peak, arena = method.run(step.graph)
    except lowtide.LimitError as error:
        return Refused(method.name, step.model, step.batch, str(error))
    seconds = time.process_time() - begin
    return Memory(method.name, step.model, step.batch, arena, step.graph.resident_bytes, 1 - peak / arena, seconds)


def print_table(kept: Iterable[Step], dropped: Iterable[Step], methods: Sequence[Method]) -> list[Memory | Refused]:
    """Prints the table of the same steps with gradients kept and dropped, and gives its rows."""
    print(header(COLUMNS))
    rows: list[Memory | Refused] = []
    for eager, step in zip(kept, dropped, strict=True):
        for row in itertools.chain(pytorch(eager), (planned(step, method) for method in methods)):
            cells = (row.refused,) if isinstance(row, Refused) else _cells(row)
            print(line((row.model, row.batch, row.method, *cells)), flush=True)
            rows.append(row)
    return rows


def print_reductions(rows: Sequence[Memory | Refused], ours: str) -> None:
    """How much less ours needs than each other method."""
    print()
    print(header((f"{ours} beside", "batch 1: planned", "total", "larger batch: planned", "total")))
    for other in dict.fromkeys(row.method for row in rows if isinstance(row, Memory) and row.method != ours):
        cells = [
            reduction([vars(row) for row in rows], ours, other, batch_one=batch_one, total=total)
            for batch_one in (True, False)
            for total in (False, True)
        ]
        print(line((other, *cells)))


def _cells(made: Memory) -> tuple[str, ...]:
    fragmentation = f"{100 * made.fragmentation:.2f} %"
    return f"{made.planned / MIB:.1f}", f"{made.total / MIB:.1f}", fragmentation, f"{made.seconds:.2f}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    zoo_graphs.add_arguments(parser)
    parser.add_argument("--slow", action="store_true", help="the integer programs of MODeL too")
    parser.add_argument("--seconds", type=int, default=300, help="for each of these programs")
    parser.add_argument("--optimizer", choices=("adam", "sgd"), default="adam")


def run(options: argparse.Namespace) -> list[Memory | Refused]:
    """Prints both tables; gives the rows of the first."""
    options.models = options.models or MODELS
    forms = (Form(options.optimizer, gradients) for gradients in GRADIENTS)
    kept, dropped = (zoo_graphs.chosen(options, [form]) for form in forms)
    methods = [*FAST, *programs(options.seconds)] if options.slow else FAST
    rows = print_table(kept, dropped, methods)
    for ours in (ORDER_ALONE, OURS):
        print_reductions(rows, ours.name)
    return rows
