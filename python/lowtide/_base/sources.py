"""Whose code a source file is, and which line of the user's is running."""

from __future__ import annotations

import os
import sys
import sysconfig
import warnings
from types import CodeType, FrameType

import torch

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""Where the files of this package are."""

_LIBRARY_ROOTS = (os.path.dirname(torch.__file__) + os.sep, OURS)
_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep
_is_library: dict[CodeType, bool] = {}


def is_library_file(path: str) -> bool:
    """Whether a source file is Python's, PyTorch's or ours, not the user's or a model library's."""
    if path.startswith((*_LIBRARY_ROOTS, "<")):
        return True
    return path.startswith(_STANDARD_LIBRARY) and not is_installed(path)


def is_installed(path: str) -> bool:
    """Whether a source file came with a package: a model library's, or that of a program that runs the user's code."""
    return "site-packages" in path


def user_line_of(error: BaseException | None) -> tuple[str, int] | None:
    """The innermost line that an error went through and that is neither Python's, PyTorch's nor ours: file, number."""
    found = None
    trace = error.__traceback__ if error is not None else None
    while trace is not None:
        if not is_library_file(trace.tb_frame.f_code.co_filename):
            found = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    return found


def user_line() -> str:
    """The innermost line that is neither Python's, PyTorch's nor ours, as `file:line`."""
    frame = _user_frame()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "?"


def warn_user(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warns at that line."""
    frame = _user_frame()
    if frame is None:
        warnings.warn(message, category, stacklevel=2)
        return
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__")
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, module, registry)


def _user_frame() -> FrameType | None:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        library = _is_library.get(code)
        if library is None:
            library = _is_library[code] = is_library_file(code.co_filename)
        if not library:
            return frame
        frame = frame.f_back
    return None
