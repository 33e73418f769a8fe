"""The benchmarks as one command.

python -m bench list                     each benchmark, what it compares, and how long it takes
python -m bench run NAME [OPTION ...]    its tables; --json for the result, --save to keep it in bench/results
python -m bench render                   writes the pages that show results
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from bench import running
from bench.catalog import CATALOG, find
from bench.page.rendering import rendered
from bench.page.results import Results


def main(arguments: Sequence[str] | None = None) -> int:
    """Does what is asked for; gives the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("list", help="each benchmark, what it compares, and how long it takes")
    run = commands.add_parser("run", help="one of them")
    run.add_argument("name", metavar="NAME")
    run.add_argument("options", nargs=argparse.REMAINDER, help="its own: see `run NAME --help`")
    commands.add_parser("render", help="writes the pages that show results")
    asked = parser.parse_args(arguments)
    if asked.command == "list":
        for benchmark in CATALOG:
            print(f"{benchmark.name}\n    {benchmark.compares}\n    takes {benchmark.takes}")
        return 0
    if asked.command == "render":
        for path, text in rendered(Results()).items():
            path.write_text(text)
        return 0
    benchmark = find(asked.name)
    if benchmark is None:
        parser.error(f"no benchmark {asked.name!r}; `python -m bench list` shows them")
    os.environ.setdefault("LOWTIDE_QUIET", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    return running.run(benchmark, asked.options)


if __name__ == "__main__":
    sys.exit(main())
