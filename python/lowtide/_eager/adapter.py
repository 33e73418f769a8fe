"""An adapter that leaves its model alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from .._adapt.report import History
from .._base.budgets import read_byte_budget
from .._base.fallback import Fallback
from ..errors import CaptureError

T = TypeVar("T")


class EagerAdapter:
    """The model trains as it is: no block is dropped, nothing is measured, and the budget is not kept."""

    def __init__(self, model: Any, memory_budget: int | str) -> None:
        self.model = model
        self.budget_bytes = read_byte_budget(memory_budget)
        self.blocks: dict[str, Any] = {}
        self.history = History()

    def run(self, step: Callable[[], T]) -> T:
        """Calls `step`, once."""
        return step()

    def preflight(self, batch: Any, *, loss: Callable[[Any], Any] | None = None) -> int:
        """Nothing is known of what the batch needs: 0 bytes."""
        return 0

    def begin(self, *batch: Any) -> None:
        """Nothing is planned for the batch."""

    def end(self) -> None:
        """Nothing was."""

    def stats(self) -> dict[str, float | int]:
        """Figures of no batches."""
        return self.history.stats()

    def plot(self, path: str | Path) -> None:
        """There is nothing to draw."""

    def close(self) -> None:
        """Has nothing to undo."""

    def __enter__(self) -> EagerAdapter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def adapt(reason: str, model: Any, *, memory_budget: int | str, enforce: bool = False, **_: Any) -> EagerAdapter:
    """`lowtide.adapt` where nothing can be planned for this reason. A budget that is to be enforced is refused."""
    if enforce:
        raise CaptureError(f"{reason}; memory_budget cannot be enforced")
    Fallback(type(model).__name__, "eager", ["memory_budget"]).say(f": {reason}")
    return EagerAdapter(model, memory_budget)
