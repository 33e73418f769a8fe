"""What Lowtide decides and why, told as it happens: as lines (LOWTIDE_LOGS) and as JSON in a file (LOWTIDE_TRACE).

    LOWTIDE_LOGS=plan,order:debug   lines of these topics on standard error, by the loggers lowtide.plan, lowtide.order
    LOWTIDE_TRACE=/tmp/trace        one JSON object on a line for each decision, in a file for each process

Both are read at each decision. Where neither is set, a decision costs a look at two variables.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOPICS = ("capture", "profile", "plan", "order", "layout", "recompute", "swap", "cache", "run", "adapt", "replay")
_LEVELS = {"": logging.INFO, "info": logging.INFO, "debug": logging.DEBUG}
_ALL = "all"
_log = logging.getLogger("lowtide")
_asked = ""  # LOWTIDE_LOGS as it was read last
_untraced = ""  # the folder that cannot be written to


class _Untold(threading.local):
    """Whether what is decided on this thread is told to nobody."""

    is_so = False


_untold = _Untold()


@contextlib.contextmanager
def untold() -> Iterator[None]:
    """What is decided in the block on this thread is told to nobody: it is no work of the user's."""
    before, _untold.is_so = _untold.is_so, True
    try:
        yield
    finally:
        _untold.is_so = before


def is_told() -> bool:
    """Whether what this thread does is the user's business."""
    return not _untold.is_so


def is_wanted(topic: str, *, debug: bool = False) -> bool:
    """Whether anybody reads what is said of a topic: worth finding out what takes a while."""
    if _untold.is_so:
        return False
    _read()
    own = logging.getLogger(f"lowtide.{topic}")
    level = logging.DEBUG if debug else logging.INFO
    is_logged = own.level != logging.NOTSET and own.isEnabledFor(level)
    return is_logged or (not debug and bool(os.environ.get("LOWTIDE_TRACE")))


def decided(topic: str, decision: str, **fields: Any) -> None:
    """Tells of a decision; fields are numbers, texts, lists of them and None."""
    if not is_wanted(topic):
        return
    _say(topic, logging.INFO, decision, fields)
    if folder := os.environ.get("LOWTIDE_TRACE"):
        _trace(folder, {"time": time.time(), "pid": os.getpid(), "topic": topic, "decision": decision, **fields})


def detail(topic: str, what: str, **fields: Any) -> None:
    """Tells of something on the way to a decision, at level debug."""
    if is_wanted(topic, debug=True):
        _say(topic, logging.DEBUG, what, fields)


def log_to_stderr() -> None:
    """Where nobody has said where logs go."""
    if not _log.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s"))
        _log.addHandler(handler)
        _log.setLevel(logging.INFO)


def _say(topic: str, level: int, what: str, fields: dict[str, Any]) -> None:
    log = logging.getLogger(f"lowtide.{topic}")
    if log.level == logging.NOTSET or not log.isEnabledFor(level):
        return
    told = ", ".join(f"{name}={value}" for name, value in fields.items() if value is not None)
    log.log(level, "lowtide.%s: %s%s", topic, what, f": {told}" if told else "")


def _read() -> None:
    """Gives loggers their levels, where LOWTIDE_LOGS has changed."""
    global _asked
    asked = os.environ.get("LOWTIDE_LOGS", "")
    if asked == _asked:
        return
    _asked, wrong = asked, []
    levels = dict.fromkeys(TOPICS, logging.NOTSET)
    for entry in filter(None, (part.strip() for part in asked.split(","))):
        name, _, level = entry.partition(":")
        if level not in _LEVELS or name not in (*TOPICS, _ALL):
            wrong.append(entry)
            continue
        levels |= dict.fromkeys(TOPICS if name == _ALL else [name], _LEVELS[level])
    for topic, chosen in levels.items():
        logging.getLogger(f"lowtide.{topic}").setLevel(chosen)
    if any(levels.values()):
        log_to_stderr()
    if wrong:
        known = f"{', '.join(TOPICS)} and {_ALL}, each with :debug or :info"
        _log.warning("lowtide: LOWTIDE_LOGS: expected %s, got %s", known, ", ".join(wrong))


def _trace(folder: str, fields: dict[str, Any]) -> None:
    """A line at a time, so that the lines of threads and of programs that fork stay whole."""
    global _untraced
    if folder == _untraced:
        return
    line = json.dumps(fields, default=str, separators=(",", ":")) + "\n"
    path = Path(folder) / f"lowtide-{os.getpid()}.jsonl"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            os.write(file, line.encode(errors="replace"))
        finally:
            os.close(file)
    except OSError as error:
        _untraced = folder
        _log.warning("lowtide: LOWTIDE_TRACE: nothing is written to %s: %s", folder, error.strerror)
