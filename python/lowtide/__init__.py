"""Lowtide: lowers the high-water mark of deep-learning memory.

`compile` plans and runs a PyTorch step from one arena, bit for bit; `measure` counts what any PyTorch code allocates.
Importing this package does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import oom_reserve
from ._core import Graph, Plan, verify
from .errors import (
    CaptureError,
    InfeasibleError,
    InvalidGraphError,
    InvalidPlanError,
    LimitError,
    LowtideError,
    MemoryGuardError,
)
from .explanation import Explanation, explain
from .fit_report import FitReport
from .hints import keep, recompute
from .oom_errors import is_out_of_memory
from .planning import plan
from .versions import __version__, check_torch, require_torch

if TYPE_CHECKING:
    from .adapting import Adapter, adapt
    from .capturing import capture
    from .compiling import CompiledStep, compile
    from .fitting import fit
    from .measuring import measure
    from .oom import OomReport, explain_oom
    from .replaying import Replay, ReplayStats, replay

check_torch()

__all__ = [
    "Adapter",
    "CaptureError",
    "CompiledStep",
    "Explanation",
    "FitReport",
    "Graph",
    "InfeasibleError",
    "InvalidGraphError",
    "InvalidPlanError",
    "LimitError",
    "LowtideError",
    "MemoryGuardError",
    "OomReport",
    "Plan",
    "Replay",
    "ReplayStats",
    "__version__",
    "adapt",
    "capture",
    "compile",
    "explain",
    "explain_oom",
    "fit",
    "is_out_of_memory",
    "keep",
    "measure",
    "plan",
    "recompute",
    "replay",
    "verify",
]

# Names that need torch, found when they are first asked for.
_NEEDS_TORCH = {
    "Adapter": ".adapting",
    "adapt": ".adapting",
    "CompiledStep": ".compiling",
    "OomReport": ".oom",
    "Replay": ".replaying",
    "ReplayStats": ".replaying",
    "capture": ".capturing",
    "compile": ".compiling",
    "fit": ".fitting",
    "explain_oom": ".oom",
    "measure": ".measuring",
    "replay": ".replaying",
}


def __getattr__(name: str) -> Any:
    if name in _NEEDS_TORCH:
        require_torch(name)
        with oom_reserve.released():  # explain_oom is asked for when memory has run out
            return getattr(import_module(_NEEDS_TORCH[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
