"""The doors of the package: planned work behind them, or eager code with the reason where nothing can be planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from .versions import why_unusable

_ASK_FIRST = ("adapt", "replay")  # at the call; a compiled step asks at its own first call


def planned_or_eager(name: str, planned: str, eager: str) -> Any:
    """What `lowtide.<name>` is: that of module `planned`, or `eager` (module:name) where nothing can be planned."""
    reason = why_unusable() or _why_not_loaded(planned, "runtime", "cuda", *(["adapt"] if "adapt" in planned else []))
    module, _, other = eager.partition(":")
    instead = getattr(import_module(module, __package__), other)
    if reason:
        return instead if isinstance(instead, type) else partial(instead, reason)
    found = getattr(import_module(planned, __package__), name)
    if name not in _ASK_FIRST:
        return found
    from ._trust.verdict import tried

    return tried(found, instead, _compile)


def torch_backend(
    graph: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """`torch.compile(..., backend="lowtide")`, or the graph as it is where nothing can be planned."""
    reason = why_unusable() or _why_not_loaded("._backend.entry", "runtime", "cuda", "backend")
    if not reason:
        from ._backend.entry import lowtide
        from ._trust.verdict import device_of, why_untrusted

        reason = why_untrusted(device_of(graph), _compile)
    if not reason:
        return lowtide(graph, example_inputs, options=options, mode=mode)
    from ._base.fallback import Fallback

    given = options or {}
    budgets = [name for name in ("memory_budget",) if given.get(name) is not None]
    fallback = Fallback("a graph of torch.compile", given.get("on_unsupported"), budgets)
    if fallback.refuses:
        raise fallback.refusal(reason)
    fallback.say(f": {reason}")
    eager: Callable[..., Any] = graph.forward
    return eager


def _why_not_loaded(module: str, *users: str) -> str:
    """Why a module of ours does not work with the PyTorch that is here; it is loaded otherwise."""
    from ._trust.internals import why_unknown

    reason = why_unknown(*users)
    if not reason:
        try:
            import_module(module, __package__)
        except Exception as error:
            return f"lowtide{module} is not loaded, {type(error).__name__}: {error}"
    return reason


def _compile(*args: Any, **options: Any) -> Any:
    """`lowtide.compile`, loaded when a trial step is to be planned."""
    from ._compile.compile import compile

    return compile(*args, **options)
