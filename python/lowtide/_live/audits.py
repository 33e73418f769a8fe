"""Audits: now and then what was captured is captured anew and compared, for what nobody watches may have changed.

Atoms run once, on fake tensors; what their Python reads is watched. A clock, a file or an object of a C extension is
not. An audit finds what they compute differently because of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from .._base.same_bits import same_bits
from .._base.sources import warn_user
from .._capture.recorder import Call, Ref
from .._guards.guards import describe_tensor, plain_key
from .._optimizer.ledger import Number
from ..errors import CaptureError

if TYPE_CHECKING:
    from .._capture.tape import Root, Tape
    from .._step.captured_step import CapturedStep

_MODES = ("", "off", "all")
_SHARE = 0.01  # of the time


class Audits:
    """When to audit, and what becomes of what is found.

    A captured step is audited when it runs for the second time. From then on there is an audit whenever all of them so
    far have taken less than a hundredth of the time.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._mode = os.environ.get("LOWTIDE_AUDIT", "")
        if self._mode not in _MODES:
            raise ValueError(f'LOWTIDE_AUDIT is "off" or "all", not {self._mode!r}')
        self._next = 0.0  # by the clock
        self._in_a_row = 0  # audits that found something

    def is_due(self, step: CapturedStep) -> bool:
        """Whether a step that is about to run is to be audited."""
        runs = step.record.calls
        if self._mode == "off" or runs == 0:
            return False
        return self._mode == "all" or runs == 1 or time.monotonic() >= self._next

    @contextmanager
    def timed(self) -> Iterator[None]:
        """An audit runs inside."""
        begin = time.monotonic()
        try:
            yield
        finally:
            end = time.monotonic()
            self._next = end + (end - begin) / _SHARE

    def passed(self) -> None:
        """An audit has found nothing."""
        self._in_a_row = 0

    def found(self, what: str) -> None:
        """Warns of a difference; raises `CaptureError` if the audit before has found one too."""
        self._in_a_row += 1
        said = f"{what} is not what it was when it was captured, though nothing that is watched has changed"
        if self._in_a_row > 1:
            raise CaptureError(f"{said}, for the second time: it may be another one at every call")
        warn_user(
            f"lowtide: an audit of {self._name} found that {said}. It is captured again; calls since the last audit "
            "may have run as it was before. Arguments and attributes of modules are watched: let it depend on those"
        )


def difference(before: Tape, now: Tape) -> str:
    """The first call of a tape that is another one in the other tape, in words; "" if they are the same."""
    ours, theirs = before.recording.calls, now.recording.calls
    same = _Comparison(before, now)
    for old, new in zip(ours, theirs, strict=False):
        if not same.call(old, new):
            return _named(new)
    if len(ours) != len(theirs):
        return _named((ours if len(ours) > len(theirs) else theirs)[min(len(ours), len(theirs))])
    if not same.bounds() or not same.value(before.result_leaves, now.result_leaves):
        return "a tensor that the step uses"
    return ""


def _named(call: Call) -> str:
    module = f" in {call.where.module}" if call.where.module else ""
    return f"{call.target}{module} ({call.where.source})"


class _Comparison:
    """Whether parts of two tapes are the same. Where in its memory a tensor begins that was there before is no part."""

    def __init__(self, before: Tape, now: Tape) -> None:
        self._tapes = before, now
        self._begins = [_begins(tape) for tape in self._tapes]

    def call(self, old: Call, new: Call) -> bool:
        kinds = (old.target, old.grad_mode, old.backward, old.region, old.repeats)
        if kinds != (new.target, new.grad_mode, new.backward, new.region, new.repeats):
            return False
        return all(map(self.value, (old.args, old.kwargs, old.results), (new.args, new.kwargs, new.results)))

    def value(self, old: Any, new: Any) -> bool:
        if isinstance(old, Ref):
            return isinstance(new, Ref) and self._window(old, 0) == self._window(new, 1)
        if isinstance(old, (list, tuple)):
            return type(old) is type(new) and len(old) == len(new) and all(map(self.value, old, new))
        if isinstance(old, dict):
            same_keys = isinstance(new, dict) and old.keys() == new.keys()
            return same_keys and all(self.value(old[key], new[key]) for key in old)
        if isinstance(old, torch.Tensor):  # a constant that a module makes
            alike = isinstance(new, torch.Tensor) and describe_tensor(old) == describe_tensor(new)
            return alike and same_bits(old, new)
        key = plain_key(old)
        return old is new or (isinstance(old, Number) and old == new) or (key is not None and key == plain_key(new))

    def bounds(self) -> bool:
        """Whether the tensors are the same that were there before."""
        before, now = self._tapes
        buffers = len(before.recording.buffers), len(now.recording.buffers)
        return buffers[0] == buffers[1] and all(self._bounds(b, 0) == self._bounds(b, 1) for b in range(buffers[0]))

    def _window(self, ref: Ref, tape: int) -> Ref:
        return ref._replace(offset=ref.offset * ref.dtype.itemsize - self._begins[tape].get(ref.buffer, 0))

    def _bounds(self, buffer: int, tape: int) -> list[tuple[Any, ...]]:
        begin = self._begins[tape].get(buffer, 0)
        return sorted((*_bound(root), root.offset - begin) for root in self._tapes[tape].roots.get(buffer, ()))


def _begins(tape: Tape) -> dict[int, int]:
    """By buffer, the first byte of what was there before."""
    return {buffer: min(root.offset for root in roots) for buffer, roots in tape.roots.items()}


def _bound(root: Root) -> tuple[str, str]:
    key = root.key if isinstance(root.key, (str, int)) else id(getattr(root.key, "weight", root.key))
    return (root.kind, str(key))
