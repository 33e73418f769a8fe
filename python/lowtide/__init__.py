"""Lowtide: lowers the high-water mark of deep-learning memory.

`compile` plans and runs a PyTorch step from one arena, bit for bit; `measure` counts what any PyTorch code allocates.
Importing this package does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._base.hints import keep, recompute
from ._base.memory_errors import is_out_of_memory
from ._core import Graph, Plan, verify
from ._diff.difference import Diff, diff
from ._entry import planned_or_eager
from ._explain import Explanation, explain
from ._export.export import export
from ._fit.report import FitReport
from ._oom import reserve as oom_reserve
from ._plan import plan
from ._replay.stats import ReplayStats
from ._report.notebook import show_in_notebooks
from ._report.report import Report, report
from ._snapshot.snapshot import Snapshot, snapshot
from .errors import (
    CaptureError,
    InfeasibleError,
    InvalidGraphError,
    InvalidPlanError,
    InvalidSnapshotError,
    LimitError,
    LowtideError,
    MemoryGuardError,
)
from .versions import __version__, import_torch, show_extensions, why_unusable

if TYPE_CHECKING:
    from ._adapt.adapter import Adapter, adapt
    from ._compile.compile import CompiledStep, compile
    from ._compile.swap import put_away
    from ._fit.fit import fit
    from ._lower.capture import capture
    from ._measure import measure
    from ._oom.report import OomReport, explain_oom
    from ._replay.replay import Replay, replay

show_extensions()
show_in_notebooks()

__all__ = [
    "Adapter",
    "CaptureError",
    "CompiledStep",
    "Diff",
    "Explanation",
    "FitReport",
    "Graph",
    "InfeasibleError",
    "InvalidGraphError",
    "InvalidPlanError",
    "InvalidSnapshotError",
    "LimitError",
    "LowtideError",
    "MemoryGuardError",
    "OomReport",
    "Plan",
    "Replay",
    "ReplayStats",
    "Report",
    "Snapshot",
    "__version__",
    "adapt",
    "capture",
    "compile",
    "diff",
    "explain",
    "explain_oom",
    "export",
    "fit",
    "is_out_of_memory",
    "keep",
    "measure",
    "plan",
    "put_away",
    "recompute",
    "replay",
    "report",
    "snapshot",
    "verify",
]

# Names that need torch, found when they are first asked for.
_NEEDS_TORCH = {
    "Adapter": "._adapt.adapter",
    "adapt": "._adapt.adapter",
    "CompiledStep": "._compile.compile",
    "OomReport": "._oom.report",
    "Replay": "._replay.replay",
    "capture": "._lower.capture",
    "compile": "._compile.compile",
    "fit": "._fit.fit",
    "explain_oom": "._oom.report",
    "measure": "._measure",
    "put_away": "._compile.swap",
    "replay": "._replay.replay",
}

# Those of them that there is something else for where nothing can be planned: it runs eager and says why.
_EAGER = {
    "Adapter": "._eager.adapter:EagerAdapter",
    "adapt": "._eager.adapter:adapt",
    "CompiledStep": "._eager.step:EagerStep",
    "compile": "._eager.step:compile",
    "Replay": "._eager.replay:EagerReplay",
    "replay": "._eager.replay:replay",
}


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_torch(name)
    with oom_reserve.released():  # explain_oom is asked for when memory has run out
        if name in _EAGER:
            return planned_or_eager(name, _NEEDS_TORCH[name], _EAGER[name])
        reason = why_unusable()
        if reason:
            raise ImportError(f"lowtide.{name}: {reason}")
        return getattr(import_module(_NEEDS_TORCH[name], __name__), name)
