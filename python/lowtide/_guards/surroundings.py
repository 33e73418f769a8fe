"""Surroundings: what a step function can see in Python besides its arguments.

A tape repeats tensor operations, not Python. Whatever Python told the function while it was captured (a number in a
closure, `dropout.p`, which hooks there are) holds only as long as it stays the same: `read` gives a key that says so.
Whatever the function changes in Python would not be changed again: `kept` puts it back and refuses.

What counts: closures, default arguments and the global variables that the code names, followed through functions,
containers and objects; every attribute, parameter, buffer and hook of every module. Code that is the user's is followed
by the names in it: of an object of a user's class only the attributes that the code names are seen. Attributes of
objects whose class is a library's are all seen, because its code is not read.

What does not count: optimizers that were passed (the twin follows them), unless the code names their `param_groups`;
loaders, iterators, loggers, files and random generators, which stand for themselves; what is inside arrays of more than
a megabyte; what a library keeps in its own variables, but for those that the code names.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import types
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .. import _core
from ..errors import CaptureError
from . import places
from .guards import plain_key
from .places import Content, Place
from .report import show
from .walk import MAX_DEPTH, Walk, refuse_type_questions


class Surroundings:
    """Everything in Python that the step function can see and that can change.

    surroundings = Surroundings(step, model, [optimizer])
    key = surroundings.read()  # microseconds while nothing changes; equal again when values come back
    with surroundings.kept():
        step(batch)
    """

    def __init__(
        self,
        function: Callable[..., Any],
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer] = (),
    ) -> None:
        self._function = function
        self._model = model
        self._optimizers = list(optimizers)
        self._names: set[str] = {"forward"}
        self._held: dict[int, Any] = {}  # everything that a key knows by its id
        self._place_numbers: dict[Hashable, int] = {}
        self._place_keys: list[Any] = []  # by number
        self._keys: dict[tuple[int, ...], int] = {}
        self._states: list[tuple[tuple[int, ...], list[Place]]] = []  # by key
        self._buffer_numbers: dict[int, int] = {}
        self._watch: _core.Watch | None = None
        self.looks = 0  # how often something was seen to have changed
        self._key = -1
        self._walk_now()

    # -- the guard -----------------------------------------------------------------------------------------------------

    def read(self) -> Hashable:
        """A key that is equal at two calls if nothing that the function sees is different."""
        if self._watch is None or not self._watch.same():
            self._look_again()
        return self._key

    @property
    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """The model's parameters by name, as of the last `read`."""
        return self._parameters

    @property
    def names(self) -> dict[int, str]:
        """The name of each of the model's tensors and modules and of each optimizer by id, as of the last `read`."""
        return self._own_names

    @property
    def foreign_optimizers(self) -> list[torch.optim.Optimizer]:
        """Optimizers that the function can see and that were not passed."""
        return list(self._walk.foreign_optimizers)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Every tensor that the function can see, as of the last `read`."""
        return list(self._walk.tensors.values())

    @property
    def closed(self) -> list[Any]:
        """Objects that the function can see and that stand for themselves: what is in them is not watched."""
        return list(self._walk.closed)

    def refuse_type_questions(self) -> None:
        """Raises `CaptureError` if code that the function can see asks whether a class is that of tensors."""
        refuse_type_questions(self._walk)

    def explains(self, tensor: torch.Tensor) -> bool:
        """Whether `tensor` was found in a watched place: another one in its stead would change the key."""
        if id(tensor) in self._walk.tensors:
            return True
        if tensor.layout is not torch.strided:
            return False
        storage = tensor.untyped_storage()._cdata  # `.data` and the like
        return any(
            known.layout is torch.strided and known.untyped_storage()._cdata == storage
            for known in self._walk.tensors.values()
        )

    def differences(self, old: Hashable, new: Hashable) -> list[str]:
        """In words, the first places where two keys differ: "`self.p` of dropout: 0.1 -> 0.2"."""
        if old == new or not isinstance(old, int) or not isinstance(new, int):
            return []
        (old_numbers, old_places), (new_numbers, new_places) = self._states[old], self._states[new]
        said: list[str] = []
        for index, (a, b) in enumerate(zip(old_numbers, new_numbers, strict=False)):
            if a == b:
                continue
            place = new_places[index]
            if str(old_places[index].path) == str(place.path):
                said.append(_entry_difference(place, self._place_keys[a][1], self._place_keys[b][1]))
            if len(said) == 3:
                break
        return said or ["other objects than before"]

    def snapshot(self) -> list[tuple[Place, Content]]:
        """What is in each watched place, as of the last `read`."""
        return list(zip(self._walk.places, self._contents, strict=True))

    @staticmethod
    def restore(snapshot: Sequence[tuple[Place, Content]]) -> None:
        """Puts back what a snapshot has."""
        for place, content in snapshot:
            if not place.same(content, place.content()):
                place.restore(content)

    def close(self) -> None:
        """Lets go of everything; keys given before mean nothing afterwards."""
        self._watch = None
        self._held.clear()
        self._place_numbers.clear()
        self._place_keys.clear()
        self._keys.clear()
        self._states.clear()
        self._key = -1

    def _look_again(self) -> None:
        self.looks += 1
        if self._watch is None or not self._update_values(self._watch):
            self._walk_now()

    def _update_values(self, watch: _core.Watch) -> bool:
        """Takes in changes of plain values only; False if anything else has changed."""
        renewed: dict[int, Content] = {}
        buffers: list[tuple[Any, Any]] = []  # those replaced
        for index in watch.changed():
            place = self._walk.places[index]
            old, new = self._contents[index], place.content()
            if len(old) != len(new) or place.kind is not self._kinds[index]:
                return False
            for (old_key, old_value), (new_key, new_value) in zip(old, new, strict=True):
                if old_key is not new_key and (plain_key(old_key) is None or plain_key(old_key) != plain_key(new_key)):
                    return False
                if old_value is new_value:
                    continue
                if place.owned == "buffers":
                    buffers.append((old_value, new_value))
                elif plain_key(old_value) is None or plain_key(new_value) is None:
                    return False
            renewed[index] = new
        for index, content in renewed.items():
            self._contents[index] = content
            watch.renew(index)
        if buffers:  # which of them are one and the same is told by numbers that run through all of them
            self._buffer_numbers = {}
            renewed.update((i, self._contents[i]) for i, p in enumerate(self._walk.places) if p.owned == "buffers")
            self._rename_tensors(buffers)
        numbers = list(self._numbers)
        for index in renewed:
            numbers[index] = self._place_number(index)
        self._set_numbers(tuple(numbers))
        return True

    def _walk_now(self) -> None:
        while True:  # until no code brings up a name that was not known
            count = len(self._names)
            walk = Walk(self._model, self._optimizers, self._names, everything=False)
            walk.start(self._function)
            if len(self._names) == count:
                break
        self._walk = walk
        self._watch = _core.Watch()
        self._contents = []
        for place in walk.places:
            place.watch(self._watch)
            self._contents.append(place.content())
        self._kinds = [place.kind for place in walk.places]
        self._buffer_numbers = {}
        self._set_numbers(tuple([self._place_number(index) for index in range(len(walk.places))]))
        self._parameters = dict(self._model.named_parameters())
        self._name_own()

    def _name_own(self) -> None:
        self._own_names = {id(tensor): name for name, tensor in self._parameters.items()}
        self._own_names.update((id(tensor), name) for name, tensor in self._model.named_buffers())
        self._own_names.update((id(module), f"module {name}") for name, module in self._model.named_modules())
        self._own_names.update((id(one), f"optimizer {index}") for index, one in enumerate(self._optimizers))

    def _rename_tensors(self, replaced: Sequence[tuple[Any, Any]]) -> None:
        """Gives each new buffer the name of the old one, without a walk over all modules."""
        names = self._own_names
        if any(id(old) not in names or id(new) in names or new is None for old, new in replaced):
            self._name_own()
            return
        for old, new in replaced:
            names[id(new)] = names.pop(id(old))

    # -- keys ----------------------------------------------------------------------------------------------------------

    def _set_numbers(self, numbers: tuple[int, ...]) -> None:
        self._numbers = numbers
        self._key = self._keys.setdefault(numbers, len(self._keys))
        if self._key == len(self._states):
            self._states.append((numbers, self._walk.places))

    def _place_number(self, index: int) -> int:
        place, content = self._walk.places[index], self._contents[index]
        value_key = self._buffer_key if place.owned == "buffers" else self._value_key
        entries = [(self._value_key(key), value_key(value)) for key, value in content]
        kind = self._kinds[index]
        unordered = isinstance(place.target, (set, frozenset))
        key = (
            None if kind is None else self._identity(kind),
            frozenset(value for _, value in entries) if unordered else tuple(entries),
        )
        number = self._place_numbers.setdefault(key, len(self._place_keys))
        if number == len(self._place_keys):
            self._place_keys.append(key)
        return number

    def _value_key(self, value: Any) -> Hashable:
        plain = plain_key(value)
        if plain is not None:
            return plain
        number = self._walk.containers.get(id(value))
        if number is not None:
            return (type(value), "container", number)  # what is in it is told by its own place
        if type(value) in weakref.ProxyTypes:
            return self._identity(value)
        if isinstance(value, tuple):
            return (type(value), tuple([self._value_key(item) for item in value]))
        if isinstance(value, types.MethodType):
            return ("method", self._identity(value.__func__), self._identity(value.__self__))
        return self._identity(value)

    def _identity(self, value: Any) -> Hashable:
        self._held[id(value)] = value
        return ("object", id(value))

    def _buffer_key(self, value: Any) -> Hashable:
        """A buffer is found again by its name at each call: only what it looks like counts."""
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return self._value_key(value)
        number = self._buffer_numbers.setdefault(id(value), len(self._buffer_numbers))
        return (number, value.dtype, tuple(value.shape), value.stride(), value.device, value.requires_grad)

    # -- capture -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def kept(self) -> Iterator[list[Effect]]:
        """Puts back whatever changes inside; CaptureError if it is more than attributes that nothing goes on from.

        Those are told when it closes, for whoever repeats the tape. Parameters and buffers of the model are put back
        but may change: the tape knows of them. An exception from inside passes.
        """
        self.read()
        if self._walk.iterators:
            path = self._walk.iterators[0]
            raise CaptureError(f"the step can draw from the iterator {path}; pass what it gives as an argument")
        if self._walk.unseen:
            raise CaptureError(f"the step can see more in Python than can be watched: {self._walk.unseen} and more")
        if self._walk.scripted:
            path = self._walk.scripted[0]
            raise CaptureError(
                f"{path} is TorchScript (torch.jit), whose code and attributes cannot be seen: use the module or "
                "function that it was made of"
            )
        walk = Walk(self._model, self._optimizers, set(self._names), everything=True)
        walk.start(self._function)
        before = [place.content() for place in walk.places]
        effects: list[Effect] = []
        try:
            yield effects
        except BaseException:
            restore(walk.places, before)
            raise
        effects += attributes_set(walk, before)
        refused = restore(walk.places, before)
        if refused:
            raise CaptureError(
                f"the step changes {refused[0]}: modules, hooks and optimizers run in Python only once, when they are "
                "captured; do it outside of them, or return it"
            )


def _entry_difference(place: Place, old: Any, new: Any) -> str:
    if isinstance(old, frozenset) or len(old) != len(new):
        return str(place.path)
    for (old_key, old_value), (new_key, new_value) in zip(old, new, strict=True):
        if old_key == new_key and old_value == new_value:
            continue
        name = place.name(new_key[1] if new_key[0] in (str, int) else "")
        shown = [show(value) for value in (old_value, new_value)]
        return f"{name}: {shown[0]} -> {shown[1]}" if old_key == new_key and all(shown) else name
    return f"the class of {place.path}"


# -- what changed during a capture -------------------------------------------------------------------------------------


def restore(all_places: Sequence[Place], before: Sequence[Content]) -> list[str]:
    """Puts everything back; gives the names of what may not change."""
    changed = [(place, old, new) for place, old in zip(all_places, before, strict=True)
               if not place.same(old, new := place.content())]  # fmt: skip
    for place, old, _ in changed:
        place.restore(old)
    return [name for place, old, new in changed for name in _refused(place, old, new)]


class Effect:
    """An attribute that is set."""

    def __init__(self, table: dict[str, Any], name: str, value: Any, *, is_new: bool) -> None:
        self._table = table
        self._name = name
        self._value = value
        self._is_made = is_new and _deep_key(value) is not None

    def happen(self, made: dict[int, Any]) -> None:
        """Sets it; a container that is made there is another one each time, the same for all that share `made`."""
        self._table[self._name] = copy.deepcopy(self._value, made) if self._is_made else self._value


def attributes_set(walk: Walk, before: Sequence[Content]) -> Iterator[Effect]:
    """Attributes that are new or were None, and hold nothing that a step could go on from."""
    for place, old in zip(walk.places, before, strict=True):
        if not isinstance(place, places.Mapping) or place.owner is None or place.owned:
            continue
        new = place.content()
        if place.same(old, new):
            continue
        was = dict(old)
        for key, value in new:
            if was.get(key) is None and value is not None and not is_state(value):
                yield Effect(place.target, key, value, is_new=id(value) not in walk.containers)
            elif key not in was and value is None:
                yield Effect(place.target, key, None, is_new=False)


def _refused(place: Place, old: Content, new: Content) -> Iterator[str]:
    if place.owned in ("parameters", "buffers"):
        return
    if place.owned == "library" and all(type(value) is bool for _, value in (*old, *new)):
        return  # something that a library does once
    if isinstance(place, (places.Sequence, places.Collection)):
        if len(old) != len(new) or not all(_same_value(a, b) for (_, a), (_, b) in zip(old, new, strict=True)):
            yield place.name("")
        return
    if isinstance(place, places.RandomState):
        yield place.name("")
        return
    table = dict(old)
    attributes = isinstance(place, places.Mapping) and place.owner is not None
    for key, value in new:
        if key not in table:
            if not attributes or is_state(value):
                yield place.name(key)
            continue
        was = table.pop(key)
        if was is value:
            continue
        filled = attributes and was is None and not is_state(value)
        if place.owned == "hyper-parameters" or not (filled or _same_value(was, value)):
            yield place.name(key)
    for key in table:
        yield place.name(key)


def _same_value(old: Any, new: Any) -> bool:
    if old is new:
        return True
    key = _deep_key(old)
    return key is not None and key == _deep_key(new)


def _deep_key(value: Any, depth: int = 0) -> Hashable | None:
    """As `plain_key`, with containers told by what is in them."""
    key = plain_key(value)
    if key is not None or depth > MAX_DEPTH:
        return key
    if type(value) in (list, tuple, deque):
        keys = [_deep_key(item, depth + 1) for item in value]
        return None if None in keys else (type(value), tuple(keys))
    if type(value) in (dict, collections.OrderedDict, collections.defaultdict):
        pairs = [(plain_key(k), _deep_key(v, depth + 1)) for k, v in value.items()]
        return None if any(None in pair for pair in pairs) else (type(value), tuple(pairs))
    if type(value) is set:
        keys = [plain_key(item) for item in value]
        return None if None in keys else (set, frozenset(keys))
    if isinstance(value, types.MethodType):
        return ("method", id(value.__func__), id(value.__self__))
    return None


def is_state(value: Any, depth: int = 0) -> bool:
    """Whether a step could go on from it: a number or a tensor, or an object that holds a tensor."""
    if isinstance(value, (torch.Tensor, torch.UntypedStorage, torch.TypedStorage)) or value is FakeTensor:
        return True
    if depth == 0 and isinstance(value, (int, float, complex)) and not isinstance(value, bool):
        return True
    if depth > 3:
        return False
    if isinstance(value, dict):
        return any(is_state(item, depth + 1) for item in value.values())
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return any(is_state(item, depth + 1) for item in value)
    attributes = getattr(value, "__dict__", None)
    return isinstance(attributes, dict) and any(is_state(item, depth + 1) for item in attributes.values())
