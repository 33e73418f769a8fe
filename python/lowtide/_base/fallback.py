"""What becomes of calls that cannot be planned: they run eager and say so once, or they are refused.

Without a budget eager code is as good as planned code, only larger. With one it is not what was asked for: such calls
are refused, unless the user has said that they may run eager.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import CaptureError
from .decisions import decided
from .sources import warn_user


class Fallback:
    """`on_unsupported` as the user gave it; `budgets` names what was given of budgets, `instead` how calls run then."""

    def __init__(
        self, name: str, on_unsupported: str | None, budgets: Sequence[str], *, instead: str = "eager"
    ) -> None:
        self._name = name
        self._instead = instead
        self._allows = on_unsupported == "eager"
        self._told: set[str] = set()
        self.not_kept = f"{' and '.join(budgets)} {'are' if len(budgets) > 1 else 'is'} not kept" if budgets else ""
        self.refuses = on_unsupported == "raise" or (on_unsupported is None and bool(budgets))

    def refusal(self, reason: str) -> CaptureError:
        """What to raise for a call that is refused."""
        decided("run", "refused", function=self._name, reason=reason)
        if not self.not_kept:
            return CaptureError(reason)
        return CaptureError(f'{reason}; {self._instead}, {self.not_kept}: on_unsupported="eager" allows that')

    def say(self, reason: str) -> None:
        """Warns of a reason to run eager, if it is a new one."""
        if reason not in self._told:
            self._told.add(reason)
            decided("run", self._instead, function=self._name, reason=reason.removeprefix(": ").strip())
            warn_user(f"lowtide: {self.describe(reason)}")

    def describe(self, reason: str) -> str:
        """The same in words."""
        return f"{self._name} runs {self._instead}{reason}{f'; {self.not_kept}' if self.not_kept else ''}"
