"""Results that need a gradient although their graph is spent, as a loss that is returned after `backward()`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


class SpentGraph(torch.autograd.Function):
    """Stands where the graph was, above its parameters; going backward through it again is an error, as in eager."""

    @staticmethod
    def forward(_ctx: Any, result: list[torch.Tensor], *_parameters: torch.Tensor) -> torch.Tensor:
        """The result itself, as what this function makes."""
        return result[0]

    @staticmethod
    def backward(_ctx: Any, *_gradients: Any) -> Any:
        """Refuses in PyTorch's own words."""
        with torch.enable_grad():
            spent = torch.ones((), requires_grad=True).square()
        for _ in range(2):
            torch.autograd.backward(spent)
        raise AssertionError("a graph was gone through twice")


def with_spent_graph(result: torch.Tensor, parameters: Iterable[torch.Tensor]) -> torch.Tensor:
    """The same memory as a tensor that is no leaf."""
    anchors = [parameter for parameter in parameters if parameter.requires_grad]
    with torch.enable_grad():
        spent: torch.Tensor = SpentGraph.apply(  # type: ignore[no-untyped-call]
            [result], *(anchors or [torch.empty(0, requires_grad=True)])
        )
    return spent
