"""`lowtide.explain`: who holds the peak of a step, why, and what would lower it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from . import _core
from ._base.budgets import read_link

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
    graph, plan = _graph_of(step, plan, given)
    return Explanation(*_core.explain(graph, plan, top=top, swap_per_second=rate))


_CAPTURING = "model=model, optimizer=optimizer, example=(batch,)"


def _graph_of(step: Any, plan: Any, given: dict[str, Any]) -> tuple[_core.Graph, _core.Plan | None]:
    """The graph to explain and its plan, if there is one; TypeError or ValueError say what to pass instead."""
    compiled = _is_compiled(step)
    if callable(step) and not compiled and {"model", "example"} <= given.keys():
        if plan is not None:
            raise TypeError("a plan belongs to a graph: lowtide.capture one, then lowtide.explain(graph, plan)")
        from ._lower.capture import capture

        return capture(step, **given), None
    if isinstance(step, _core.Plan):
        raise TypeError("a plan does not hold its graph: lowtide.explain(graph, plan)")
    if not compiled and not isinstance(step, _core.Graph):
        raise TypeError(f"lowtide.explain: expected a graph or a compiled step, got {_described(step)}")
    if given:
        raise TypeError(f"{', '.join(given)}: only for a step function, which is captured, got {_kind(step)}")
    if not compiled:
        if plan is not None and not isinstance(plan, _core.Plan):
            raise TypeError(f"plan: expected a lowtide.Plan, got {_kind(plan)}")
        return step, plan
    if plan is not None:
        raise TypeError("a compiled step has a plan of its own: lowtide.explain(step)")
    if step.graph is None:
        done = step.stats()
        why = "was closed" if done["calls"] else "runs eager, see step.explain_guards()"
        if not done["calls"] and not done["eager_calls"]:
            why = "has not run yet: call it once first"
        raise ValueError(f"this step {why}; its function is captured by lowtide.explain(function, {_CAPTURING})")
    return step.graph, step.plan


def _is_compiled(step: Any) -> bool:
    """Whether it is a `CompiledStep`; torch is not imported to find out."""
    compiling = sys.modules.get("lowtide._compile.compile")
    return compiling is not None and isinstance(step, compiling.CompiledStep)


def _described(step: Any) -> str:
    """What it is, and what to pass instead, where that is known."""
    if isinstance(step, str | PathLike):
        return f"{step!r}; for a file: lowtide.explain(lowtide.Graph.load({str(step)!r}))"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(step, torch.nn.Module):
        what, function = f"the module {_kind(step)}", "train_step"
    elif callable(step):
        function = getattr(step, "__name__", "<")
        what, function = f"the function {function}", function if function.isidentifier() else "train_step"
    else:
        return _kind(step)
    return f"{what}; a step function is captured: lowtide.explain({function}, {_CAPTURING})"


def _kind(one: Any) -> str:
    return type(one).__qualname__
