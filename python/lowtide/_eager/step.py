"""A compiled step that is never planned."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from .._base.fallback import Fallback
from .._compile.stats import Stats


class EagerStep:
    """Calls the function itself, and says why; with a budget it refuses to, unless the user allowed it."""

    plan = None
    graph = None

    def __init__(self, function: Callable[..., Any], reason: str, options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._reason = reason
        budgets = [name for name in ("memory_budget", "latency_budget") if options.get(name) is not None]
        name = str(getattr(function, "__qualname__", None) or repr(function))
        self._fallback = Fallback(name, options.get("on_unsupported"), budgets)
        self._eager_calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One step; gives what the function gives."""
        if self._fallback.refuses:
            raise self._fallback.refusal(self._reason)
        self._eager_calls += 1
        self._fallback.say(f": {self._reason}")
        return self._function(*args, **kwargs)

    def stats(self) -> Stats:
        """Figures of the steps so far."""
        none: dict[str, Any] = dict.fromkeys(Stats.__annotations__, 0)
        return cast(Stats, {**none, "eager_calls": self._eager_calls, "escapes": []})

    def summary(self) -> str:
        """Why it runs eager."""
        return f"lowtide: {self._fallback.describe(f': {self._reason}')}; {self._eager_calls} eager calls"

    def explain_guards(self) -> str:
        """Why nothing is captured."""
        return f"runs eager: {self._reason}"

    @contextmanager
    def gather(self) -> Iterator[None]:
        """Nothing is put away."""
        yield

    def close(self) -> None:
        """Has nothing to give back."""


def compile(reason: str, function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`lowtide.compile` where nothing can be planned for this reason."""
    if function is None:
        return functools.partial(compile, reason, **options)
    return EagerStep(function, reason, options)
