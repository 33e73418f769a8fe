"""Ways to part a joint graph of PyTorch's into a forward and a backward pass: what is saved, what is computed again.

All are minimum cuts of PyTorch's own partitioner, at a ladder of its `activation_memory_budget`. Which of them is small
after fusion, the setting does not say: it is a share of the saved bytes before fusion, and blind to what the backward
pass has at once. So partitions are told apart by what they save, and sorted by what they compute again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._functorch import config as functorch_config
from torch.utils.checkpoint import CheckpointPolicy

from .copies import copy_of
from .inductor_internals import (
    CustomPartitionerFn,
    count_flops_fx,
    get_node_storage,
    min_cut_rematerialization_partition,
    node_bytes,
)

LADDER = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 1e-6)  # at 0 draws would run again
_FLOPS_PER_BYTE = 8  # that a machine computes while it moves a byte
_SEEDS = ("inductor_seed", "inductor_seeds")
_RULE = "1"  # of how partitions are made: PyTorch keeps what it compiles by it


@dataclass(frozen=True)
class Partition(CustomPartitionerFn):
    """A setting of PyTorch's partitioner, which saves what is drawn at random."""

    setting: float

    def __call__(
        self, gm: fx.GraphModule, joint_inputs: Sequence[object], **how: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """The forward and the backward pass. PyTorch's own would draw again in the backward pass, and differ."""
        for node in gm.graph.nodes:
            if _draws(node):
                node.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)
        with functorch_config.patch(activation_memory_budget=self.setting):
            forward, backward = min_cut_rematerialization_partition(gm, joint_inputs, **how)
        return forward, backward

    def uuid(self) -> str:
        """A name of what is made of a graph."""
        return f"lowtide {_RULE}: {self}"

    def __str__(self) -> str:
        return f"activation_memory_budget {self.setting:g}"


class Survey(CustomPartitionerFn):
    """Parts a graph as PyTorch would, and finds all partitions that differ on the way."""

    def __init__(self) -> None:
        self.found: list[Partition] = []  # those that compute least again come first

    def __call__(
        self, gm: fx.GraphModule, joint_inputs: Sequence[object], **how: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """PyTorch's default partition."""
        halves = min_cut_rematerialization_partition(copy_of(gm), joint_inputs, **how)
        seen = {_saved(halves[0], how["num_fwd_outputs"])}
        costs: dict[Partition, int] = {}
        for setting in LADDER:
            partition = Partition(setting)
            forward, backward = partition(copy_of(gm), joint_inputs, **how)
            saved = _saved(forward, how["num_fwd_outputs"])
            if saved not in seen and not _draws_again(forward, backward):
                seen.add(saved)
                costs[partition] = _again(forward, backward)
        self.found = sorted(costs, key=lambda partition: (costs[partition], -partition.setting))
        return halves

    def uuid(self) -> None:
        """Nothing that PyTorch makes of this is kept."""


def _saved(forward: fx.GraphModule, outputs: int) -> frozenset[str]:
    (given,) = next(iter(forward.graph.find_nodes(op="output"))).args
    return frozenset(node.name for node in given[outputs:])


def _calls(half: fx.GraphModule) -> dict[str, fx.Node]:
    return {node.name: node for node in half.graph.nodes if node.op == "call_function"}


def _again(forward: fx.GraphModule, backward: fx.GraphModule) -> int:
    """What is in both passes, in bytes that are moved meanwhile."""
    first = _calls(forward)
    again = [node for name, node in _calls(backward).items() if name in first]
    return sum(_made_by(node) + (count_flops_fx(node) or 0) // _FLOPS_PER_BYTE for node in again)


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


def _draws_again(forward: fx.GraphModule, backward: fx.GraphModule) -> bool:
    first = _calls(forward)
    return any(_draws(node) and name in first for name, node in _calls(backward).items())
