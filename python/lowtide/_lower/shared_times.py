"""Times of a step's operators that the jobs of a fleet have in common, so that one of them plans for all.

A plan is a pure function of a graph with measured times. Jobs that measure for themselves have other times, and so
other graphs: none finds the plan of another. So the first job puts the times of its step into the store that
LOWTIDE_STORE names, under a key without times: what PyTorch it is and how it is set, the processor, and the calls of
the step as they were captured, with the devices of their tensors. A job that finds them there plans with them, and
finds the plan.

Times are taken over for all operators or for none, and only where each was seen in this process to make the very
requests and results that are stored beside its time. So a store decides which plan is made, and never what is in
memory.

There are two such entries: the times of scratch memory, from the first job, and those that have settled in steps, from
the first job that began with them. The latter come first.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence

from .._base.decisions import decided
from .._base.engine_switches import read_switches
from .._store.chosen import chosen_store, shared_store
from .._store.entry import key_of
from .._store.store import Store
from .lowering import Operator
from .part_cache import processor
from .profile_rows import OpProfile, profile_of, row_of
from .profiles import environment, signature_of

_MOST_BYTES = 16 * 2**20  # of text
_SETTLED, _FIRST = "settled", "first"


def shared_times(operators: Sequence[Operator]) -> SharedTimes | None:
    """Those of the step with these operators, or None if nothing is shared."""
    return None if shared_store() is None or not operators else SharedTimes(chosen_store(), operators)


class SharedTimes:
    """What the store has of one step. `operators` are as captured."""

    def __init__(self, store: Store, operators: Sequence[Operator]) -> None:
        self._store = store
        calls = tuple(signature_of(op.target, op.arguments, op.results, op.grad_mode) for op in operators)
        step = ("times", environment(read_switches()), processor(), calls)
        self._keys = {kind: key_of(*step, kind) for kind in (_SETTLED, _FIRST)}
        self._stored = {kind: self._read(key) for kind, key in self._keys.items()}

    def expected(self) -> Mapping[str, OpProfile]:
        """What the operators are said to do: to be seen before it is used, as what a file says is."""
        return self._stored[_SETTLED] or self._stored[_FIRST] or {}

    def agree(self, seen: Mapping[str, OpProfile]) -> Mapping[str, OpProfile]:
        """The profiles that the step is planned with, given those of all that it calls, as seen in this process.

        What is stored and does not hold here is dropped, and what is seen here takes its place.
        """
        for kind in (_SETTLED, _FIRST):
            stored = self._stored[kind]
            if stored is not None and _behave_alike(stored, seen):
                decided("cache", "times found", times=kind, key=self._keys[kind])
                return stored
            if stored is not None:
                self._store.drop(self._keys[kind])
            if kind == _FIRST or all(profile.settled for profile in seen.values()):
                decided("cache", "times missed", times=kind, key=self._keys[kind])
                rows = {signature: row_of(profile) for signature, profile in seen.items()}
                self._store.put(self._keys[kind], json.dumps(rows).encode())
                break
        return seen

    def _read(self, key: str) -> dict[str, OpProfile] | None:
        content = self._store.get(key)
        if content is None:
            return None
        profiles: list[tuple[str, OpProfile | None]] = [("", None)]
        if len(content) <= _MOST_BYTES:
            with contextlib.suppress(Exception):  # of any kind: too deep, not text, no table
                profiles = [(signature, profile_of(row)) for signature, row in json.loads(content).items()]
        known = {signature: profile for signature, profile in profiles if profile is not None}
        if len(known) == len(profiles):
            return known
        self._store.drop(key)
        return None


def _behave_alike(stored: Mapping[str, OpProfile], seen: Mapping[str, OpProfile]) -> bool:
    """Whether all of a step is stored, and what is stored is what was seen."""
    return stored.keys() == seen.keys() and all(stored[name].behaviour == seen[name].behaviour for name in seen)
