"""The benchmarks, as bench/README.md lists them."""

from __future__ import annotations

from bench.catalog import CATALOG
from bench.lib.markdown import table
from bench.page.results import Results


def values(_: Results) -> dict[str, str]:
    rows = [(f"[`{benchmark.name}`]({benchmark.path})", benchmark.compares, benchmark.takes) for benchmark in CATALOG]
    return {"table": table(("name", "compares", "takes"), rows)}
