"""The program `lowtide-selftest`, which `lowtide selftest` runs."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..versions import __version__, require_torch

DONE, FAILED, USAGE = 0, 1, 2

_EPILOG = """\
Trains three small models, eager and planned, and compares all bits. Says what memory, budgets and times are beside what
was planned. The page that it prints can be pasted into a report, and so can the JSON.

Exit codes:
  0    every check holds
  1    one does not
  2    usage, or there is no such device

Examples:
  lowtide selftest
  lowtide selftest --device cuda --json selftest.json
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the checks; gives the exit code."""
    parser = argparse.ArgumentParser(
        "lowtide selftest",
        description="Check Lowtide on a device: bits, bytes, budgets and times.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", default="cpu", help="cpu (the default), cuda or cuda:1")
    parser.add_argument("--size", type=int, default=64, help="of the models: 64 takes a few minutes of a CPU")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args(arguments)
    if options.size < 16 or options.size % 16:
        parser.error(f"--size: expected a multiple of 16, got {options.size}")
    require_torch("selftest")
    import torch

    from .._base.devices import why_not_planned
    from .checks import all_checks

    device = _device(options.device)
    if device is None:
        parser.error(f"--device: PyTorch has no {options.device} here")
    if refused := why_not_planned(device):
        parser.error(f"--device: steps on {device} cannot be planned ({refused})")
    os.environ.setdefault("LOWTIDE_QUIET", "1")
    about = {
        "lowtide": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "CPU",
        "cuda": torch.version.cuda,
    }
    print(f"# Lowtide {__version__} on {about['device']}\n")
    print(f"PyTorch {about['torch']}, Python {about['python']}, CUDA {about['cuda']}\n")
    print("| check | of | holds | found |\n|---|---|---|---|", flush=True)
    findings = []
    for finding in all_checks(device, options.size):
        holds = "yes" if finding.holds else "**NO**"
        print(f"| {finding.check} | {finding.about} | {holds} | {finding.said} |", flush=True)
        findings.append(finding)
    failed = [finding for finding in findings if not finding.holds]
    print(f"\n{len(findings) - len(failed)} of {len(findings)} checks hold.")
    if options.json is not None:
        options.json.write_text(json.dumps({**about, "checks": [asdict(one) for one in findings]}, indent=1) + "\n")
    return FAILED if failed else DONE


def _device(text: str) -> Any:
    """None if there is none."""
    import torch

    try:
        device = torch.device(text)
        if device.type == "cuda":
            device = torch.device("cuda", device.index or 0)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError):
        return None
    return device


if __name__ == "__main__":
    raise SystemExit(main())
