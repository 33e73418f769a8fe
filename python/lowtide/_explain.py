"""`lowtide.explain`: who holds the peak of a step, why, and what would lower it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import _core
from ._base.budgets import read_link
from ._given import graph_and_plan

if TYPE_CHECKING:
    import torch

    from ._compile.compile import CompiledStep


class Explanation:
    """Who holds a peak. `print` shows it to people; `to_dict` and `to_json` have the same for programs."""

    def __init__(self, text: str, fields: str) -> None:
        self._text = text
        self._json = fields

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<Explanation: {self._text.partition(chr(10))[0]}>"

    def to_json(self) -> str:
        """One JSON object, with the fields that docs/cli.md lists for `explain`."""
        return self._json

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict."""
        fields: dict[str, Any] = json.loads(self._json)
        return fields


def explain(
    step: _core.Graph | CompiledStep | Callable[..., Any],
    plan: _core.Plan | None = None,
    *,
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    example: tuple[Any, ...] | None = None,
    device: str | None = None,
    top: int = 10,
    link: str = "16GB/s",
) -> Explanation:
    """Who holds the peak of a graph as eager PyTorch runs it, of a `plan` of it, or of a compiled step.

    The peak step, the `top` largest groups of tensors that are alive there, with the lines that made them and those
    that need them last, and what it would gain to recompute them, or to swap them over a `link` with that rate. A step
    function is captured first, with the `model`, `optimizer`, `example` and `device` that `lowtide.capture` takes.

        print(lowtide.explain(train_step, model=model, optimizer=optimizer, example=(batch,)))
        graph = lowtide.capture(train_step, model=model, optimizer=optimizer, example=(batch,))
        print(lowtide.explain(graph, lowtide.plan(graph, memory_budget="6GiB")))
    """
    if isinstance(top, bool) or not isinstance(top, int) or top < 0:
        raise ValueError(f"top: expected a whole number from 0 on, got {top!r}")
    rate = read_link(link)
    captured = {"model": model, "optimizer": optimizer, "example": example, "device": device}
    given = {name: value for name, value in captured.items() if value is not None}
    graph, plan = graph_and_plan("explain", step, plan, given)
    return Explanation(*_core.explain(graph, plan, top=top, swap_per_second=rate))
