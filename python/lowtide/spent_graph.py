"""Results that need a gradient although their graph is spent, as a loss that is returned after `backward()`."""

from __future__ import annotations

from typing import Any

import torch


class SpentGraph(torch.autograd.Function):
    """Stands where the graph was; going backward through it a second time is an error, as it is in eager code."""

    @staticmethod
    def forward(_ctx: Any, _anchor: torch.Tensor, result: list[torch.Tensor]) -> torch.Tensor:
        """The result itself, as what this function makes."""
        return result[0]

    @staticmethod
    def backward(_ctx: Any, *_gradients: Any) -> Any:
        """Refuses."""
        raise RuntimeError(
            "Trying to backward through the graph a second time: the planned step that gave this tensor has been "
            "backward through its graph already"
        )


def with_spent_graph(result: torch.Tensor) -> torch.Tensor:
    """The same memory as a tensor that is no leaf."""
    with torch.enable_grad():
        spent: torch.Tensor = SpentGraph.apply(torch.empty(0, requires_grad=True), [result])  # type: ignore[no-untyped-call]
    return spent
