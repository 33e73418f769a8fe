"""Blocks that are dropped: their first runs, and which are kept from now on because a second run would differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .batch import Batch
from .forward import Forward
from .second_runs import SecondRuns

_WRITTEN_AFTER = "written to after it has run, and a second run would find something else"
_WRITTEN_WITHIN = "written to as it runs, and a second run would find something else"
_DIFFERS = "its second run saves other numbers than its first"
_CONSEQUENCE = "; gradients of this batch may not be those of plain training"


class Drops:
    """Runs blocks so that what they save is dropped.

    `leave_out` is told of blocks that are to be kept from now on, and `warn` why one is kept.
    """

    def __init__(self, leave_out: Callable[[Forward], bool], warn: Callable[[str], None]) -> None:
        self._leave_out = leave_out
        self._warn = warn
        self._watched: set[tuple[Forward, bool]] = set()  # blocks that were seen running, in training or not
        self._moving: dict[Forward, set[str]] = {}  # what blocks only read, but ask for memory to write to

    def prepare(self, forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SecondRuns | None:
        """What a dropped call needs, or None if it is to be kept nevertheless."""
        try:
            again = SecondRuns(
                forward,
                args,
                kwargs,
                unshared=self._moving.get(forward, ()),
                watch=(forward, forward.module.training) not in self._watched,
                later=lambda written: self._keep(forward, f"{_named(written)} {_WRITTEN_AFTER}"),
                differs=lambda: self._keep(forward, f"{_DIFFERS}{_CONSEQUENCE}", in_any_case=True),
            )
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            self._say(forward, f"{type(error).__qualname__}: {error}")
            return None
        if again.once:
            self._say(forward, again.once[0])
            return None
        return again

    def run(
        self, batch: Batch | None, block: int, forward: Forward, again: SecondRuns, given: list[torch.Tensor]
    ) -> Any:
        """The first run of a dropped call, which is given these tensors."""
        if batch is None or batch.collector is None:
            result = again.run()
        else:
            result = batch.collector.run_dropped(block, lambda first, second: again.around(second).run(first), given)
        self._watched.add((forward, forward.module.training))
        try:
            self._look(batch, forward, again)
        except Exception as error:
            self._keep(forward, f"{type(error).__qualname__}: {error}")
        return result

    def _look(self, batch: Batch | None, forward: Forward, again: SecondRuns) -> None:
        seen = again.look()
        if seen.moved:
            self._moving.setdefault(forward, set()).update(seen.moved)
        if batch is not None:
            batch.drops += 1
            batch.watched = batch.watched or seen.copied
        if seen.written:
            self._keep(forward, f"{_named(seen.written)} {_WRITTEN_WITHIN}{_CONSEQUENCE if seen.lost else ''}")

    def _keep(self, forward: Forward, why: str, *, in_any_case: bool = False) -> None:
        if self._leave_out(forward) or in_any_case:
            self._say(forward, why)

    def _say(self, forward: Forward, why: str) -> None:
        self._warn(f"lowtide.adapt keeps {type(forward.module).__qualname__}: {why}")


def _named(names: list[str]) -> str:
    """A few of them, as the subject of a sentence."""
    few = ", ".join(names[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{few}{more} {'is' if len(names) == 1 else 'are'}"
