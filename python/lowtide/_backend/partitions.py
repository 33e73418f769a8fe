"""Ways to part a joint graph of PyTorch's into a forward and a backward pass: what is saved, what is computed again.

All are minimum cuts of PyTorch's own partitioner: at a ladder of its `activation_memory_budget`, and with the first
segments of the forward pass computed again between waypoints. Which of them is small after fusion, the setting does not
say: it is a share of the saved bytes before fusion, and blind to what the backward pass has at once. So partitions are
told apart by what they save, and sorted by what they compute again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._functorch import config as functorch_config
from torch.utils.checkpoint import CheckpointPolicy

from .._base.decisions import detail
from .copies import copy_of
from .inductor_internals import (
    CustomPartitionerFn,
    count_flops_fx,
    get_node_storage,
    min_cut_rematerialization_partition,
    node_bytes,
    optimization_hint,
)
from .waypoints import Route, first_recomputed

_LEAST = 1e-6  # saves what is marked and what that needs; at 0 PyTorch saves inputs alone, and draws run again
_LADDER = (0.9, 0.75, 0.5, 0.25, 0.1, _LEAST)
_SEGMENTS = 6
_FLOPS_PER_BYTE = 8  # that a machine computes while it moves a byte
_SEEDS = ("inductor_seed", "inductor_seeds")
_RULE = "lowtide 1"  # how partitions are made: PyTorch keeps what it compiles by it


@dataclass(frozen=True)
class Partition(CustomPartitionerFn):
    """A setting of PyTorch's partitioner, and what is saved in any case: that, and what is drawn at random."""

    setting: float
    saved: tuple[str, ...] = ()  # names of calls
    name: str = ""

    def __call__(
        self, gm: fx.GraphModule, joint_inputs: Sequence[object], **how: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """The forward and the backward pass. PyTorch's own would draw again in the backward pass, and differ."""
        saved = set(self.saved)
        for node in gm.graph.nodes:
            if _draws(node) or node.name in saved:
                node.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)
        with functorch_config.patch(activation_memory_budget=self.setting):
            forward, backward = min_cut_rematerialization_partition(gm, joint_inputs, **how)
        return forward, backward

    def uuid(self) -> tuple[str, float, tuple[str, ...]]:
        """A name of what is made of a graph."""
        return _RULE, self.setting, self.saved

    def __str__(self) -> str:
        return self.name or f"activation_memory_budget {self.setting:g}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A partition, with what is known of it before anything is fused."""

    partition: Partition
    saved: frozenset[str]
    held: int  # bytes that are there between the passes at least
    again: int  # bytes that are moved, or as good as that, to compute again
    flops_again: int


class Survey(CustomPartitionerFn):
    """Parts a graph as PyTorch would, and finds all partitions that differ on the way."""

    def __init__(self) -> None:
        self.found: list[Candidate] = []  # those that compute least again come first

    def __call__(
        self, gm: fx.GraphModule, joint_inputs: Sequence[object], **how: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """PyTorch's default partition."""
        halves = min_cut_rematerialization_partition(copy_of(gm), joint_inputs, **how)
        own = _names(halves[0], how["num_fwd_outputs"])
        seen = {own}

        def tried(partition: Partition) -> Candidate | None:
            try:
                candidate = _candidate(partition, partition(copy_of(gm), joint_inputs, **how), how["num_fwd_outputs"])
            except Exception as error:  # what its minimum cut cannot do
                detail("recompute", "no partition", name=str(partition), reason=f"{type(error).__name__}: {error}")
                return None
            if candidate is None or candidate.saved in seen:
                return None
            seen.add(candidate.saved)
            self.found.append(candidate)
            return candidate

        ladder = [candidate for setting in _LADDER if (candidate := tried(Partition(setting))) is not None]
        without_flops = [candidate.saved for candidate in ladder if not candidate.flops_again]
        for partition in _from_waypoints(Route(halves[0]), [own, *without_flops[-1:]]):
            tried(partition)
        self.found.sort(key=lambda candidate: (candidate.again, candidate.held))
        return halves

    def uuid(self) -> None:
        """Nothing that PyTorch makes of this is kept."""


def _from_waypoints(route: Route, bases: Sequence[frozenset[str]]) -> Iterator[Partition]:
    """All before one of the waypoints is computed again; from there on what the base saves is saved."""
    for number, base in enumerate(bases):
        waypoints = route.waypoints(base, _SEGMENTS)
        for count in range(1, len(waypoints) + 1):
            saved = first_recomputed(route, waypoints[:count], base)
            yield Partition(_LEAST, saved, f"{count} of {_SEGMENTS} segments{' of fewer saved' * bool(number)}")


def _candidate(partition: Partition, halves: tuple[fx.GraphModule, fx.GraphModule], outputs: int) -> Candidate | None:
    """None if it would draw again, and have other numbers in the backward pass, or save what is no tensor."""
    first, second = (_calls(half) for half in halves)
    saved = [node for node in _outputs(halves[0])[outputs:] if isinstance(node, fx.Node)]
    if any(isinstance(node.meta.get("val"), tuple | list) for node in saved):
        return None
    again = [node for name, node in second.items() if name in first]
    if any(_draws(node) for node in again):
        return None
    flops = sum(optimization_hint(count_flops_fx(node) or 0, fallback=0) for node in again)
    held = Route(halves[0]).held(_names(halves[0], 0))
    moved = sum(_made_by(node) for node in again)
    return Candidate(partition, _names(halves[0], outputs), held, moved + flops // _FLOPS_PER_BYTE, flops)


def _names(forward: fx.GraphModule, begin: int) -> frozenset[str]:
    """Of the outputs from one on: those of the caller come first, then what is saved."""
    return frozenset(node.name for node in _outputs(forward)[begin:] if isinstance(node, fx.Node))


def _outputs(forward: fx.GraphModule) -> Sequence[Any]:
    """Nodes, and what is no result of any."""
    (given,) = next(iter(forward.graph.find_nodes(op="output"))).args
    outputs: Sequence[Any] = given
    return outputs


def _calls(half: fx.GraphModule) -> dict[str, fx.Node]:
    return {node.name: node for node in half.graph.nodes if node.op == "call_function"}


def _made_by(node: fx.Node) -> int:
    """Bytes of a call's results, which views do not have."""
    own = get_node_storage(node)
    is_view = own is None or any(get_node_storage(given) == own for given in node.all_input_nodes)
    return 0 if is_view else int(node_bytes(node))


def _draws(node: fx.Node) -> bool:
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return torch.Tag.nondeterministic_seeded in target.tags or target._schema.name.partition("::")[2] in _SEEDS
