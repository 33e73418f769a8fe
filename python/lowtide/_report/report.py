"""`lowtide.report`: a step's memory as one page to look at."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _core
from .._base.whole_files import write_whole
from .._given import graph_and_plan
from .contents import Contents, contents_of
from .page import excerpt_of, page_of

if TYPE_CHECKING:
    import torch

    from .._compile.compile import CompiledStep


class Report:
    """A page about a step's memory. `save` writes it; a notebook shows its figures and its picture."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    @property
    def html(self) -> str:
        """The page: one file that loads nothing."""
        return page_of(self._contents)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page, wholly or not at all."""
        write_whole(Path(path), self.html)

    def figures(self) -> dict[str, int]:
        """What eager PyTorch needs, and the figures of the plan, in bytes and nanoseconds."""
        plan = self._contents.planned.plan
        return {
            "eager_bytes": self._contents.graph.eager_bytes,
            "total_bytes": self._contents.planned.total_bytes,
            "resident_bytes": plan.resident_bytes,
            "arena_bytes": plan.arena_bytes,
            "peak_bytes": plan.peak_bytes,
            "time_ns": plan.time_ns,
        }

    def __str__(self) -> str:
        figures = self.figures()
        shown = {name: _core.format_bytes(figures[f"{name}_bytes"]) for name in ("eager", "total", "resident", "arena")}
        return (
            f"eager      {shown['eager']}\n"
            f"planned    {shown['total']}: {shown['resident']} resident, {shown['arena']} in the arena"
        )

    def __repr__(self) -> str:
        return f"<Report: {self._contents.title}>"

    def _repr_html_(self) -> str:
        return excerpt_of(self._contents)


def report(
    step: _core.Graph | CompiledStep | Callable[..., Any],
    plan: _core.Plan | None = None,
    *,
    path: str | os.PathLike[str] | None = None,
    title: str = "",
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    example: tuple[Any, ...] | None = None,
    device: str | None = None,
) -> Report:
    """A page about the memory of a graph and a `plan` of it, or of a compiled step; written to `path`, if there is one.

    Bytes alive over the step by role, eager and planned; where each buffer lies; what runs again, leaves memory or runs
    in parts; memory against time; and who holds the peak. The page is one file of HTML that loads nothing. A graph
    without a plan is planned as `lowtide.plan` does without a budget. A step function is captured first, with the
    `model`, `optimizer`, `example` and `device` that `lowtide.capture` takes.

        lowtide.report(step, path="report.html")
        lowtide.report(graph, lowtide.plan(graph, memory_budget="60%"), path="report.html")
    """
    captured = {"model": model, "optimizer": optimizer, "example": example, "device": device}
    given = {name: value for name, value in captured.items() if value is not None}
    name = title or f"Memory of {getattr(step, '__name__', 'a training step')}"
    made = Report(contents_of(name, *graph_and_plan("report", step, plan, given)))
    if path is not None:
        made.save(path)
    return made
