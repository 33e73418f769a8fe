"""Arguments of a call as they are now, for calls to come: of lists and dictionaries there are copies by then.

What the arguments lead to is not held: lists grow, and what they then hold leads to the graph that leads here, a circle
nobody could free.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .content import Content
from .reach import DRAWN_FROM, item_of

_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size, slice})

Made = dict[int, Any]  # what a call has got so far, by the id of the description


class _Tensor:
    def __init__(self, content: Content) -> None:
        self.content = content

    def make(self, made: Made) -> Any:
        if id(self) not in made:
            made[id(self)] = self.content.fresh()
        return made[id(self)]


class _Same:
    """A tensor of another kind, which stands for itself as long as nobody writes to it."""

    def __init__(self, tensor: torch.Tensor, content: Content) -> None:
        self.tensor = tensor
        self.content = content

    def make(self, made: Made) -> Any:
        return self.content.fresh() if self.content.was_written() else self.tensor


class _Tuple:
    def __init__(self, kind: type, items: list[Any]) -> None:
        self.kind = kind
        self.items = items

    def make(self, made: Made) -> Any:
        items = [_make(item, made) for item in self.items]
        return tuple(items) if self.kind is tuple else self.kind._make(items)  # type: ignore[attr-defined]


class _Container:
    """A list, a set or a queue; a dictionary is a list of entries to begin with."""

    def __init__(self, empty: Callable[[], Any], fill: Callable[[Any, list[Any]], object]) -> None:
        self.empty = empty
        self.fill = fill
        self.items: list[Any] = []

    def make(self, made: Made) -> Any:
        if id(self) not in made:
            made[id(self)] = self.empty()
            self.fill(made[id(self)], [_make(item, made) for item in self.items])
        return made[id(self)]


def _make(item: Any, made: Made) -> Any:
    return item.make(made) if isinstance(item, (_Tensor, _Same, _Tuple, _Container)) else item


def _empty_like(value: Any) -> Callable[[], Any]:
    kind = type(value)
    if kind is deque:
        longest = value.maxlen
        return lambda: deque(maxlen=longest)
    if kind is defaultdict:
        default = value.default_factory
        return lambda: defaultdict(default)
    return kind


_FILL: dict[type, Callable[[Any, list[Any]], object]] = {
    list: list.extend,
    set: set.update,
    deque: deque.extend,
    dict: dict.update,
    OrderedDict: OrderedDict.update,
    defaultdict: defaultdict.update,
}


class Given:
    """The arguments of one call. `keep` says how the content of a tensor is kept.

    `others` are objects in them that calls to come get as they are. Why they cannot be given again is in `once`.
    """

    def __init__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], keep: Callable[[str, torch.Tensor], Content]
    ) -> None:
        self._keep = keep
        self._known: dict[int, Any] = {}
        self.contents: dict[str, Content] = {}
        self.others: list[object] = []
        self.once: list[str] = []
        self.devices: set[torch.device] = set()
        self._args = [self._described(value, f"argument {i}") for i, value in enumerate(args)]
        self._kwargs = {name: self._described(value, f"argument {name}") for name, value in kwargs.items()}
        self._known = {}

    def again(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same arguments once more."""
        made: Made = {}
        args = tuple([_make(value, made) for value in self._args])
        return args, {name: _make(value, made) for name, value in self._kwargs.items()}

    def written(self) -> Iterator[str]:
        """Names of tensors that somebody has written to since."""
        return (name for name, content in self.contents.items() if content.was_written())

    def _described(self, value: Any, name: str) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if id(value) in self._known:
            return self._known[id(value)]
        if kind is torch.Tensor:
            content = self.contents[name] = self._keep(name, value)
            self.devices.add(value.device)
            self._known[id(value)] = _Tensor(content)
        elif kind in _FILL:
            container = self._known[id(value)] = _Container(_empty_like(value), _FILL[kind])
            if isinstance(value, dict):
                container.items = [self._entry(key, item, name) for key, item in value.items()]
            else:
                container.items = [self._described(item, f"{name}[{i}]") for i, item in enumerate(value)]
        elif kind is tuple or (isinstance(value, tuple) and hasattr(kind, "_make")):
            return _Tuple(kind, [self._described(item, f"{name}[{i}]") for i, item in enumerate(value)])
        else:
            self._known[id(value)] = value
            if isinstance(value, torch.Tensor):
                content = self.contents[name] = Content(value, share=False)
                self._known[id(value)] = _Same(value, content)
            elif hasattr(kind, "__next__"):
                self.once.append(DRAWN_FROM.format(name))
            else:
                self.others.append(value)
        return self._known[id(value)]

    def _entry(self, key: Any, value: Any, name: str) -> _Tuple:
        return _Tuple(tuple, [self._described(key, name), self._described(value, item_of(name, key))])
