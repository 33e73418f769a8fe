"""Where memory was asked for: the line of the user's code, and the operator or the node of autograd that ran.

A stack is a list of frames, the innermost first, of C++ and Python. The machine that it comes from is another one, so
whose code a file is can be told by its path alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_MOST_FRAMES = 4096
_MOST_LETTERS = 4096
_STANDARD_LIBRARY = re.compile(r"[/\\]lib[/\\]python3\.\d+[/\\]|[/\\]Python3\d+[/\\]Lib[/\\]")
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\](\w+)")
_OPERATOR = re.compile(r"\bat::_ops::(\w+)::")
_NODE = re.compile(r"\b(\w+Backward\d*)(?:_apply|\b)")
_MEMORY = re.compile(r"\b(\w*Workspace)\b")
_LINE, _LIBRARY, _RAN, _PASSED, _ASKED, _NOTHING = range(6)  # what a frame tells


@dataclass(frozen=True)
class Place:
    """`source` is "file:line" of the user's code, `function` the name around it, `op` what ran; empty: unknown."""

    source: str = ""
    function: str = ""
    op: str = ""


UNKNOWN = Place()


class Places:
    """Each stack and each frame is read once: a snapshot refers to one over and over."""

    def __init__(self) -> None:
        self._places: dict[int, Place] = {}
        self._frames: dict[int, tuple[int, str, str]] = {}
        self._kept: list[Any] = []  # a stack that is gone could have its number taken by another
        self._same: dict[Place, Place] = {}

    def place_of(self, frames: Any) -> Place:
        """`UNKNOWN` for what is no stack, or was not recorded."""
        if type(frames) is not list or not frames:
            return UNKNOWN
        place = self._places.get(id(frames))
        if place is None:
            made = self._place_of(frames[:_MOST_FRAMES])
            place = self._places[id(frames)] = self._same.setdefault(made, made)
            self._kept.append(frames)
        return place

    def _place_of(self, frames: list[Any]) -> Place:
        found = {}
        for frame in frames:
            told = self._frames.get(id(frame))
            if told is None:
                told = self._frames[id(frame)] = _told_by(frame)
            kind, *words = told
            if kind in (_RAN, _LINE) or kind not in found:
                found[kind] = words  # of operators the outermost: what Python or autograd called
            if kind == _LINE:
                break
        source, function = found.get(_LINE, ("", ""))
        ran = next((found[kind][0] for kind in (_ASKED, _PASSED, _RAN) if kind in found), "")
        return Place(source, function, ran)


def _told_by(frame: Any) -> tuple[int, str, str]:
    """What kind of frame it is, and the words for it."""
    nothing = (_NOTHING, "", "")
    if type(frame) is not dict:
        return nothing
    name, file, line = frame.get("name"), frame.get("filename"), frame.get("line")
    if type(name) is not str or type(file) is not str or type(line) is not int:
        return nothing
    if len(name) > _MOST_LETTERS or len(file) > _MOST_LETTERS:
        return nothing
    if file.endswith(".py") or file.startswith("<"):
        return (_LIBRARY, "", "") if _is_library(file) else (_LINE, f"{file}:{max(0, line)}", name)
    for kind, pattern, prefix in ((_RAN, _OPERATOR, "aten::"), (_PASSED, _NODE, ""), (_ASKED, _MEMORY, "")):
        if found := pattern.search(name):
            return kind, prefix + found[1], ""
    return nothing


def _is_library(file: str) -> bool:
    """Whether a file is Python's, PyTorch's or ours, not the user's or a model library's."""
    installed = _INSTALLED.search(file)
    if installed:
        return installed[1] in ("torch", "lowtide")
    return file.startswith("<") or _STANDARD_LIBRARY.search(file) is not None
