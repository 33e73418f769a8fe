"""What a notebook shows of a graph, a plan or a compiled step: figures and a picture, without scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _core
from .._core import format_bytes
from .contents import contents_of
from .document import paragraphs, table
from .page import excerpt_of

if TYPE_CHECKING:
    from .._compile.compile import CompiledStep

_QUICKLY_PLANNED = 5000  # ops; of larger graphs the figures alone are shown


def show_in_notebooks() -> None:
    """Teaches the classes of the core how notebooks show them."""
    _core.Graph._repr_html_ = _graph  # type: ignore[attr-defined]
    _core.Plan._repr_html_ = _plan  # type: ignore[attr-defined]


def of_step(step: CompiledStep) -> str | None:
    """None where nothing is planned yet."""
    if step.graph is None or step.plan is None:
        return None
    return excerpt_of(contents_of(f"Memory of {getattr(step, '__name__', 'a training step')}", step.graph, step.plan))


def _graph(graph: _core.Graph) -> str:
    if graph.num_ops <= _QUICKLY_PLANNED:
        return excerpt_of(contents_of("Memory of a graph", graph, None))
    rows = [
        ["operators", str(graph.num_ops)],
        ["buffers", str(graph.num_buffers)],
        ["resident", format_bytes(graph.resident_bytes)],
        ["eager PyTorch needs", format_bytes(graph.eager_bytes)],
    ]
    return table("Graph", ["", ""], rows, (1,))


def _plan(plan: _core.Plan) -> str:
    rows = [
        ["resident and arena", format_bytes(plan.resident_bytes + plan.arena_bytes)],
        ["resident", format_bytes(plan.resident_bytes)],
        ["arena", format_bytes(plan.arena_bytes)],
        ["peak", format_bytes(plan.peak_bytes)],
        ["bound of the arena", format_bytes(plan.bound_bytes)],
        ["steps", str(len(plan.order))],
    ]
    return table("Plan", ["", ""], rows, (1,)) + paragraphs(
        ["A plan does not hold its graph: lowtide.report(graph, plan)"]
    )
