"""What a benchmark found, with the machine, versions and commit that it ran on: a file of `bench/results`.

    result = Result.load("step_time")
    result.figures, result.measured_at["commit"]

A file ends in a digest of all else in it, so that a figure changed by hand is seen.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.lib.apart import ROOT

FOLDER = ROOT / "bench" / "results"


class ChangedByHandError(Exception):
    """A file is not as the command wrote it."""


@dataclass(frozen=True)
class Result:
    """One run of a benchmark."""

    benchmark: str
    options: dict[str, Any]  # those that were given, without places on the disk
    remade: bool  # by the command; False: copied from a page that was written before there was one
    measured_at: dict[str, str]  # commit and date; of the page, if not remade
    machine: dict[str, Any]  # as far as known
    versions: dict[str, str]
    seconds: float | None
    figures: Any

    @classmethod
    def load(cls, name: str, folder: Path = FOLDER) -> Result:
        """The file of that name."""
        path = folder / f"{name}.json"
        content = json.loads(path.read_text())
        said = content.pop("digest", None)
        result = cls(**content)
        if said != result.digest:
            raise ChangedByHandError(f"{path.name}: run the benchmark again, with --save")
        return result

    def save(self, name: str, folder: Path = FOLDER) -> Path:
        """Replaces the file of that name."""
        folder.mkdir(exist_ok=True)
        path = folder / f"{name}.json"
        path.write_text(self.text + "\n")
        return path

    @property
    def digest(self) -> str:
        """Of what it says, however it is written."""
        return hashlib.sha256(json.dumps(vars(self), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def text(self) -> str:
        """As JSON, with a line for each row."""
        return _text({**vars(self), "digest": self.digest})


def plain(value: Any) -> Any:
    """What JSON can hold, and gives back as it was."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.6g}")  # nothing is measured more closely
    return value


def _text(value: Any, indent: str = "") -> str:
    """A list or an object that holds no other is one line."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(isinstance(part, dict | list) and part for part in parts):
        return json.dumps(value, ensure_ascii=False)
    inner = indent + "  "
    if isinstance(value, dict):
        lines = [f"{inner}{json.dumps(key)}: {_text(part, inner)}" for key, part in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    return "[\n" + ",\n".join(f"{inner}{_text(part, inner)}" for part in value) + f"\n{indent}]"
