"""A step by the name of the function that makes it, `train.py:make`, as programs are given it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .. import _core
from .._base.program import UsageError, UsersError
from .._base.sources import user_line_of
from .._capture import weightless
from .._lower.capture import capture, optimizers_of
from ..errors import LowtideError
from .inputs import Inputs

FIELDS = ("function", "model", "optimizer", "example", "batch", "length")


class Made(NamedTuple):
    """What such a function returns, as a dict of these; optimizer, batch and length may be missing."""

    function: Callable[..., Any]
    model: torch.nn.Module
    optimizer: Any
    example: Any
    batch: int | None
    length: int | None


def read_made(made: Any) -> Made:
    """Raises TypeError for anything else."""
    if not isinstance(made, dict) or not {"function", "model", "example"} <= made.keys() <= set(FIELDS):
        got = f"a dict of {', '.join(map(str, made))}" if isinstance(made, dict) else f"a {type(made).__name__}"
        raise TypeError(
            f"a function given to fit without a model is to return a dict of {', '.join(FIELDS)} (optimizer, "
            f"batch and length may be missing), not {got}"
        )
    return Made(
        made["function"],
        made["model"],
        made.get("optimizer"),
        made["example"],
        made.get("batch"),
        made.get("length"),
    )


def of_users(code: Callable[[], Any]) -> Any:
    """Calls code of the user's: what it raises says nothing about how the program is used."""
    try:
        return code()
    except (UsageError, LowtideError):
        raise
    except (Exception, SystemExit) as error:
        at = user_line_of(error)
        where = f" ({at[0]}:{at[1]})" if at is not None else ""
        kind = type(error).__name__
        raise UsersError(kind, f"{kind}: {error}{where}") from error


def load(target: str) -> Callable[[], Any]:
    """The function that `MODULE:FUNCTION` names; MODULE is a name to import, or the path of a file."""
    module_name, _, function_name = target.rpartition(":")
    if not module_name or not function_name:
        raise UsageError(f"'{target}' is not MODULE:FUNCTION, such as train.py:make or package.train:make")
    if module_name.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(module_name).stem, module_name)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        sys.path.insert(0, str(Path(module_name).resolve().parent))
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[spec.name]
            raise
    else:
        sys.path.insert(0, "")
        module = importlib.import_module(module_name)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise UsageError(f"{module_name} has no function {function_name}")
    return lambda: of_users(function)


def captured(target: str, device: str | None, batch: int | None, length: int | None) -> _core.Graph:
    """The graph of the step that such a function makes, which is called where nothing takes memory."""
    function = of_users(lambda: load(target))
    with weightless.building():
        made = read_made(function())
    optimizers = optimizers_of(made.optimizer)
    with weightless.as_if_on_cpu(made.model, optimizers):
        inputs = Inputs(
            made.example,
            made.batch if batch is None else batch,
            made.length if length is None else length,
            0,
            weightless.fake_mode_of(made.model),
        )
        with weightless.CudaMeansCpu():
            return capture(
                made.function,
                model=made.model,
                optimizer=optimizers,
                example=inputs.at(inputs.asked),
                device=device,
            )
