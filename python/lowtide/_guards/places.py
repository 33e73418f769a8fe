"""Places: where Python keeps what a function can see: a dictionary, a list, a closure cell, an attribute.

A place can be looked into (`content`), watched for another object in it (`watch`), and put back (`restore`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, MutableSet
from typing import Any, NamedTuple

from .. import _core
from .guards import plain_key

Content = list[tuple[Any, Any]]  # keys and the objects there


class Path(NamedTuple):
    """How a message names a place: an expression, and whose `self` it begins with."""

    text: str
    of: str = ""

    def attribute(self, name: str) -> Path:
        """The path of an attribute."""
        return Path(f"{self.text}.{name}", self.of)

    def item(self, key: Any) -> Path:
        """The path of what stands at `key` in a container."""
        return Path(f"{self.text}[{key!r}]" if isinstance(key, (str, int)) else f"{self.text}[...]", self.of)

    def __str__(self) -> str:
        return f"`{self.text}`{self.of}"


class Place:
    """One place. `owned` says what is special about its content, if anything is."""

    def __init__(self, path: Path, target: Any, owned: str = "") -> None:
        self.path = path
        self.target = target
        self.owned = owned

    def content(self) -> Content:
        """What is there now."""
        raise NotImplementedError

    def watch(self, watch: _core.Watch) -> int:
        """Tells `watch` of this place; gives its index there."""
        raise NotImplementedError

    def restore(self, content: Content) -> None:
        """Puts back exactly the objects that were there."""
        raise NotImplementedError

    def same(self, old: Content, new: Content) -> bool:
        """Whether two contents are the same objects at the same keys."""
        return len(old) == len(new) and all(
            (a is c or (type(a) is type(c) and type(a) in (str, int) and a == c)) and b is d
            for (a, b), (c, d) in zip(old, new, strict=True)
        )

    def name(self, key: Any) -> str:
        """What stands at `key`, for a message."""
        return str(self.path)

    @property
    def kind(self) -> Any:
        """What must be the same besides the content."""
        return None


class Mapping(Place):
    """All entries of a dictionary. With an `owner` they are its attributes."""

    def __init__(self, path: Path, target: dict[Any, Any], owned: str = "", owner: object = None) -> None:
        super().__init__(path, target, owned)
        self.owner = owner

    def content(self) -> Content:
        """Entries in order."""
        return list(dict.items(self.target))

    def watch(self, watch: _core.Watch) -> int:
        """By entries and by the class of the owner."""
        return watch.add_mapping(self.target, self.owner)

    def restore(self, content: Content) -> None:
        """Also the order, where keys have come or gone."""
        base: Any = OrderedDict if isinstance(self.target, OrderedDict) else dict
        if [id(key) for key in self.target] != [id(key) for key, _ in content]:
            base.clear(self.target)
        for key, value in content:
            base.__setitem__(self.target, key, value)

    def name(self, key: Any) -> str:
        """`self.count` of an object, `table['n']` of a dictionary."""
        return str(self.path.attribute(key) if self.owner is not None else self.path.item(key))

    @property
    def kind(self) -> Any:
        """The owner's class."""
        return None if self.owner is None else type(self.owner)


class Entry(Place):
    """One entry of a dictionary or a class: a global variable, an attribute that the function names."""

    def __init__(self, path: Path, target: dict[str, Any] | type, key: str) -> None:
        super().__init__(path, target)
        self.key = key

    def content(self) -> Content:
        """Empty if there is no such entry."""
        table = vars(self.target) if isinstance(self.target, type) else self.target
        return [(self.key, table[self.key])] if self.key in table else []

    def watch(self, watch: _core.Watch) -> int:
        """By the entry alone."""
        return watch.add_entry(self.target, self.key)

    def restore(self, content: Content) -> None:
        """Deletes what was not there."""
        if isinstance(self.target, type):
            if content:
                setattr(self.target, self.key, content[0][1])
            else:
                delattr(self.target, self.key)
        elif content:
            self.target[self.key] = content[0][1]
        else:
            self.target.pop(self.key, None)


class Variable(Entry):
    """A global variable."""

    def name(self, key: Any) -> str:
        """The variable."""
        return f"the variable {self.path}"


class Sequence(Place):
    """A list."""

    def content(self) -> Content:
        """By index."""
        return list(enumerate(list.__iter__(self.target)))

    def watch(self, watch: _core.Watch) -> int:
        """By items."""
        return watch.add_sequence(self.target)

    def restore(self, content: Content) -> None:
        """In place."""
        list.__setitem__(self.target, slice(None), [value for _, value in content])


class Collection(Place):
    """A set or a deque."""

    def content(self) -> Content:
        """In the order of iteration."""
        return list(enumerate(self.target))

    def watch(self, watch: _core.Watch) -> int:
        """By items."""
        return watch.add_iterable(self.target)

    def restore(self, content: Content) -> None:
        """In place; a frozen set never needs it."""
        assert isinstance(self.target, (MutableSet, deque))
        self.target.clear()
        for _, value in content:
            if isinstance(self.target, deque):
                self.target.append(value)
            else:
                self.target.add(value)


class Cell(Place):
    """A variable of an enclosing function."""

    def content(self) -> Content:
        """Empty if it has no value yet."""
        try:
            return [("", self.target.cell_contents)]
        except ValueError:
            return []

    def watch(self, watch: _core.Watch) -> int:
        """By its object."""
        return watch.add_cell(self.target)

    def restore(self, content: Content) -> None:
        """Also to having no value."""
        if content:
            self.target.cell_contents = content[0][1]
        else:
            del self.target.cell_contents

    def name(self, key: Any) -> str:
        """The variable."""
        return f"the variable {self.path}"


class Function(Place):
    """What a function consists of that can be replaced."""

    def content(self) -> Content:
        """Code and default arguments."""
        return [(key, getattr(self.target, key)) for key in ("__code__", "__defaults__", "__kwdefaults__")]

    def watch(self, watch: _core.Watch) -> int:
        """By those three."""
        return watch.add_function(self.target)

    def restore(self, content: Content) -> None:
        """Sets all three."""
        for key, value in content:
            setattr(self.target, key, value)

    def name(self, key: Any) -> str:
        """One of the three."""
        return str(self.path.attribute(key))


class Attribute(Place):
    """An attribute behind a descriptor made in C: a slot, or a tensor's hooks."""

    def __init__(self, path: Path, target: Any, descriptor: Any, field: int | None = None) -> None:
        super().__init__(path, target)
        self.descriptor = descriptor
        self.field = field  # where the target keeps it in its own memory, if that is known

    def content(self) -> Content:
        """Empty if the slot is."""
        try:
            return [("", self.descriptor.__get__(self.target, type(self.target)))]
        except AttributeError:
            return []

    def watch(self, watch: _core.Watch) -> int:
        """By what the descriptor gives, or by the field itself."""
        if self.field is not None:
            return watch.add_field(self.target, self.field)
        return watch.add_attribute(self.target, self.descriptor)

    def restore(self, content: Content) -> None:
        """Through the descriptor."""
        if content:
            self.descriptor.__set__(self.target, content[0][1])
        else:
            self.descriptor.__delete__(self.target)


class Property(Attribute):
    """A property of an object whose code is not read; seen while it gives something plain."""

    def content(self) -> Content:
        """Empty for anything that is not plain, and where it raises."""
        try:
            value = self.descriptor.__get__(self.target)
        except Exception:
            return []
        return [("", value)] if plain_key(value) is not None else []

    def same(self, old: Content, new: Content) -> bool:
        """By value: every look makes new objects."""
        return [plain_key(value) for _, value in old] == [plain_key(value) for _, value in new]

    def restore(self, content: Content) -> None:
        """Nothing: what it shows is put back where it is kept, if at all."""


class RandomState(Place):
    """The state of a generator of random numbers; never watched, only put back."""

    def __init__(self, path: Path, target: Any, read: Callable[[], Any], write: Callable[[Any], None]) -> None:
        super().__init__(path, target)
        self.read = read
        self.write = write

    def content(self) -> Content:
        """As text: states are nested tables of numbers."""
        state = self.read()
        return [(repr(state), state)]

    def same(self, old: Content, new: Content) -> bool:
        """By text: every look makes new objects."""
        return bool(old[0][0] == new[0][0])

    def restore(self, content: Content) -> None:
        """Sets the state."""
        self.write(content[0][1])

    def name(self, key: Any) -> str:
        """The generator."""
        return f"the random state of {self.path}"
