"""Names that people import stay where they are."""

import importlib
import subprocess
import sys

import pytest

import lowtide

NAMES = [
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


def test_names_of_the_package():
    assert lowtide.__all__ == NAMES
    assert all(getattr(lowtide, name) is not None for name in NAMES)


@pytest.mark.parametrize("library", ["trainer", "lightning"])
def test_callbacks_have_two_names(library: str):
    old = importlib.import_module(f"lowtide.adapt_{library}")
    assert old.AdaptCallback is importlib.import_module(f"lowtide.integrations.{library}").AdaptCallback


def test_functions_are_not_hidden_by_modules_of_their_names():
    used = "import lowtide\nfor name in lowtide.__all__: getattr(lowtide, name)\n"
    asked = "print([name for name in lowtide.__all__ if type(getattr(lowtide, name)).__name__ == 'module'])"
    shown = subprocess.run([sys.executable, "-c", used + asked], check=True, capture_output=True, text=True).stdout
    assert shown.strip() == "[]"
