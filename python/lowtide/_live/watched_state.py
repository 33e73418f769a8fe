"""What an optimizer whose step is deferred shows to live Python: whoever looks at it has the step made first."""

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


class WatchedGroups(list[Any]):
    """The same for `optimizer.param_groups`, in which rules that are not PyTorch's own may count."""

    def __init__(self, optimizer: torch.optim.Optimizer, before_use: Callable[[], None]) -> None:
        super().__init__()
        self._optimizer = optimizer
        self._before_use = before_use


def _forward(cls: type, attribute: str, names: str) -> None:
    def forwarded(name: str) -> Callable[..., Any]:
        def use(self: Any, *args: Any, **kwargs: Any) -> Any:
            self._before_use()
            return getattr(getattr(self._optimizer, attribute), name)(*args, **kwargs)

        use.__name__ = name
        return use

    for name in names.split():
        setattr(cls, name, forwarded(name))


_forward(
    WatchedState,
    "state",
    "__contains__ __delitem__ __eq__ __getitem__ __iter__ __len__ __ne__ __or__ __reduce__ __repr__ __reversed__ "
    "__setitem__ clear copy get items keys pop popitem setdefault update values",
)
_forward(
    WatchedGroups,
    "param_groups",
    "__add__ __contains__ __delitem__ __eq__ __getitem__ __iadd__ __iter__ __len__ __mul__ __ne__ __reduce__ __repr__ "
    "__reversed__ __setitem__ append clear copy count extend index insert pop remove reverse sort",
)
