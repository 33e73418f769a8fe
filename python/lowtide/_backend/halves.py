"""The two graphs of a region as PyTorch would run them, and a place in them for the token of a planned run.

AOTAutograd wants a forward graph that gives its outputs and what it saves, and a backward graph that takes what was
saved. Those that PyTorch's default partition makes run where the region is not planned. Where it is, what they would
save stays in the arena: parameters and inputs are saved as ever, so that autograd notices who writes them, and in
front of all the token, whose end is the run's end. In place of the rest there are tensors without elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._functorch.partitioners import default_partition
from torch.utils import _pytree as pytree

TANGENT = "tangents"  # what their placeholders' names begin with


@dataclass(frozen=True, slots=True)
class Halves:
    """A forward graph, its backward graph, and where the token is in them."""

    forward: fx.GraphModule
    backward: fx.GraphModule
    first_names: frozenset[str]  # nodes that the forward graph computes
    saved: list[str]  # names of nodes, in their order, the token's left out
    token_argument: int  # of the backward graph
    tangent_arguments: int  # of the backward graph: the first


def split(joint: fx.GraphModule, inputs: Any, num_outputs: int, static_inputs: list[int] | None) -> Halves:
    """The halves of a joint graph."""
    forward, backward = default_partition(
        joint, inputs, num_fwd_outputs=num_outputs, static_lifetime_input_indices=static_inputs
    )
    names = frozenset(node.name for node in forward.graph.nodes if node.op not in ("placeholder", "output"))
    output = next(iter(forward.graph.find_nodes(op="output")))
    given = list(output.args[0])
    saved = [node.name for node in given[num_outputs:]]
    with forward.graph.inserting_before(output):
        token = forward.graph.call_function(torch.ops.aten.empty.memory_format, ([0],), {"dtype": torch.uint8})
    placeholders = backward.graph.find_nodes(op="placeholder")
    with _fake_mode(joint):
        nothing = torch.empty([0], dtype=torch.uint8)
    output.args = ((*given[:num_outputs], token, *given[num_outputs:]),)
    # What has no value in the graph's metadata is not donated to the backward pass: it can run again.
    for node in given[num_outputs:]:
        if node.op != "placeholder" and _is_tensor(node):
            del node.meta["val"]
    before = sum(not _is_tensor(node) for node in placeholders)  # numbers come first
    with backward.graph.inserting_before(placeholders[before] if before < len(placeholders) else None):
        taken = backward.graph.placeholder(token.name)
    taken.meta["val"] = nothing
    forward.recompile()
    backward.recompile()
    placeholders = backward.graph.find_nodes(op="placeholder")
    tangents = [index for index, node in enumerate(placeholders) if str(node.target).startswith(TANGENT)]
    return Halves(
        forward, backward, names, saved, placeholders.index(taken), tangents[0] if tangents else len(placeholders)
    )


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _fake_mode(joint: fx.GraphModule) -> Any:
    for node in joint.graph.nodes:
        for leaf in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(leaf, torch.Tensor) and hasattr(leaf, "fake_mode"):
                return leaf.fake_mode
    raise AssertionError("a joint graph has fake tensors")
