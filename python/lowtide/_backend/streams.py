"""Streams that a graph of PyTorch's compiler names: its calls are planned for one stream, the current one."""

from __future__ import annotations

from torch import fx

from ..errors import CaptureError


def refuse_streams(graph: fx.GraphModule) -> None:
    """Raises `CaptureError` for a graph that works on other streams than the one it is called on, or waits for any."""
    for node in graph.graph.nodes:
        names_one = getattr(node.target, "namespace", "") == "streams"
        if names_one or "stream" in (node.meta.get("custom") or {}):
            raise CaptureError("it changes the stream, or waits for one")
