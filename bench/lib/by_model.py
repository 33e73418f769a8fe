"""Benchmarks with a table for each model: of several models, each runs in a process of its own."""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable, Iterable
from typing import Any

from bench.lib.apart import ROOT, command_of


def add_arguments(parser: argparse.ArgumentParser, *, quick: str, inductor: str) -> None:
    """`quick` and `inductor` say what these flags do."""
    parser.add_argument("models", nargs="*", metavar="MODEL", help="how the names begin; all if none is given")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--inductor", action="store_true", help=inductor)


def each_model(
    benchmark: str, models: Iterable[str], options: argparse.Namespace, measure: Callable[[str, int], Any]
) -> dict[str, Any]:
    """Prints a table for each of the models that are asked for; gives their figures. `measure` takes rounds too."""
    begins = tuple(model.lower() for model in options.models)
    names = [name for name in models if not begins or name.lower().startswith(begins)]
    if len(names) == 1:
        return {names[0]: measure(names[0], 3 if options.quick else options.rounds)}
    found = {}
    for name in names:
        print(f"\n**{name}**\n", flush=True)
        found[name] = _measure_apart(benchmark, name, options)
    return found


def _measure_apart(benchmark: str, name: str, options: argparse.Namespace) -> Any:
    flags = [f"--{flag}" for flag in ("quick", "inductor") if getattr(options, flag)]
    command = command_of("bench", "run", benchmark, name, "--json", "--rounds", str(options.rounds), *flags)
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)["figures"][name]
