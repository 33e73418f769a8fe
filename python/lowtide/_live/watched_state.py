"""The state of an optimizer whose step is deferred: whoever looks at it has the step made first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch


class WatchedState(defaultdict[Any, Any]):
    """Stands in for `optimizer.state`. After `before_use`, the real one is back in its place."""

    def __init__(self, optimizer: torch.optim.Optimizer, before_use: Callable[[], None]) -> None:
        super().__init__(dict)
        self._optimizer = optimizer
        self._before_use = before_use


def _forwarded(name: str) -> Callable[..., Any]:
    def use(self: WatchedState, *args: Any, **kwargs: Any) -> Any:
        self._before_use()
        return getattr(self._optimizer.state, name)(*args, **kwargs)

    use.__name__ = name
    return use


_USES = (
    "__contains__ __delitem__ __eq__ __getitem__ __iter__ __len__ __ne__ __or__ __reduce__ __repr__ __reversed__ "
    "__setitem__ clear copy get items keys pop popitem setdefault update values"
)
for _name in _USES.split():
    setattr(WatchedState, _name, _forwarded(_name))
