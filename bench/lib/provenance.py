"""Where a figure comes from: the commit of the tree, the machine, and the versions of what matters."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.lib.apart import ROOT

PACKAGES = ("lowtide", "torch", "transformers")
WRITTEN = (":!bench/results", ":!docs", ":!README.md", ":!bench/README.md")  # by the command itself


def measured_at() -> dict[str, str]:
    """The commit, and the day."""
    commit = _git("rev-parse", "--short=9", "HEAD")
    return {"commit": commit or "unknown", "date": datetime.date.today().isoformat()}


def uncommitted() -> list[str]:
    """Files that are not as the commit has them, but for what the command writes."""
    found = _git("diff", "--name-only", "HEAD", "--", ".", *WRITTEN)
    return [str(ROOT)] if found is None else found.splitlines()


def machine() -> dict[str, Any]:
    """What it has, and how busy it is."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "load_before": round(os.getloadavg()[0], 1),
    }


def versions() -> dict[str, str]:
    """Of Python, and of packages that are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _git(*arguments: str) -> str | None:
    """What git says; None if this is no checkout of its own."""
    command = ["git", "-c", f"safe.directory={ROOT}", *arguments]
    try:
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
