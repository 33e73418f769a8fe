"""What is known of parts of operators, on disk: their profiles, and whether they give the bits of the whole.

As with other profiles (`profiles.py`) a file only ever says what to expect. Before a program runs a part, the part has
been run in this process and made the very requests that are stored; and before it stands in for the whole as exact, all
parts have been run here beside the whole and gave its bits.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from pathlib import Path

from .._base.cache_directory import CacheDirectory, default_directory
from .._base.engine_switches import read_switches
from .profile_rows import PartBehaviour, PartProfile, part_profile_of, part_row_of
from .profiles import MOST_FILE_BYTES, environment

# What math libraries choose their kernels by, beyond PyTorch's switches.
_VARIABLES = ("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "MKL_DYNAMIC", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")

# What was seen in this process, by environment and signature.
_profiled_here: dict[tuple[str, str], PartBehaviour] = {}
_compared_here: dict[tuple[str, str], bool] = {}


class PartCache:
    """Profiles of parts by signature, and by the signature of an operator in parts whether they are exact."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = CacheDirectory(directory or default_directory())
        self._environment = ""
        self._profiles: dict[str, PartProfile] = {}
        self._exact: dict[str, bool] = {}
        self._forgotten: set[str] = set()
        self._unsaved = False
        self.taken = 0  # profiles taken by running a part, not found on disk
        self.compared = 0  # operators in parts that were held against the whole

    def profile(self, signature: str) -> PartProfile | None:
        """The profile of a part, if it is known; from a file, unless `is_confirmed`."""
        self._load()
        return self._profiles.get(signature)

    def put_profile(self, signature: str, profile: PartProfile) -> None:
        """Adds a profile that was taken here; `save` writes it."""
        self._load()
        self._profiles[signature] = profile
        self.confirm(signature, profile.behaviour)
        self._unsaved = True
        self.taken += 1

    def confirm(self, signature: str, behaviour: PartBehaviour) -> None:
        """The part was seen to do this, in this process."""
        self._load()
        _profiled_here[self._environment, signature] = behaviour

    def is_confirmed(self, signature: str, profile: PartProfile) -> bool:
        """Whether the part was seen to do in this process what the profile says."""
        self._load()
        return _profiled_here.get((self._environment, signature)) == profile.behaviour

    def exact(self, signature: str) -> bool | None:
        """Whether these parts have the bits of the whole, if that is known; from a file, unless `is_compared`."""
        self._load()
        return _compared_here.get((self._environment, signature), self._exact.get(signature))

    def put_exact(self, signature: str, exact: bool) -> None:
        """The parts were held against the whole, in this process."""
        self._load()
        _compared_here[self._environment, signature] = exact
        self._exact[signature] = exact
        self._unsaved = True
        self.compared += 1

    def is_compared(self, signature: str) -> bool:
        """Whether the parts were held against the whole in this process."""
        self._load()
        return (self._environment, signature) in _compared_here

    def forget(self, signature: str) -> None:
        """Drops a profile that did not hold."""
        self._load()
        self._profiles.pop(signature, None)
        _profiled_here.pop((self._environment, signature), None)
        self._forgotten.add(signature)
        self._unsaved = True

    def save(self) -> None:
        """Writes what is new, beside what others have written; a cache that cannot be written is no error."""
        if not self._unsaved:
            return
        stored_profiles, stored_exact = self._read()
        for signature in self._forgotten:
            stored_profiles.pop(signature, None)
        self._profiles = {**stored_profiles, **self._profiles}
        self._exact = {**stored_exact, **self._exact}
        rows = {signature: part_row_of(profile) for signature, profile in self._profiles.items()}
        text = json.dumps({"environment": self._environment, "profiles": rows, "exact": self._exact})
        with self._directory.replacing(self._file_name()) as path:
            if path is not None:
                path.write_text(text)
                self._unsaved = False
                self._forgotten.clear()

    def _load(self) -> None:
        now = _environment()
        if now == self._environment:
            return
        self.save()
        self._environment = now
        self._forgotten.clear()
        self._unsaved = False
        self._profiles, self._exact = self._read()

    def _file_name(self) -> str:
        return f"parts-{hashlib.sha256(self._environment.encode()).hexdigest()[:16]}.json"

    def _read(self) -> tuple[dict[str, PartProfile], dict[str, bool]]:
        """What the file holds. A missing or damaged file is an empty one, a row that is not as it should be unknown."""
        path = self._directory.to_read(self._file_name(), MOST_FILE_BYTES)
        if path is None:
            return {}, {}
        try:
            stored = json.loads(path.read_bytes())
            if stored["environment"] != self._environment:
                return {}, {}
            profiles = {signature: part_profile_of(row) for signature, row in stored["profiles"].items()}
            exact = {signature: row for signature, row in stored["exact"].items() if type(row) is bool}
        except Exception:  # of any kind: too deep, too large, not text
            return {}, {}
        return {signature: profile for signature, profile in profiles.items() if profile is not None}, exact


def _environment() -> str:
    chosen = " ".join(f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ)
    return f"1 {environment(read_switches())} on {processor()} {chosen}"


@cache
def processor() -> str:
    """Math libraries look at the very model."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    wanted = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")
    found = dict(line.split(":", 1) for line in lines if line.split("\t")[0] in wanted and ":" in line)
    return hashlib.sha256("\n".join(found.values()).encode()).hexdigest()[:16]
