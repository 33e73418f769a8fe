"""Modules of the benchmarks that run in processes of their own."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]  # where such a process starts


def command_of(module: str, *arguments: str) -> list[str]:
    """Runs a module of `bench`, from ROOT."""
    return [sys.executable, "-m", module, *arguments]
