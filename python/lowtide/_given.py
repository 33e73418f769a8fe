"""What a call about a step was given: a graph, a plan of it, a compiled step, or a step function to be captured."""

from __future__ import annotations

import sys
from os import PathLike
from typing import Any

from . import _core

_CAPTURING = "model=model, optimizer=optimizer, example=(batch,)"


def graph_and_plan(caller: str, step: Any, plan: Any, given: dict[str, Any]) -> tuple[_core.Graph, _core.Plan | None]:
    """The graph and its plan, if there is one. TypeError or ValueError say what to pass to the caller instead."""
    compiled = _is_compiled(step)
    if callable(step) and not compiled and {"model", "example"} <= given.keys():
        if plan is not None:
            raise TypeError(f"a plan belongs to a graph: lowtide.capture one, then lowtide.{caller}(graph, plan)")
        from ._lower.capture import capture

        return capture(step, **given), None
    if isinstance(step, _core.Plan):
        raise TypeError(f"a plan does not hold its graph: lowtide.{caller}(graph, plan)")
    if not compiled and not isinstance(step, _core.Graph):
        raise TypeError(f"lowtide.{caller}: expected a graph or a compiled step, got {_described(caller, step)}")
    if given:
        raise TypeError(f"{', '.join(given)}: only for a step function, which is captured, got {_kind(step)}")
    if not compiled:
        if plan is not None and not isinstance(plan, _core.Plan):
            raise TypeError(f"plan: expected a lowtide.Plan, got {_kind(plan)}")
        return step, plan
    if plan is not None:
        raise TypeError(f"a compiled step has a plan of its own: lowtide.{caller}(step)")
    if step.graph is None:
        done = step.stats()
        why = "was closed" if done["calls"] else "runs eager, see step.explain_guards()"
        if not done["calls"] and not done["eager_calls"]:
            why = "has not run yet: call it once first"
        raise ValueError(f"this step {why}; its function is captured by lowtide.{caller}(function, {_CAPTURING})")
    return step.graph, step.plan


def _is_compiled(step: Any) -> bool:
    """Whether it is a `CompiledStep`; torch is not imported to find out."""
    compiling = sys.modules.get("lowtide._compile.compile")
    return compiling is not None and isinstance(step, compiling.CompiledStep)


def _described(caller: str, step: Any) -> str:
    """What it is, and what to pass instead, where that is known."""
    if isinstance(step, str | PathLike):
        return f"{step!r}; for a file: lowtide.{caller}(lowtide.Graph.load({str(step)!r}))"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(step, torch.nn.Module):
        what, function = f"the module {_kind(step)}", "train_step"
    elif callable(step):
        function = getattr(step, "__name__", "<")
        what, function = f"the function {function}", function if function.isidentifier() else "train_step"
    else:
        return _kind(step)
    return f"{what}; a step function is captured: lowtide.{caller}({function}, {_CAPTURING})"


def _kind(one: Any) -> str:
    return type(one).__qualname__
