"""What an update rule reaches in Python besides its groups and its state, and what it changes there.

A rule runs more often than the user asked for (the probe, the proof, templates) and on fewer parameters (the twins). It
may read whatever it likes, because its own code runs at every step. It may change its own attributes and the lists and
dictionaries in them, which are put back. Whatever else it changes would be changed too often or too seldom, and what it
knows about single parameters by identity (a table of ids, a list of its own) does not know the twins.

    reach = RuleReach(optimizer)      # NotExpressible if a twin cannot stand in for its parameters
    with reach.kept():                # NotExpressible, and everything put back, if the rule changes what is not its own
        rule()
"""

from __future__ import annotations

import io
import logging
import random
import re
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .. import _core
from .._base.python_random import PythonRandom
from .._guards import places
from .._guards.places import Content, Path, Place
from .._guards.walk import MAX_PLACES, Walk
from .ledger import NotExpressible
from .snapshot import containers_of

_ANY = "*"  # among the names of a walk: some code makes up names of attributes as it runs
_WITHOUT_STATE = (
    types.BuiltinFunctionType, types.MethodWrapperType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.ClassMethodDescriptorType, types.GenericAlias,
    types.UnionType, re.Pattern, logging.Logger, logging.Handler, io.IOBase, torch.Generator, object,
)  # fmt: skip
_MODULES_WITHOUT_STATE = frozenset(
    {"typing", "typing_extensions", "abc", "pathlib", "datetime", "decimal", "fractions", "enum", "_thread", "operator",
     "inspect", "string", "uuid", "dataclasses", "__future__"}
)  # fmt: skip
_NOT_READ = ("param_groups", "state", "step", "defaults")


class RuleReach:
    """The places in Python that an optimizer's own code can reach, as they were when last looked at."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._name = type(optimizer).__name__
        self._look()

    def changed(self) -> bool:
        """Whether someone has changed what the rule reaches; numbers on the optimizer and in its groups aside."""
        if self._watch.same() and self._own_contents() == self._seen:
            return False
        self._look()
        return True

    def settle(self) -> None:
        """Takes the present contents as known, after a step that has changed its own."""
        for index in self._watch.changed():
            self._contents[index] = self._places[index].content()
            self._watch.renew(index)
        self._seen = self._own_contents()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Puts back what the rule changes beyond its own attributes, and refuses it."""
        changed: list[int] = []
        drawn: str | None = None
        numbers = PythonRandom()
        try:
            yield
        finally:
            drawn = numbers.drawn_from()
            if drawn is not None:
                numbers.restore()
            changed = [index for index in self._watch.changed() if not self._is_own[index]]
            for index in changed:
                self._places[index].restore(self._contents[index])
                self._watch.renew(index)
        if drawn is not None:
            raise NotExpressible(f"{self._name}.step() draws random numbers from Python or NumPy, with `{drawn}`")
        if changed:
            raise NotExpressible(f"{self._name}.step() changes {self._places[changed[0]].name('')}")

    def _look(self) -> None:
        walk = _RuleWalk(self._optimizer)
        walk.start_from_rule()
        if walk.foreign_optimizers:
            other = type(walk.foreign_optimizers[0]).__name__
            raise NotExpressible(f"{self._name}.step() can reach another optimizer, {other}, and its parameters")
        if walk.unwatched:
            path, kind = walk.unwatched[0]
            raise NotExpressible(f"{self._name}.step() can reach {path}, a {kind}, whose content cannot be watched")
        self._places: list[Place] = walk.places
        self._contents: list[Content] = [place.content() for place in walk.places]
        self._refuse_parameters(walk)
        own = {id(container) for container in containers_of(self._optimizer)}
        self._is_own = [id(place.target) in own for place in walk.places]
        self._watch = _core.Watch()
        for place in walk.places:
            place.watch(self._watch)
        self._seen = self._own_contents()

    def _refuse_parameters(self, walk: Walk) -> None:
        """A rule that knows parameters by other ways than its groups does not know their twins."""
        parameters = [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
        ids = set(map(id, parameters))
        for place, content in zip(self._places, self._contents, strict=True):
            for entry in content:
                if any(id(part) in ids or (type(part) is int and part in ids) for part in entry):
                    raise NotExpressible(f"{self._name}.step() can reach parameters past its groups, in {place.path}")
        if not ids.isdisjoint(walk.tensors):
            raise NotExpressible(f"{self._name}.step() can reach parameters past its groups")

    def _own_contents(self) -> list[Any]:
        """Attributes and group entries that are no numbers: objects by address, text and switches by value."""
        optimizer = self._optimizer
        seen: list[Any] = [type(optimizer), type(optimizer).step]
        tables = [vars(optimizer), *optimizer.param_groups]
        for table in tables:
            for key, value in table.items():
                if key not in ("param_groups", "state") and not _holds_numbers(value):
                    seen += (key, value if type(value) in (bool, str) else id(value))
        return seen


class _RuleWalk(Walk):
    """From the methods of an optimizer's class that are not PyTorch's to what they can reach."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(torch.nn.Module(), [optimizer], set(), everything=True)
        self.unwatched: list[tuple[Path, str]] = []  # and the class of each
        self._rule = optimizer

    def start_from_rule(self) -> None:
        """Walks the code first, then the attributes of the optimizer and of its parameters that the code names."""
        package = type(self._rule).__module__.partition(".")[0]
        self._user_package = package if package not in ("torch", "lowtide", "builtins") else ""
        for cls in type(self._rule).__mro__[:-1]:
            if not f"{cls.__module__}.".startswith("torch."):
                for name, value in list(vars(cls).items()):
                    if not name.startswith("__"):
                        self.places.append(places.Entry(Path(f"{cls.__name__}.{name}"), cls, name))
                    self._meet(_innermost(value), Path(f"{cls.__name__}.{name}"), 0, False)
        self._drain()
        known = -1
        while known != len(self.names):
            known = len(self.names)
            tables: list[tuple[Path, dict[str, Any]]] = [(Path("self"), vars(self._rule))]
            for index, group in enumerate(self._rule.param_groups):
                tables.append((Path(f"param_groups[{index}]"), group))
                for place, parameter in enumerate(group["params"]):
                    if vars(parameter):
                        tables.append((Path(f"param_groups[{index}]['params'][{place}]"), vars(parameter)))
            for path, table in tables:
                for name, value in list(table.items()):
                    read = path.text != "self" or name in self.names or _ANY in self.names
                    if read and name not in (*_NOT_READ, "params", "param_names") and not name.endswith("_hooks"):
                        self._meet(value, path.attribute(name), 1, True)
            self._drain()

    def _drain(self) -> None:
        while self._pending:
            value, path, depth, whole = self._pending.popleft()
            if len(self.places) >= MAX_PLACES:
                self.unwatched.append((path, type(value).__qualname__))
                return
            self._visit(value, path, depth, whole)

    def _instance(self, value: Any, path: Path, depth: int, whole: bool) -> None:
        kind = type(value)
        if kind.__module__ == "torch._ops" or kind.__module__.startswith("torch._C"):
            return
        if _has_hidden_state(value) or (not self._is_users_class(kind) and self._stands_for_itself(value)):
            if not _is_without_state(value):
                self.unwatched.append((path, kind.__qualname__))
            return
        super()._instance(value, path, depth, whole)


def _holds_numbers(value: Any) -> bool:
    """Learning rates and the like, which schedules change at every step."""
    return type(value) in (int, float) or (type(value) is tuple and all(map(_holds_numbers, value)))


def _innermost(value: Any) -> Any:
    """The function behind PyTorch's own decorators, of which there is one around every step."""
    while isinstance(value, types.FunctionType) and hasattr(value, "__wrapped__"):
        if not str(value.__globals__.get("__name__")).startswith("torch."):
            break
        value = value.__wrapped__
    return value


def _has_hidden_state(value: Any) -> bool:
    """Iterators, and generators of random numbers: to use them is to change them."""
    kind = type(value)
    iterates = hasattr(kind, "__next__") and not isinstance(value, io.IOBase)
    return iterates or isinstance(value, random.Random) or kind.__module__.startswith("numpy.random")


def _is_without_state(value: Any) -> bool:
    kind = type(value)
    if _has_hidden_state(value):
        return False
    if kind.__module__ == "numpy":
        return kind.__name__ in ("ufunc", "dtype", "finfo", "iinfo")
    return (
        kind in _WITHOUT_STATE
        or isinstance(value, _WITHOUT_STATE[:-1])
        or hasattr(kind, "__enter__")
        or kind.__module__.partition(".")[0] in _MODULES_WITHOUT_STATE
    )
