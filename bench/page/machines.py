"""Which results were made on which machine, and which were not remade."""

from __future__ import annotations

from bench.lib.result import Result
from bench.page.results import Results


def values(results: Results) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for name in results.names:
        found.setdefault(_place(results[name]), []).append(f"`{name}`")
    return {"list": "\n".join(f"- {place}: {', '.join(names)}" for place, names in sorted(found.items()))}


def _place(result: Result) -> str:
    if not result.remade:
        return "not remade"
    machine, versions = result.machine, result.versions
    torch = versions["torch"].partition("+")[0]
    return (
        f"{machine['cores']} cores of {machine['processor']}, {machine['memory_gib']:.0f} GiB, "
        f"Python {versions['python']}, PyTorch {torch}"
    )
