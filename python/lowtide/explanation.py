"""`lowtide.explain`: who holds the peak of a step, why, and what would lower it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    from .compiling import CompiledStep


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
    step: _core.Graph | CompiledStep,
    plan: _core.Plan | None = None,
    *,
    top: int = 10,
    swap_rate: int | str = "16GB",
) -> Explanation:
    """Who holds the peak of a graph as eager PyTorch runs it, of a `plan` of it, or of a compiled step.

    The peak step, the `top` largest groups of tensors that are alive there, with the lines that made them and those
    that need them last, and what it would gain to recompute them, or to swap them at `swap_rate` bytes a second.

        graph = lowtide.capture(train_step, model=model, optimizer=optimizer, example=(batch,))
        print(lowtide.explain(graph))
    """
    if isinstance(step, _core.Plan):
        raise TypeError("a plan does not hold its graph: lowtide.explain(graph, plan)")
    if not isinstance(step, _core.Graph):
        if plan is not None:
            raise TypeError("a compiled step has a plan of its own: lowtide.explain(step)")
        if step.graph is None:
            raise ValueError("this step has not run planned yet: call it once, or lowtide.capture its graph")
        plan = step.plan
        step = step.graph
    rate = _core.parse_bytes(swap_rate) if isinstance(swap_rate, str) else swap_rate
    return Explanation(*_core.explain(step, plan, top=top, swap_per_second=rate))
