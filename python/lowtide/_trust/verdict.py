"""Whether planned steps have the numbers of eager here: tried once for an installation and a kind of device.

That it is so is kept on disk, in a file whose name says what was tried. What fails is tried again in the next process.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from .. import _torch
from .._base.cache_directory import CacheDirectory, default_directory
from .._base.devices import why_not_planned
from .._guards.guards import must_stay_eager
from ..versions import __version__
from .trial import trial

_MOST_FILE_BYTES = 1 << 10
_lock = threading.RLock()
_known: dict[str, str] = {}  # what is wrong, by installation and kind of device
_trying = False


def why_untrusted(device: torch.device, compile: Callable[..., Any]) -> str:
    """Why nothing may be planned on a device; "" if a trial step was as in eager, or cannot be made now."""
    if why_not_planned(device):
        return ""  # which is said where it is to be planned
    with _lock:
        name = _name_of(device)
        if name in _known:
            return _known[name]
        if _trying or must_stay_eager() or _is_hooked():
            return ""
        passed = CacheDirectory(default_directory()).below("trials")
        reason = "" if passed.to_read(name, _MOST_FILE_BYTES) is not None else _try(compile, device)
        if reason is None:
            return ""
        if not reason:
            with passed.replacing(name) as path:
                if path is not None:
                    path.write_text(f"{_about(device)}\n")
        _known[name] = reason and f"{reason} ({_about(device)})"
        return _known[name]


def device_of(model: object) -> torch.device:
    """Where the first parameter of a model is."""
    parameters = model.parameters() if isinstance(model, torch.nn.Module) else iter(())
    return next((parameter.device for parameter in parameters), torch.device("cpu"))


@functools.cache
def tried(planned: Callable[..., Any], eager: Callable[..., Any], compile: Callable[..., Any]) -> Callable[..., Any]:
    """The function `planned`, or `eager` with the reason where nothing may be planned for the model it is given."""

    @functools.wraps(planned)
    def call(*args: Any, **kwargs: Any) -> Any:
        reason = why_untrusted(device_of(kwargs.get("model", next(iter(args), None))), compile)
        return eager(reason, *args, **kwargs) if reason else planned(*args, **kwargs)

    return call


def _try(compile: Callable[..., Any], device: torch.device) -> str | None:
    global _trying
    _trying = True
    try:
        return trial(compile, device)
    finally:
        _trying = False


def _is_hooked() -> bool:
    """Whether somebody's hooks would see the trial's modules and optimizers."""
    registered = (
        modules._global_parameter_registration_hooks,
        modules._global_buffer_registration_hooks,
        modules._global_module_registration_hooks,
        optimizers._global_optimizer_pre_hooks,
        optimizers._global_optimizer_post_hooks,
    )
    return any(registered) or bool(modules._has_any_global_hook())  # type: ignore[no-untyped-call]


def _about(device: torch.device) -> str:
    kind = "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)
    return f"lowtide {__version__}, PyTorch {torch.__version__}, {kind}"


def _name_of(device: torch.device) -> str:
    """Of the file: everything that a new trial is made for."""
    extension = Path(_torch.__file__ or "").stat()
    about = (_about(device), torch.version.git_version, torch.backends.cpu.get_cpu_capability())
    key = repr((about, _torch.__file__, extension.st_size, extension.st_mtime_ns))
    return hashlib.sha256(key.encode()).hexdigest()[:32]
