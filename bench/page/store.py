"""The plan store: what its entries and its jobs take, as the benchmark prints it too."""

from __future__ import annotations

from typing import Any

from bench.lib.markdown import table
from bench.page.results import Results

JOBS = 10_000  # a day
SECONDS = 24 * 3600


def tables(figures: dict[str, Any]) -> dict[str, str]:
    """By name: the entries, the jobs, and a day of a fleet."""
    return {"entries": _entries(figures["plans"]), "jobs": _jobs(figures["jobs"]), "fleet": _fleet(figures["jobs"])}


def _entries(plans: list[dict[str, Any]]) -> str:
    columns = ("operators", "KiB", "directory: put ms", "get ms", "Redis: put ms", "get ms", "found ms", "planned s")
    rows = [
        (
            f"{row['operators']:,}", f"{row['bytes'] / 2**10:.1f}",
            *(f"{row[f'{store}_{what}_ms']:.2f}" for store in ("directory", "redis") for what in ("put", "get")),
            f"{row['found_ms']:.1f}", f"{row['planning_seconds']:.2f}",
        )
        for row in plans
    ]  # fmt: skip
    return table(columns, rows)


def _jobs(jobs: list[dict[str, Any]]) -> str:
    columns = (
        "job",
        "planning s",
        "two steps s",
        "asks",
        "found",
        "puts",
        "KiB read",
        "KiB written",
        "ms in the store",
    )
    rows = []
    for row in jobs:
        asked = row["asked"]
        rows.append((
            row["job"], f"{row['planning_seconds']:.3f}", f"{row['seconds']:.2f}", asked["gets"], asked["found"],
            asked["puts"], f"{asked['got_bytes'] / 2**10:.1f}", f"{asked['put_bytes'] / 2**10:.1f}",
            f"{1e3 * asked['seconds']:.1f}",
        ))  # fmt: skip
    return table(columns, rows)


def _fleet(jobs: list[dict[str, Any]]) -> str:
    """If each job were such a second one, and all came evenly."""
    asked = jobs[1]["asked"]
    share = jobs[1]["planning_seconds"] / jobs[0]["planning_seconds"]
    rows = [
        ("requests a second", f"{JOBS * asked['gets'] / SECONDS:.2f}"),
        ("MiB read a day", f"{JOBS * asked['got_bytes'] / 2**20:.0f}"),
        ("seconds a day that the store is asked, of all jobs", f"{JOBS * asked['seconds']:.0f}"),
        ("KiB kept for each step that is planned", f"{jobs[0]['asked']['put_bytes'] / 2**10:.1f}"),
        ("planning of a job, of the first one's", f"{share:.2%}"),
        ("hours of planning a day without the store", f"{JOBS * jobs[0]['planning_seconds'] / 3600:.1f}"),
        ("hours of planning a day with it", f"{JOBS * jobs[1]['planning_seconds'] / 3600:.2f}"),
    ]
    return table((f"{JOBS:,} jobs a day", ""), rows)


def values(results: Results) -> dict[str, str]:
    return results.written("store_entries", tables)
