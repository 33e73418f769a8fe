"""What a rule still holds of the parameter before: variables of its loop outlive what they are used for.

    for parameter in parameters:
        denominator = square.sqrt().add_(epsilon)      # the one before is let go when this one is there
        parameter.addcdiv_(average, denominator)

A recorded update has one parameter and does not show it. So the rule is run on two, of one element each.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode

from .._base.random_states import read_random_states, set_random_states
from .._capture.recorder import ITEM
from .ledger import facts_of
from .snapshot import Snapshot, run_rule


def held_over(before: Snapshot, group: dict[str, Any], twin: Parameter) -> tuple[list[Any], dict[int, int]]:
    """The calls of one parameter's update; and by call, through which call of the next its result is still held.

    What is held no longer than its own parameter's update is left out, as is all of a rule that does not go from one
    parameter to the next, or does not run on two like this one.
    """
    pair = [Parameter(torch.zeros(twin.shape, dtype=twin.dtype, device=twin.device)) for _ in range(2)]
    for parameter in pair:
        parameter.grad = torch.zeros_like(parameter)
    clone = before.clone([{**group, "params": pair}], {})
    lives = _Lives()
    random_state = read_random_states()
    try:
        run_rule(clone)  # makes the state
        with lives:
            run_rule(clone)
    except Exception:  # whatever a rule does on zeros
        return [], {}
    finally:
        set_random_states(random_state)
    lives.look()
    calls, half = lives.calls, len(lives.calls) // 2
    if calls[:half] != calls[half:]:
        return [], {}
    ends = {call: lives.ends.get(index, len(calls)) - 1 - half for index, call in enumerate(lives.made) if call < half}
    return calls[:half], {call: through for call, through in ends.items() if through >= 0}


class _Lives(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every call, the memory that it makes, and before which call that is gone."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Any] = []
        self.made: list[int] = []  # the call that made it
        self.ends: dict[int, int] = {}  # by index into `made`
        self._storages: list[StorageWeakRef] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.look()
        out = func(*args, **(kwargs or {}))
        if func is ITEM or not facts_of(func).recorded:
            return out
        if isinstance(out, torch.Tensor) and not any(out is argument for argument in args):
            self.made.append(len(self.calls))
            self._storages.append(StorageWeakRef(out.untyped_storage()))  # type: ignore[no-untyped-call]
        self.calls.append(func)
        return out

    def look(self) -> None:
        """Notes what is gone by now."""
        for index, storage in enumerate(self._storages):
            if index not in self.ends and storage.expired():  # type: ignore[no-untyped-call]
                self.ends[index] = len(self.calls)
