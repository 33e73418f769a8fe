"""The memory budget of a compiled step: what of it is left for a plan, and what is said about it."""

from __future__ import annotations

from collections.abc import Iterator

from .. import _core
from .._step.beside import Beside, eager_bytes

SCALAR_BYTES = 64 * 1024  # bytes: no step has more scalars outside its plan
_SUSPICIOUS = 1 << 20  # bytes: hardly any model that is worth a budget has so few


class MemoryBudget:
    """Bytes, a share of what eager needs, or nothing, as `read_memory_budget` gives them.

    Eager needs for a call what the largest of its programs needs: a share is of that, for those that come after it too.
    """

    def __init__(self, asked: int | float | None) -> None:
        self._asked = asked
        self._whole = 0  # what eager needs for the largest program of a call so far

    def begin_call(self) -> None:
        """Programs of another call come next."""
        self._whole = 0

    def __bool__(self) -> bool:
        return self._asked is not None

    def bytes_for(self, graph: _core.Graph, beside: Beside) -> int:
        """The budget of a step with this graph."""
        if isinstance(self._asked, float):
            self._whole = max(self._whole, eager_bytes(graph, beside))
            return int(self._asked * self._whole)
        return self._asked or 0

    def left_for_plan(self, graph: _core.Graph, beside: Beside) -> int | None:
        """What resident bytes and arena of its plan may take."""
        if self._asked is None:
            return None
        return max(0, self.bytes_for(graph, beside) - beside.total - self.reserved_for(beside) - self._scalars())

    def exceeded_by(self, held: int, graph: _core.Graph, beside: Beside) -> int:
        """How many of these bytes are too many."""
        budget = self.bytes_for(graph, beside)
        return held - budget if self and held > budget + SCALAR_BYTES - self._scalars() else 0

    def reserved_for(self, beside: Beside) -> int:
        """What counts of bytes that are reserved and not allocated: all of them, or none in a share."""
        return beside.reserved if self.is_of_bytes else 0

    @property
    def is_of_bytes(self) -> bool:
        """Whether it is a number of bytes: then it is over all that the device's allocator has."""
        return isinstance(self._asked, int)

    def _scalars(self) -> int:
        """What is set aside for scalars; a share is of an estimate, which has none."""
        return SCALAR_BYTES if self.is_of_bytes else 0

    def explain(self, graph: _core.Graph, beside: Beside) -> Iterator[str]:
        """For who finds it too small: what it is of, and what is set aside."""
        amount = _core.format_bytes
        if isinstance(self._asked, float):
            whole = amount(max(self._whole, eager_bytes(graph, beside)))
            yield f"the memory budget is {100 * self._asked:g} % of the {whole} that eager needs"
        elif self._asked is not None and self._asked < _SUSPICIOUS:
            yield f'an int is bytes: did you mean "{self._asked}MiB"?'
        aside = {
            "scalars outside the plan": self._scalars(),
            "tensors of the model and its optimizers that no operator of the step touches": beside.resident,
            "what the optimizer's own step allocates": beside.update,
            "what PyTorch's allocator has on the device beside the step": self.reserved_for(beside),
        }
        for what, size in aside.items():
            if size:
                yield f"{amount(size)} of the memory budget are set aside for {what}"

    def summary(self, eager: str, budget: str) -> str:
        """What it is, and of what, given these amounts in words; nothing if there is none."""
        if isinstance(self._asked, float):
            return f", budget {100 * self._asked:g} % of eager's {eager} = {budget}"
        return f", budget {budget}" if self else ""
