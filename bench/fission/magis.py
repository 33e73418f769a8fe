"""Memory for time on the training steps of MAGIS (ASPLOS 2024): Lowtide, that paper's search and named planners.

    python -m bench run fission_magis [--quick] [--only NAME] [--device NAME] [--seconds N] [--graphs DIR]

The steps are those of `bench/fission/workloads.py`, on devices that are not here: times are rooflines, and parts of
operators cost what small kernels do. Four limits, as in that paper: the least memory within 1.05 and 1.10 times the
step's time, and the least time within 0.8 and 0.4 of eager's bytes. Memory is arena and resident bytes as a share of
what plain PyTorch has live; time is the plan's as a share of the step with every operator once.

All planners have the same graphs and costs. `MAGIS` is that paper's search alone, for so many seconds of wall time
(`src/published/magis/magis.h` says how it differs from the paper): it starts from program order, where the others start
from the best order, and keeps its limit of memory if its peak does, whatever the arena. It keeps the order, as the
released code does; `MAGIS, reordered` puts each state in a better one, as the paper does. What both find depends on how
busy the machine is. `Lowtide, whole` runs no operator in parts, nor do the named planners; these have the work that
`plan` allows them, which is little for `checkmate`. `rotor, micro-batches` is the best of 2, 4 and 8 micro-batches of
the whole step, each traded by `rotor`; where batch normalization needs the whole batch there are none. Left out are
swapping, TASO's rules, and XLA's greedy.

Steps for the speed of the search, `gpt_268` and `bert_large`, are searched once, for the least memory within 1.10
times the step's time, on one thread; each state is put in a better order, and seconds are the processor's. What that
order is worth is measured too: states at random, and each of them in the best order that a full search finds, in which
the parts of a region run one after the other, as that paper has them, or may mix.

`bert_base` on an A100 is searched with each rule and heuristic of the search left out in turn.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lowtide
from bench.fission import workloads
from bench.fission.batch_axes import BatchAxes
from bench.lib import progress
from bench.lib.markdown import header, line
from bench.zoo.graphs import MIB
from lowtide import _core
from lowtide._base.graph_file import GraphFile
from lowtide.errors import InfeasibleError

COMPARED = (
    "resnet50", "resnet50_plain", "bert_base", "vit_base", "unet", "unet_plus_plus", "gpt_neo_1.3b", "btlm_3b",
)  # fmt: skip
SEARCHED = ("gpt_268", "bert_large")
ABLATED = ("bert_base", "A100")

OURS, WHOLE, MICRO = "Lowtide", "Lowtide, whole", "rotor, micro-batches"
MAGIS, MAGIS_REORDERED = "MAGIS", "MAGIS, reordered"
NAMED = ("chen", "rotor", "dtr", "checkmate")
MICRO_BATCHES = (2, 4, 8)

ABLATIONS: dict[str, dict[str, Any]] = {
    "as in the paper": {},
    "nothing runs again": {"run_again": False},
    "nothing in parts": {"split": False},
    "2 levels": {"levels": 2},
    "8 levels": {"levels": 8},
    "not at hot spots only": {"hot_spots_only": False},
}


@dataclass(frozen=True)
class Limit:
    """Of `time`, as a share of the step's, or of `memory`, as a share of eager's; the other is to be low."""

    of: str
    share: float

    def __str__(self) -> str:
        return f"{self.of} {self.share:.2f}"


LIMITS = (Limit("time", 1.05), Limit("time", 1.10), Limit("memory", 0.8), Limit("memory", 0.4))
SEARCH_LIMIT = LIMITS[1]
CHANGES, CHANGES_PER_START = 100, 10  # of a walk


@dataclass(frozen=True)
class Step:
    """A workload on a device."""

    name: str
    device: str
    graph: lowtide.Graph
    step_ns: int  # every operator once
    twice: Callable[[], lowtide.Graph]  # at twice the batch

    def bytes_of(self, limit: Limit) -> int:
        return int(limit.share * self.graph.eager_bytes)

    def nanos_of(self, limit: Limit) -> int:
        return int(limit.share * self.step_ns)


@dataclass(frozen=True)
class Found:
    """Memory and time of a plan, as shares, and the seconds that it took; without them if none keeps the limit."""

    seconds: float
    memory: float | None = None
    time: float | None = None

    def of(self, limit: Limit) -> float | None:
        """What was to be low."""
        return self.memory if limit.of == "time" else self.time


@dataclass(frozen=True)
class Searched:
    """What the search of MAGIS made of a step."""

    found: Found
    states: int  # that differ
    cpu_seconds: float

    @property
    def states_per_second(self) -> float:
        return self.states / self.found.seconds


def planned(step: Step, limit: Limit, *, parts: str, recompute: str = "auto") -> Found:
    """What `plan` finds."""
    budget: dict[str, Any] = (
        {"latency_budget_ns": step.nanos_of(limit)} if limit.of == "time" else {"memory_budget": step.bytes_of(limit)}
    )
    begin = time.perf_counter()
    try:
        plan = _core.plan(step.graph, recompute=recompute, parts=parts, **budget)
    except InfeasibleError:
        return Found(time.perf_counter() - begin)
    return _found(step, plan, time.perf_counter() - begin)


def in_micro_batches(step: Step, limit: Limit) -> Found:
    """The best of some numbers of micro-batches of the whole step, each traded by `rotor`."""
    begin = time.perf_counter()
    axes = BatchAxes(step.graph, GraphFile(step.graph), step.twice())
    best = Found(0.0)
    for count in MICRO_BATCHES:
        if axes.stuck or count not in axes.extra_ns:
            continue
        least_ns = step.step_ns + axes.extra_ns[count]
        slowest_ns = step.nanos_of(limit) if limit.of == "time" else (best.time or math.inf) * step.step_ns
        if least_ns > slowest_ns:
            continue
        budget = (
            {"latency_budget_ns": step.nanos_of(limit)}
            if limit.of == "time"
            else {"memory_bytes": step.bytes_of(limit)}
        )
        try:
            plan = _core.plan_given_parts(step.graph, [(list(axes.along.items()), count)], recompute="rotor", **budget)
        except InfeasibleError:
            continue
        found = _found(step, plan, 0.0)
        low, lowest = found.of(limit), best.of(limit)
        if low is not None and (lowest is None or low < lowest):
            best = found
    return dataclasses.replace(best, seconds=time.perf_counter() - begin)


def searched(step: Step, limit: Limit, seconds: float, threads: int, **rules: Any) -> Searched:
    """What the search of MAGIS finds."""
    budget: dict[str, Any] = (
        {"latency_ns": step.nanos_of(limit)} if limit.of == "time" else {"memory_bytes": step.bytes_of(limit)}
    )
    begin, cpu_begin = time.perf_counter(), time.process_time()
    plan, peak, nanos, _, _, states = _core.magis_plan(step.graph, seconds=seconds, threads=threads, **budget, **rules)
    took, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    kept = (
        nanos <= step.nanos_of(limit)
        if limit.of == "time"
        else peak + step.graph.resident_bytes <= step.bytes_of(limit)
    )
    return Searched(_found(step, plan, took) if kept else Found(took), states, cpu_seconds)


def _found(step: Step, plan: lowtide.Plan, seconds: float) -> Found:
    memory = (plan.arena_bytes + plan.resident_bytes) / step.graph.eager_bytes
    return Found(seconds, memory, plan.time_ns / step.step_ns)


def planners(options: argparse.Namespace) -> dict[str, Callable[[Step, Limit], Found]]:
    """By name, quick ones first."""

    def named(name: str) -> Callable[[Step, Limit], Found]:
        return lambda step, limit: planned(step, limit, recompute=name, parts="none")

    return {
        OURS: lambda step, limit: planned(step, limit, parts="any"),
        WHOLE: lambda step, limit: planned(step, limit, parts="none"),
        **{name: named(name) for name in NAMED},
        MICRO: in_micro_batches,
        MAGIS: lambda step, limit: searched(step, limit, options.seconds, options.threads).found,
        MAGIS_REORDERED: lambda step, limit: (
            searched(step, limit, options.seconds, options.threads, reorders=True).found
        ),
    }


def step_of(name: str, device: str, options: argparse.Namespace) -> Step:
    """Captured, or from files if there are some."""
    workload = workloads.named(name)

    def graph_of(file_name: str, device: str | None, times: int) -> lowtide.Graph:
        file = options.graphs / file_name if options.graphs else None
        if file is not None and file.exists():
            return lowtide.Graph.load(file)
        graph = workloads.graph_of(workload, device, small=options.quick, times=times)
        if file is not None:
            graph.save(file)
        return graph

    graph = graph_of(workloads.file_name(workload, device), device, 1)
    twice = functools.cache(lambda: graph_of(f"{name}-twice.json.zst", None, 2))
    once = _core.plan(graph, recompute="none", parts="none", layout="greedy_by_size")
    return Step(name, device, graph, once.time_ns, twice)


COLUMNS = ("step", "device", "ops", "eager MiB", "planner", *(f"at {limit}" for limit in LIMITS), "seconds")


def compare(step: Step, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Prints a line for each planner; gives a row for each limit too."""
    for planner, plan in planners(options).items():
        found = [plan(step, limit) for limit in LIMITS]
        cells = [_share(each.of(limit)) for each, limit in zip(found, LIMITS, strict=True)]
        start = (step.name, step.device, step.graph.num_ops, f"{step.graph.eager_bytes / MIB:.0f}", planner)
        print(line((*start, *cells, f"{sum(each.seconds for each in found):.0f}")), flush=True)
        for each, limit in zip(found, LIMITS, strict=True):
            yield {
                "step": step.name,
                "device": step.device,
                "ops": step.graph.num_ops,
                "eager_bytes": step.graph.eager_bytes,
                "step_ns": step.step_ns,
                "planner": planner,
                "limit_of": limit.of,
                "limit": limit.share,
                "memory": each.memory,
                "time": each.time,
                "seconds": each.seconds,
            }


def _share(share: float | None) -> str:
    return "none" if share is None else f"{share:.3f}"


def behind(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Where another planner has less than ours, in words."""
    said = []
    for row in rows:
        low = "memory" if row["limit_of"] == "time" else "time"
        same = ("step", "device", "limit_of", "limit")
        mine = next(each for each in rows if each["planner"] == OURS and all(each[key] == row[key] for key in same))[
            low
        ]
        if row[low] is not None and (mine is None or row[low] < mine):
            limit = Limit(row["limit_of"], row["limit"])
            said.append(
                f"{row['step']}, {row['device']}, {limit}: {row['planner']} {row[low]:.4f}, "
                f"ours {'none' if mine is None else f'{mine:.4f}'}"
            )
    return said


def print_searches(steps: Iterable[Step], options: argparse.Namespace) -> list[dict[str, Any]]:
    """How many states of each step the search follows in a second, and how good their orders are; gives the rows."""
    rows = []
    for step in progress.each(steps, "steps"):
        found = searched(step, SEARCH_LIMIT, options.seconds, 1, reorders=True)
        per_second = found.states / found.cpu_seconds
        row = _search_row(step, {}, found) | {"states_per_second": per_second} | scheduling(step, options.walks)
        rows.append(row)
        shares = (f"{row[key] / row['walked']:.1%}" for key in ("as_good", "as_good_as_mixed"))
        print(line((step.name, step.device, step.graph.num_ops, f"{per_second:.0f}", *shares, f"{row['faster']:.1f}")))
    return rows


def scheduling(step: Step, walks: int) -> dict[str, Any]:
    """Of states at random: how many have an order as good as a full search finds, to a millionth, and its speed."""
    rows = [row for seed in range(walks) for row in _core.magis_walk(step.graph, CHANGES, CHANGES_PER_START, seed)]
    peaks, full, mixed, seconds, full_seconds = zip(*rows, strict=True)

    def as_good(others: Sequence[int]) -> int:
        return sum(peak <= other * (1 + 1e-6) for peak, other in zip(peaks, others, strict=True))

    return {
        "walked": len(rows),
        "as_good": as_good(full),
        "as_good_as_mixed": as_good(mixed),
        "faster": sum(full_seconds) / sum(seconds),
    }


def print_ablations(step: Step, options: argparse.Namespace) -> list[dict[str, Any]]:
    """What the search finds without each of its rules and heuristics; gives the rows."""
    rows = []
    for name, rules in ABLATIONS.items():
        found = searched(step, SEARCH_LIMIT, options.ablation_seconds, options.threads, **rules)
        rows.append(_search_row(step, {"search": name}, found))
        print(line((name, _share(found.found.memory), f"{found.states_per_second:.0f}")), flush=True)
    return rows


def _search_row(step: Step, more: dict[str, Any], searched: Searched) -> dict[str, Any]:
    return {
        "step": step.name,
        "device": step.device,
        "ops": step.graph.num_ops,
        **more,
        "memory": searched.found.memory,
        "time": searched.found.time,
        "states": searched.states,
        "states_per_second": searched.states_per_second,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="small steps, a second for each search")
    names = (*COMPARED, *SEARCHED)
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--device", action="append", choices=workloads.DEVICES, metavar="NAME", help="A100 or RTX 3090")
    parser.add_argument("--seconds", type=float, default=180.0, help="for each search of MAGIS")
    parser.add_argument("--ablation-seconds", type=float, default=60.0, help="for each of those on BERT")
    parser.add_argument("--walks", type=int, default=5, help="of 100 states at random on each step for its speed")
    parser.add_argument("--threads", type=int, default=2, help="of the search of MAGIS")
    parser.add_argument("--graphs", type=Path, metavar="DIR", help="graph files of `bench.fission.workloads`")


def run(options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Prints the tables; gives their rows."""
    if options.quick:
        options.seconds, options.ablation_seconds, options.walks = 1.0, 1.0, 1
    devices = options.device or workloads.DEVICES

    def chosen(names: Sequence[str]) -> Iterator[Step]:
        for name in names:
            for device in devices:
                if name in (options.only or names):
                    yield step_of(name, device, options)

    print(header(COLUMNS), flush=True)
    rows = [row for step in chosen(COMPARED) for row in compare(step, options)]
    print("\nours is above:", *(behind(rows) or ["none"]), sep="\n  ")
    print("\n" + header(("step", "device", "ops", "states a second", "as good", "as if mixed", "faster")), flush=True)
    speed = print_searches(chosen(SEARCHED), options)
    ablations: list[dict[str, Any]] = []
    if ABLATED[0] in (options.only or COMPARED) and ABLATED[1] in devices:
        print("\n" + header((f"{' on an '.join(ABLATED)}, {SEARCH_LIMIT}", "memory", "states a second")), flush=True)
        ablations = print_ablations(step_of(*ABLATED, options), options)
    return {"rows": rows, "speed": speed, "ablations": ablations}
