"""What is told of a plan: its figures, and what chose its order, its layout and what runs again."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from .. import _core
from ..errors import InfeasibleError
from .decisions import decided, is_wanted


def stated(plan: _core.Plan) -> dict[str, Any]:
    """What the plan's file says; `lowtide.Plan` has no method for all of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        plan.save(path)
        content: dict[str, Any] = json.loads(path.read_bytes())
    return content


def tell_of_plan(graph: _core.Graph, plan: _core.Plan, seconds: float, options: dict[str, Any]) -> None:
    """Each choice by its topic."""
    topics = ("plan", "order", "layout", "recompute", "swap")
    if not any(map(is_wanted, topics)):
        return
    made = stated(plan).get("provenance", {})
    again = len(plan.order) - graph.num_ops
    decided(
        "plan", "planned", graph=graph.fingerprint, operators=graph.num_ops, buffers=graph.num_buffers,
        **_asked(options), resident_bytes=plan.resident_bytes, peak_bytes=plan.peak_bytes, arena_bytes=plan.arena_bytes,
        bound_bytes=plan.bound_bytes, time_ns=plan.time_ns, seconds=round(seconds, 4),
    )  # fmt: skip
    decided("order", "chosen", name=made.get("order", ""), steps=len(plan.order), peak_bytes=plan.peak_bytes)
    decided("layout", "chosen", name=made.get("layout", ""), arena_bytes=plan.arena_bytes)
    decided("recompute", "chosen", name=made.get("recompute") or "none", runs_again=max(0, again))
    if options.get("swap") is not None:
        decided("swap", "chosen", transfers=len(plan.transfers()))


def tell_of_refusal(graph: _core.Graph, error: InfeasibleError, options: dict[str, Any]) -> None:
    """A budget that no plan was found for."""
    decided(
        "plan", "infeasible", graph=graph.fingerprint, operators=graph.num_ops, **_asked(options), code=error.code,
        bound_bytes=error.bound_bytes, step=error.step,
    )  # fmt: skip


def _asked(options: dict[str, Any]) -> dict[str, Any]:
    names = ("memory_budget", "latency_budget_ns", "order", "layout", "recompute", "parts", "alignment")
    return {name: options[name] for name in names if options.get(name) is not None}
