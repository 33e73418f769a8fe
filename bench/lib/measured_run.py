"""Runs a program and says what it took. A small process of its own, because of how the peak of memory is counted.

    measure(["lowtide", "pack", "x.csv"], cpu_seconds=10)

Linux counts into a program's peak what its parent held when it was started. So the parent is this file run by itself,
which holds next to nothing.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """How a program ended, and what it took."""

    code: int  # negative: the signal that ended it
    stdout: str
    stderr: str
    seconds: float
    cpu_seconds: float
    peak_bytes: int


def measure(
    command: Sequence[str],
    cpu_seconds: float | None = None,
    memory_bytes: int | None = None,
    cwd: Path | None = None,
) -> Run:
    """Runs the command; it is ended when it has used so much of the processor, and is given no more memory than that.

    Where a program's time is limited, the limit is rounded to whole seconds, as the system has it.
    """
    limits = {"RLIMIT_CPU": cpu_seconds and max(1, round(cpu_seconds)), "RLIMIT_AS": memory_bytes}
    wrapper = [sys.executable, "-I", "-S", __file__, json.dumps(limits), *command]
    done = subprocess.run(wrapper, capture_output=True, text=True, check=False, cwd=cwd)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} was not run: {done.stderr}")
    return Run(**json.loads(done.stdout))


def _run(limits: dict[str, int | None], command: Sequence[str]) -> Run:
    for name, limit in limits.items():
        if limit is not None:
            resource.setrlimit(getattr(resource, name), (limit, limit))
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        stdout, stderr = process.communicate()
    seconds = time.perf_counter() - begin
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Run(process.returncode, stdout, stderr, seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


if __name__ == "__main__":
    print(json.dumps(vars(_run(json.loads(sys.argv[1]), sys.argv[2:]))))
