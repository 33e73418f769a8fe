"""The program `lowtide-fit`, which `lowtide fit` runs: whether what a function makes fits on a device."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from contextlib import suppress

from .._base.program import (
    DONE,
    INFEASIBLE,
    INVALID_INPUT,
    USAGE,
    Parser,
    UsageError,
    UsersError,
    answer,
    leave,
    refuse,
    size,
)
from ..errors import CaptureError, LowtideError
from ..versions import require_torch

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


def _share(text: str) -> float:
    with suppress(ValueError):
        if 0 <= float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"expected a share from 0 on, such as 0.1, got {text!r}")


def _parser() -> Parser:
    parser = Parser(
        "fit", "Say whether a training step fits on a device, and the largest batch and length that do.", _EPILOG
    )
    parser.add_argument("target", metavar="MODULE:FUNCTION", help="what makes the step; MODULE may be a file")
    parser.add_argument("--device", required=True, help="its name, such as A100, 4090 or L4; its memory: 24GiB; or cpu")
    parser.add_argument("--batch", type=size, metavar="N", help="the batch that is asked for")
    parser.add_argument("--length", type=size, metavar="N", help="the length that is asked for, if the example has one")
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


def run(arguments: Sequence[str]) -> int:
    """Runs the program and gives its exit code."""
    as_json = "--json" in arguments
    try:
        options = _parser().parse_args(arguments)
        require_torch("fit")
        from .fit import fit
        from .target import load, of_users

        report = fit(
            of_users(lambda: load(options.target)),
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
    except (UsageError, ValueError) as error:
        return refuse(USAGE, "usage", str(error), "how it is used: lowtide fit --help", as_json=as_json)
    except UsersError as error:
        return refuse(
            INVALID_INPUT, error.kind, str(error), "what FUNCTION returns: lowtide fit --help", as_json=as_json
        )
    except (LowtideError, OSError, TypeError) as error:
        kind = type(error).__name__
        advice = _WITHOUT_IT if isinstance(error, CaptureError) else "what FUNCTION returns: lowtide fit --help"
        return refuse(INVALID_INPUT, kind, f"{kind}: {error}", advice, as_json=as_json)
    text = json.dumps({"ok": True, **report.to_dict()}) if as_json else str(report)
    return answer(text, DONE if report.fits else INFEASIBLE)


def main() -> None:
    """The program."""
    leave(run)


if __name__ == "__main__":
    main()
