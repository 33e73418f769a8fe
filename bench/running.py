"""Runs a benchmark by name, with its own options, and keeps what it finds."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.catalog import Benchmark
from bench.lib import provenance
from bench.lib.result import FOLDER, Result, plain

OURS = ("json", "save", "save_as")


def run(benchmark: Benchmark, arguments: Sequence[str]) -> int:
    """Prints its tables, or with `--json` its result; saves that if asked to."""
    module = importlib.import_module(benchmark.module)
    parser = argparse.ArgumentParser(
        prog=f"python -m bench run {benchmark.name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the result; the tables go to the standard error")
    parser.add_argument("--save", action="store_true", help="keep the result in bench/results, from a clean tree only")
    parser.add_argument("--as", dest="save_as", default=benchmark.name, metavar="NAME", help="under another name")
    options = parser.parse_args(arguments)
    changed = provenance.uncommitted() if options.save else []
    if changed:
        parser.error(f"--save: commit first, so that the result can name a commit: {', '.join(changed)}")
    given = {
        name: plain(value)
        for name, value in vars(options).items()
        if name not in OURS and value != parser.get_default(name) and not isinstance(value, Path)
    }
    before = provenance.machine()
    begin = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
        figures: Any = plain(module.run(options))
    seconds = round(time.perf_counter() - begin, 1)
    result = Result(
        benchmark.name, given, True, provenance.measured_at(), before, provenance.versions(), seconds, figures
    )
    if options.json:
        print(result.text)
    if options.save:
        print(f"\nwritten: {result.save(options.save_as, FOLDER).name}", file=sys.stderr)
    return 0
