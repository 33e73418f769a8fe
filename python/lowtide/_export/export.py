"""`lowtide.export`: a plan as a file of another tool."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _core
from .._base.whole_files import write_whole
from .._given import graph_and_plan
from .._report.contents import PLANNED, Contents, contents_of
from .chrome_trace import chrome_trace
from .torch_snapshot import torch_snapshot

if TYPE_CHECKING:
    from .._compile.compile import CompiledStep

_PROTOCOL = 4  # the latest that PyTorch's viewer reads


def _as_trace(contents: Contents) -> bytes:
    made = chrome_trace(contents.title, contents.planned, contents.file, ["memory", *contents.tiers])
    return json.dumps(made, separators=(",", ":")).encode()


def _as_snapshot(contents: Contents) -> bytes:
    return pickle.dumps(torch_snapshot(contents.planned, contents.file), _PROTOCOL)


FORMATS: dict[str, Callable[[Contents], bytes]] = {".json": _as_trace, ".pickle": _as_snapshot}
"""By the end of the file's name."""


def export(
    step: _core.Graph | CompiledStep,
    plan: _core.Plan | None = None,
    *,
    path: str | os.PathLike[str],
    title: str = "",
) -> None:
    """Writes a graph and a `plan` of it, or a compiled step, for another tool; the end of `path` says for which.

    `.json` is a trace for chrome://tracing and ui.perfetto.dev: the operators over their time, the bytes alive by role,
    and what leaves memory. `.pickle` is a memory snapshot for PyTorch's viewer, pytorch.org/memory_viz: each block in
    its bytes of the arena. A graph without a plan is planned as `lowtide.plan` does without a budget.

        lowtide.export(step, path="trace.json")
        lowtide.export(graph, lowtide.plan(graph, order="program"), path="plan.pickle")
    """
    write = FORMATS.get(Path(path).suffix)
    if write is None:
        raise ValueError(f"path: expected a name that ends in {' or '.join(FORMATS)}, got {str(path)!r}")
    name = title or getattr(step, "__name__", PLANNED)
    write_whole(Path(path), write(contents_of(name, *graph_and_plan("export", step, plan, {}))))
