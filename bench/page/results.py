"""The results that a page is made from, and how it says where they come from."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.lib.markdown import table
from bench.lib.result import FOLDER, Result


class Results:
    """Those of a folder, by name."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._load = functools.cache(lambda name: Result.load(name, folder))
        self.names = sorted(path.stem for path in folder.glob("*.json"))

    def __getitem__(self, name: str) -> Result:
        return self._load(name)

    def written(self, name: str, write: Callable[[Any], dict[str, str]], prefix: str = "") -> dict[str, str]:
        """What `write` makes of the figures, and under `made` where they come from; all by names with the prefix.

        Figures that were not remade are those of an earlier page: by the same names, text or the rows of a table.
        """
        result = self[name]
        found = write(result.figures) if result.remade else {key: _text(said) for key, said in result.figures.items()}
        return {prefix + key: text for key, text in {**found, "made": made(result)}.items()}


def made(result: Result) -> str:
    """When it was measured, and what an earlier page had to remark."""
    commit, date = result.measured_at["commit"][:7], result.measured_at["date"]
    if result.remade:
        return f"*Made at {commit} on {date}, load {result.machine['load_before']} on {result.machine['cores']} cores.*"
    remark = result.figures.get("remark")
    return f"*Not remade: as an earlier page had it ({commit}, {date}).*" + (f" {remark}" if remark else "")


def _text(said: str | list[list[str]]) -> str:
    return said if isinstance(said, str) else table(said[0], said[1:])
