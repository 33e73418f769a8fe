"""What the user wishes to be kept or made again, said in the step function or of its modules.

Eager runs take no notice. A capture does: what is kept is never made again, whatever the budget; a module that is to be
recomputed is a region of the step, whose inner results are dropped and made again for the backward pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

    Module = TypeVar("Module", bound=torch.nn.Module)

T = TypeVar("T")

_MARK = "_lowtide_recompute"  # an attribute, so that copies of the module have it, and guards see it


class _Capture(threading.local):
    """What a capture on this thread does with what is to be kept."""

    keep: Callable[[Any], None] | None = None


capture = _Capture()


def keep(value: T) -> T:
    """Gives `value`, a tensor or a structure of them, back as it is, and asks plans to keep its content.

    In a step that `lowtide.compile` plans, it is then never dropped and made again, whatever the budget.

    >>> scores = lowtide.keep(attention(x))  # doctest: +SKIP
    """
    if capture.keep is not None:
        capture.keep(value)
    return value


def recompute(module: Module) -> Module:
    """Marks `module`, and gives it back: in a planned step, what its calls make inside is made again.

    That is what `torch.utils.checkpoint` does in eager mode. What the calls return stays, unless a budget asks for
    more. Where a budget is kept only by a plan without the mark, that plan is taken. Of modules inside one another, the
    outermost one counts. Eager runs do not change.

    >>> model.layers = nn.ModuleList(lowtide.recompute(layer) for layer in model.layers)  # doctest: +SKIP
    """
    import torch

    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"lowtide.recompute takes a torch.nn.Module, not a {type(module).__qualname__}")
    setattr(module, _MARK, True)
    return module


def is_recomputed(module: torch.nn.Module) -> bool:
    """Whether the module is marked."""
    return _MARK in module.__dict__
