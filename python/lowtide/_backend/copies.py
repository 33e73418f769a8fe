"""Graphs that passes over the originals do not change."""

from __future__ import annotations

from torch import fx


def copy_of(module: fx.GraphModule) -> fx.GraphModule:
    """The same graph; tensors of the module are shared."""
    copied = fx.Graph()
    output = copied.graph_copy(module.graph, {})
    copied.output(output)
    made = fx.GraphModule(module, copied)
    made.meta = dict(module.meta)
    return made
