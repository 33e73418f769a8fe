"""The program `lowtide-fit`, which `lowtide fit` runs: whether what a function makes fits on a device."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from .._base.sources import user_line_of
from ..errors import CaptureError, LowtideError
from ..versions import require_torch

DONE, USAGE, INFEASIBLE, INVALID_INPUT = 0, 2, 3, 5
_WITHOUT_IT = "leave that out of the step that is asked about; more: lowtide fit --help"

_EPILOG = """\
FUNCTION takes no arguments and returns a dict: "function", the training step; "model"; "optimizer", or a list of
them; "example", a function that gives the step's arguments for a batch, or a tuple of them; "batch"; and "length", if
"example" is a function of batch and length. It is called where nothing takes memory: weights have shapes and no
content.

Exit codes:
  0    it fits in plain PyTorch, as planned, or within a budget
  2    usage
  3    it does not fit
  5    FUNCTION cannot be loaded, or its step cannot be captured
  130  interrupted

Examples:
  lowtide fit examples/gpt2.py:training --device L4
  lowtide fit examples/gpt2.py:training --device 24GiB --batch 4 --json
  lowtide fit examples/gpt2.py:training --device T4 --link 12GB/s
"""


class _UsageError(Exception):
    """A command line that makes no sense."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _UsageError(message)


def _size(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {text!r}")


def _share(text: str) -> float:
    with suppress(ValueError):
        if 0 <= float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"expected a share from 0 on, such as 0.1, got {text!r}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="lowtide fit",
        description="Say whether a training step fits on a device, and the largest batch and length that do.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="MODULE:FUNCTION", help="what makes the step; MODULE may be a file")
    parser.add_argument("--device", required=True, help="its name, such as A100, 4090 or L4; its memory: 24GiB; or cpu")
    parser.add_argument("--batch", type=_size, metavar="N", help="the batch that is asked for")
    parser.add_argument(
        "--length", type=_size, metavar="N", help="the length that is asked for, if the example has one"
    )
    parser.add_argument(
        "--reserve", default="1GiB", metavar="AMOUNT", help="set aside for what no graph has (%(default)s)"
    )
    parser.add_argument(
        "--slowdown", type=_share, default=0.1, metavar="SHARE", help="what a budget may cost (%(default)s)"
    )
    parser.add_argument("--allocator", default="", metavar="SETTINGS", help="as in PYTORCH_CUDA_ALLOC_CONF")
    parser.add_argument(
        "--link", metavar="RATE", help="tensors may leave for the host's memory, or from a CPU for a disk: 16GB/s"
    )
    parser.add_argument("--keep-grads", action="store_true", help="plans keep gradients after the step")
    parser.add_argument("--one-size", action="store_true", help="do not look for the largest batch and length")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    return parser


def load(target: str) -> Callable[[], Any]:
    """The function that `MODULE:FUNCTION` names; MODULE is a name to import, or the path of a file."""
    module_name, _, function_name = target.rpartition(":")
    if not module_name or not function_name:
        raise _UsageError(f"'{target}' is not MODULE:FUNCTION, such as train.py:make or package.train:make")
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
        raise _UsageError(f"{module_name} has no function {function_name}")
    return lambda: _users(function)


class _UsersError(Exception):
    """What the user's own code raised, and where."""

    def __init__(self, error: BaseException) -> None:
        self.kind = type(error).__name__
        at = user_line_of(error)
        where = f" ({at[0]}:{at[1]})" if at is not None else ""
        super().__init__(f"{self.kind}: {error}{where}")


def _users(code: Callable[[], Any]) -> Any:
    """Calls code of the user's: what it raises says nothing about how the program is used."""
    try:
        return code()
    except (_UsageError, LowtideError):
        raise
    except (Exception, SystemExit) as error:
        raise _UsersError(error) from error


def run(arguments: Sequence[str]) -> int:
    """Runs the program and gives its exit code."""
    as_json = "--json" in arguments
    try:
        options = _parser().parse_args(arguments)
        require_torch("fit")
        from .fit import fit

        report = fit(
            _users(lambda: load(options.target)),
            device=options.device,
            batch=options.batch,
            length=options.length,
            reserve=options.reserve,
            slowdown=options.slowdown,
            allocator=options.allocator,
            link=options.link,
            keep_grads=options.keep_grads,
            largest=not options.one_size,
        )
    except (_UsageError, ValueError) as error:
        return _refuse(USAGE, "usage", str(error), "how it is used: lowtide fit --help", as_json)
    except _UsersError as error:
        return _refuse(INVALID_INPUT, error.kind, str(error), "what FUNCTION returns: lowtide fit --help", as_json)
    except (LowtideError, OSError, TypeError) as error:
        kind = type(error).__name__
        advice = _WITHOUT_IT if isinstance(error, CaptureError) else "what FUNCTION returns: lowtide fit --help"
        return _refuse(INVALID_INPUT, kind, f"{kind}: {error}", advice, as_json)
    text = json.dumps({"ok": True, **report.to_dict()}) if as_json else str(report)
    return _print(text, DONE if report.fits else INFEASIBLE)


def _refuse(code: int, kind: str, message: str, advice: str, as_json: bool) -> int:
    if as_json:
        error = {"code": kind, "message": message, "advice": advice}
        return _print(json.dumps({"ok": False, "exit_code": code, "error": error}), code)
    print(f"lowtide: error: {message}\nlowtide: {advice}", file=sys.stderr)
    return code


def _print(text: str, code: int) -> int:
    """Prints the answer and gives the exit code. A reader that has seen enough, a closed pipe, changes nothing."""
    try:
        print(text, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still in the buffer is written at exit
        if not isinstance(error, BrokenPipeError):
            print(f"lowtide: error: cannot write to standard output: {error.strerror}", file=sys.stderr)
            return code or INVALID_INPUT
    return code


def main() -> None:
    """The program."""
    try:
        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
