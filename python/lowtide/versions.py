"""Which version this is, which of PyTorch it is tested with, and where the extensions for the one that is here lie.

An extension works with one minor version of PyTorch only. The package has a folder for each that it was built for:

    lowtide/_for_torch/2.13/_torch*.so
    lowtide/_for_torch/2.14/_torch*.so
"""

from __future__ import annotations

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

__version__ = "0.1.0"

TESTED = ("2.13", "2.14", "2.15")
"""The minor versions of PyTorch that the tests pass with."""

_FOLDER = Path(__file__).parent / "_for_torch"
_NEWEST = f"pip install torch=={TESTED[-1]}.*"


def torch_version() -> str:
    """The version of the PyTorch that is imported, or that would be; "" if there is none, or none that says it."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return str(getattr(torch, "__version__", ""))
    try:
        spec = find_spec("torch")
        text = (Path(spec.origin).parent / "version.py").read_text() if spec and spec.origin else ""
    except (ImportError, ValueError, OSError):
        return ""
    said = re.search(r"^__version__ = '([^']+)'", text, re.MULTILINE)
    return said[1] if said else ""


def minor_of(version: str) -> str:
    """The first two numbers of a version: "2.13" of "2.13.0+cpu"."""
    return ".".join(version.split(".")[:2])


def show_extensions() -> None:
    """Puts the folder for the PyTorch that is here on the package's path: `from lowtide import _torch` finds it."""
    path = sys.modules[__package__].__path__
    path[:] = [entry for entry in path if Path(entry).parent != _FOLDER]
    version = torch_version()
    if version:
        path.append(str(_FOLDER / minor_of(version)))


def import_torch(name: str) -> None:
    """Imports PyTorch for `lowtide.<name>`. Raises ImportError that says what to install if there is none."""
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"lowtide.{name} needs PyTorch, and there is none: {_NEWEST}") from error
    show_extensions()  # for the one that is imported, whatever was found before


def why_unusable() -> str:
    """Why nothing is planned with the PyTorch that is imported, and what to do; "" if its extension is loaded."""
    version = torch_version()
    minor = minor_of(version)
    if minor not in TESTED and os.environ.get("LOWTIDE_UNTESTED") != "1":
        return (
            f"lowtide {__version__} is tested with PyTorch {_listed(TESTED)}, this is {version}: {_NEWEST}, or set "
            "LOWTIDE_UNTESTED=1"
        )
    if not (_FOLDER / minor).is_dir():
        there = sorted((path.name for path in _FOLDER.glob("*")), key=lambda each: [int(n) for n in each.split(".")])
        said = f"lowtide {__version__} was built for PyTorch {_listed(there)}, this is {version}"
        return f"{said}: build it beside this one, pip install --no-binary=lowtide --no-build-isolation lowtide"
    try:
        from . import _torch  # noqa: F401
    except ImportError as error:
        return f"the extension of lowtide {__version__} for PyTorch {minor} is not loaded: {error}"
    return ""


def require_torch(name: str) -> None:
    """Imports PyTorch for `lowtide.<name>`. Raises ImportError that says what to install if it is not the right one."""
    import_torch(name)
    reason = why_unusable()
    if reason:
        raise ImportError(f"lowtide.{name}: {reason}")


def _listed(names: tuple[str, ...] | list[str]) -> str:
    """For example "2.13, 2.14 and 2.15"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:]))) or "none"
