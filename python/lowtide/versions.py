"""Which version this is, and which of PyTorch it works with."""

from __future__ import annotations

import sys

__version__ = "0.1.0"

TORCH = "2.13"
"""The minor version of PyTorch whose internals capture and runtime know, and that the extension is built against."""

_ADVICE = f"pip install torch=={TORCH}.0"


def check_torch() -> None:
    """Raises ImportError if PyTorch is imported already and is another version."""
    found = getattr(sys.modules.get("torch"), "__version__", None)
    if found is not None and not str(found).startswith(f"{TORCH}."):
        raise ImportError(f"lowtide {__version__} works with PyTorch {TORCH}; this is {found}: {_ADVICE}")


def require_torch(name: str) -> None:
    """Imports PyTorch for `lowtide.<name>`. Raises ImportError that says what to install if it is not the right one.

    It is checked before the extension is loaded, which would fail on some symbol of C++.
    """
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"lowtide.{name} needs PyTorch {TORCH}, and there is none: {_ADVICE}") from error
    check_torch()
