"""What the programs `lowtide-NAME` that are written in Python have in common: how they refuse, answer and end."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from ..errors import LowtideError

DONE, USAGE, INFEASIBLE, LIMIT, INVALID_INPUT, INTERRUPTED = 0, 2, 3, 4, 5, 130
"""Exit codes, as docs/cli.md lists them."""


class UsageError(Exception):
    """A command line that makes no sense."""


class UsersError(Exception):
    """What the user's own code raised, and where."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)


class Parser(argparse.ArgumentParser):
    """One that raises instead of leaving the program, with examples and exit codes below its options."""

    def __init__(self, name: str, description: str, epilog: str) -> None:
        super().__init__(
            prog=f"lowtide {name}",
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Raises `UsageError`."""
        raise UsageError(message)


def size(text: str) -> int:
    """A whole number from 1 on, of an option."""
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {text!r}")


def refuse(code: int, kind: str, message: str, advice: str, *, as_json: bool) -> int:
    """Says what went wrong, and gives the exit code."""
    if as_json:
        error = {"code": kind, "message": message, "advice": advice}
        return answer(json.dumps({"ok": False, "exit_code": code, "error": error}), code)
    print(f"lowtide: error: {message}\nlowtide: {advice}", file=sys.stderr)
    return code


def refusing(name: str, arguments: Sequence[str], run: Callable[[Sequence[str]], int]) -> int:
    """Runs it; what goes wrong is said, and gives an exit code."""
    as_json = "--json" in arguments
    usage = f"how it is used: lowtide {name} --help"
    try:
        return run(arguments)
    except (UsageError, ValueError) as error:
        return refuse(USAGE, "usage", str(error), usage, as_json=as_json)
    except UsersError as error:
        return refuse(INVALID_INPUT, error.kind, str(error), usage, as_json=as_json)
    except (LowtideError, OSError, TypeError) as error:
        kind = type(error).__name__
        return refuse(INVALID_INPUT, kind, f"{kind}: {error}", usage, as_json=as_json)


def answer(text: str, code: int) -> int:
    """Prints it and gives the exit code. A reader that has seen enough, a closed pipe, changes nothing."""
    try:
        print(text, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still in the buffer is written at exit
        if not isinstance(error, BrokenPipeError):
            print(f"lowtide: error: cannot write to standard output: {error.strerror}", file=sys.stderr)
            return code or INVALID_INPUT
    return code


def leave(run: Callable[[Sequence[str]], int]) -> NoReturn:
    """Runs a program with the arguments that it was started with, and ends with its exit code."""
    try:
        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
