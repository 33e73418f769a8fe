"""Surroundings: what a step function can see in Python besides its arguments.

A tape repeats tensor operations, not Python. Whatever Python told the function while it was captured (a number in a
closure, `dropout.p`, which hooks there are) holds only as long as it stays the same: `read` gives a key that says so.
Whatever the function changes in Python would not be changed again: `kept` puts it back and refuses.

What counts: closures, default arguments and the global variables that the code names, followed through functions,
containers and objects; every attribute, parameter, buffer and hook of every module. Code that is the user's is followed
by the names in it: of an object of a user's class only the attributes that the code names are seen. Attributes of
objects whose class is a library's are all seen, because its code is not read.

What does not count: optimizers that were passed (the twin follows them); loaders, iterators, schedulers, loggers, files
and random generators, which stand for themselves; what is inside arrays; what a library keeps in its own variables.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dis
import functools
import io
import logging
import os
import random
import sys
import sysconfig
import types
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.modules.module as module_hooks

from . import _core, places
from .errors import CaptureError
from .guards import plain_key
from .places import Content, Path, Place

MAX_PLACES = 20_000
MAX_DEPTH = 12
MAX_ITEMS = 100_000  # a larger container stands for itself
MAX_FOLLOWED = 4_096  # items of a larger one are watched but not looked into

_HOOKS = ("_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_pre_hooks")
_GLOBAL_HOOKS = tuple([f"_global{name}" for name in _HOOKS])
_HOOK_OPTIONS = frozenset(  # by the hook's number; they come and go with the hooks
    {"_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs"}
)
_NOT_OF_THE_STEP = frozenset(
    {"_non_persistent_buffers_set", "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
     "_load_state_dict_post_hooks"}
)  # fmt: skip
_TENSOR_PLACES = ("requires_grad", "_backward_hooks", "_post_accumulate_grad_hooks")
_TENSOR_TABLE = vars(torch._C.TensorBase)

_STANDS_FOR_ITSELF = (
    torch.optim.lr_scheduler.LRScheduler,
    torch.optim.lr_scheduler.ReduceLROnPlateau,
    torch.utils.data.DataLoader,
    torch.utils.data.Dataset,
    torch.utils.data.Sampler,
    torch.Generator,
    logging.Logger,
    logging.Handler,
    io.IOBase,
    weakref.ref,
    random.Random,
)
_LIBRARY_ROOTS = tuple(
    {os.path.join(os.path.realpath(sysconfig.get_paths()[kind]), "") for kind in
     ("stdlib", "platstdlib", "purelib", "platlib")}
    | {os.path.join(os.path.dirname(os.path.realpath(module.__file__ or "")), "") for module in (torch, _core)}
)  # fmt: skip


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
        """The name of each of the model's parameters and buffers by its id, as of the last `read`."""
        return self._tensor_names

    def gradients(self) -> tuple[bool, ...]:
        """Which parameters have a gradient now."""
        return tuple([parameter.grad is not None for parameter in self._parameters.values()])

    @property
    def foreign_optimizers(self) -> list[torch.optim.Optimizer]:
        """Optimizers that the function can see and that were not passed."""
        return list(self._walk.foreign_optimizers)

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

    def difference(self, old: Hashable, new: Hashable) -> str:
        """In words, where two keys differ: "`self.p` of dropout: 0.1 -> 0.2"."""
        if not isinstance(old, int) or not isinstance(new, int):
            return ""
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
        return "; ".join(said) or "other objects than before"

    def close(self) -> None:
        """Lets go of everything."""
        self._watch = None
        self._held.clear()
        self._place_numbers.clear()
        self._place_keys.clear()
        self._keys.clear()
        self._states.clear()
        self._key = -1

    def _look_again(self) -> None:
        if self._watch is None or not self._update_values(self._watch):
            self._walk_now()

    def _update_values(self, watch: _core.Watch) -> bool:
        """Takes in changes of plain values only; False if anything else has changed."""
        renewed: dict[int, Content] = {}
        buffers = False
        for index in watch.changed():
            place = self._walk.places[index]
            old, new = self._contents[index], place.content()
            if len(old) != len(new) or place.kind is not self._kinds[index]:
                return False
            for (old_key, old_value), (new_key, new_value) in zip(old, new, strict=True):
                if old_key is not new_key and (plain_key(old_key) is None or plain_key(old_key) != plain_key(new_key)):
                    return False
                if place.owned == "buffers" or old_value is new_value:
                    continue
                if plain_key(old_value) is None or plain_key(new_value) is None:
                    return False
            renewed[index] = new
            buffers |= place.owned == "buffers"
        for index, content in renewed.items():
            self._contents[index] = content
            watch.renew(index)
        if buffers:  # which of them are one and the same is told by numbers that run through all of them
            self._buffer_numbers = {}
            renewed.update((i, self._contents[i]) for i, p in enumerate(self._walk.places) if p.owned == "buffers")
            self._name_tensors()
        numbers = list(self._numbers)
        for index in renewed:
            numbers[index] = self._place_number(index)
        self._set_numbers(tuple(numbers))
        return True

    def _walk_now(self) -> None:
        while True:  # until no code brings up a name that was not known
            count = len(self._names)
            walk = _Walk(self._model, self._optimizers, self._names, everything=False)
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
        self._name_tensors()

    def _name_tensors(self) -> None:
        self._tensor_names = {id(tensor): name for name, tensor in self._parameters.items()}
        self._tensor_names.update((id(tensor), name) for name, tensor in self._model.named_buffers())

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
    def kept(self) -> Iterator[None]:
        """Puts back whatever changes inside; CaptureError if it is more than a cache of the function's own.

        Parameters and buffers of the model are put back but may change: the tape knows of them. An exception from
        inside passes.
        """
        self.read()
        if self._walk.iterators:
            path = self._walk.iterators[0]
            raise CaptureError(f"the step can draw from the iterator {path}; pass what it gives as an argument")
        walk = _Walk(self._model, self._optimizers, set(self._names), everything=True)
        walk.start(self._function)
        before = [place.content() for place in walk.places]
        try:
            yield
        except BaseException:
            _restore(walk.places, before)
            raise
        refused = _restore(walk.places, before)
        if refused:
            raise CaptureError(
                f"the step changes {refused[0]}: Python runs only once, when the step is captured; "
                "do it outside the function, or return it"
            )


def _entry_difference(place: Place, old: Any, new: Any) -> str:
    if isinstance(old, frozenset) or len(old) != len(new):
        return str(place.path)
    for (old_key, old_value), (new_key, new_value) in zip(old, new, strict=True):
        if old_key == new_key and old_value == new_value:
            continue
        name = place.name(new_key[1] if new_key[0] is str else "")
        shown = [_shown(value) for value in (old_value, new_value)]
        return f"{name}: {shown[0]} -> {shown[1]}" if old_key == new_key and all(shown) else name
    return f"the class of {place.path}"


def _shown(key: Any) -> str:
    if key[0] is float:
        return repr(float.fromhex(key[1]))
    return repr(key[1]) if key[0] in (int, bool, str, type(None), torch.dtype) else ""


# -- what changed during a capture -------------------------------------------------------------------------------------


def _restore(all_places: Sequence[Place], before: Sequence[Content]) -> list[str]:
    """Puts everything back; gives the names of what may not change."""
    changed = [(place, old, new) for place, old in zip(all_places, before, strict=True)
               if not _identical(old, new := place.content())]  # fmt: skip
    for place, old, _ in changed:
        place.restore(old)
    return [name for place, old, new in changed for name in _refused(place, old, new)]


def _identical(old: Content, new: Content) -> bool:
    return len(old) == len(new) and all(
        (a is c or (type(a) is type(c) and type(a) in (str, int) and a == c)) and b is d
        for (a, b), (c, d) in zip(old, new, strict=True)
    )


def _refused(place: Place, old: Content, new: Content) -> Iterator[str]:
    if place.owned in ("parameters", "buffers"):
        return
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
            if not attributes or _is_state(value):
                yield place.name(key)
            continue
        was = table.pop(key)
        if was is value:
            continue
        if place.owned == "hyper-parameters" or not (_same_value(was, value) or _is_filled_cache(was, value)):
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


def _is_filled_cache(old: Any, new: Any) -> bool:
    return old is None and plain_key(new) is None and not _is_state(new)


def _is_state(value: Any, depth: int = 0) -> bool:
    """Whether a step could go on from it: a number or a tensor, or an object that holds a tensor."""
    if isinstance(value, torch.Tensor):
        return True
    if depth == 0 and isinstance(value, (int, float, complex)) and not isinstance(value, bool):
        return True
    if depth > 3:
        return False
    if isinstance(value, dict):
        return any(_is_state(item, depth + 1) for item in value.values())
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return any(_is_state(item, depth + 1) for item in value)
    attributes = getattr(value, "__dict__", None)
    return isinstance(attributes, dict) and any(_is_state(item, depth + 1) for item in attributes.values())


# -- finding places ----------------------------------------------------------------------------------------------------


class _Names(NamedTuple):
    """The names in a function's code, nested functions included."""

    variables: tuple[str, ...]  # global ones
    attributes: frozenset[str]
    imports: tuple[str, ...]
    any_attribute: bool  # it makes up names of attributes as it runs


_ANY = "*"  # among the names: some code makes up names as it runs
_VARIABLE_OPS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"})
_MAKES_UP_NAMES = frozenset({"getattr", "setattr", "hasattr", "delattr", "vars", "eval", "exec", "attrgetter"})


@functools.lru_cache(maxsize=4096)
def _names_in(code: types.CodeType) -> _Names:
    variables: dict[str, None] = {}
    attributes: set[str] = set()
    imports: dict[str, None] = {}
    pending = [code]
    while pending:
        current = pending.pop()
        pending += [constant for constant in current.co_consts if isinstance(constant, types.CodeType)]
        for instruction in dis.get_instructions(current):
            name = instruction.argval
            if instruction.opname in _VARIABLE_OPS:
                variables[name] = None
            elif instruction.opname == "IMPORT_NAME":
                imports[name] = None
            elif instruction.opcode in dis.hasname:
                attributes.add(name)
    made_up = not _MAKES_UP_NAMES.isdisjoint(variables) or "__dict__" in attributes or "attrgetter" in attributes
    return _Names(tuple(variables), frozenset(attributes), tuple(imports), made_up)


@functools.cache
def _tensor_field(name: str) -> int | None:
    """Where a tensor keeps its hooks, found by putting something there."""
    if name == "requires_grad":
        return None
    offsets = set()
    for _ in range(2):
        scratch = torch.empty(0, requires_grad=True)
        marker: dict[int, Any] = collections.OrderedDict()
        setattr(scratch, name, marker)
        offsets.add(_core.field_offset(scratch, marker))
    return offsets.pop() if len(offsets) == 1 else None


def _is_users_file(path: str) -> bool:
    return not path.startswith("<frozen") and not os.path.realpath(path).startswith(_LIBRARY_ROOTS)


class _Walk:
    """Finds the places, nearest first.

    With `everything`, all attributes of all objects: what a capture may change. Without, what the function may read.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        names: set[str],
        *,
        everything: bool,
    ) -> None:
        self.model = model
        self.optimizers = optimizers
        self.names = names
        self.everything = everything
        self.places: list[Place] = []
        self.tensors: dict[int, torch.Tensor] = {}
        self.containers: dict[int, int] = {}  # a number for each, by id
        self.iterators: list[Path] = []
        self.foreign_optimizers: list[torch.optim.Optimizer] = []
        self._whole: dict[int, bool] = {}  # objects met, and whether all their attributes are seen
        self._classes: set[type] = set()
        self._entries: set[tuple[int, str]] = set()
        self._user_package = ""
        self._pending: deque[tuple[Any, Path, int, bool]] = deque()
        self._model_modules = {id(module) for module in model.modules()}
        self._model_names = {id(module): name for name, module in model.named_modules()}

    def start(self, function: Callable[..., Any]) -> None:
        package = str(getattr(function, "__module__", None) or "").partition(".")[0]
        self._user_package = package if package not in ("torch", "lowtide", "builtins") else ""
        if not self.everything:
            for name in _GLOBAL_HOOKS:
                self._mapping(getattr(module_hooks, name), Path(f"torch.nn.modules.module.{name}"), 1, True)
        else:
            self._hyper_parameters()
        self._meet(self.model, Path("model"), 0, False)
        self._meet(function, Path(getattr(function, "__name__", "step")), 0, False)
        while self._pending and len(self.places) < MAX_PLACES:
            self._visit(*self._pending.popleft())

    def _hyper_parameters(self) -> None:
        for optimizer in self.optimizers:
            path = Path(f"{type(optimizer).__name__}.param_groups")
            self.places.append(places.Sequence(path, optimizer.param_groups))
            for index, group in enumerate(optimizer.param_groups):
                self.places.append(places.Mapping(path.item(index), group, "hyper-parameters"))
                if isinstance(group["params"], list):
                    self.places.append(places.Sequence(path.item(index).item("params"), group["params"]))

    # -- objects -------------------------------------------------------------------------------------------------------

    def _meet(self, value: Any, path: Path, depth: int, whole: bool) -> None:
        """Puts an object on the list, unless it was there or cannot change."""
        if depth > MAX_DEPTH or plain_key(value) is not None:
            return
        seen = self._whole.get(id(value))
        if seen is None or (whole and not seen):
            self._whole[id(value)] = whole
            self._pending.append((value, path, depth, whole))

    def _visit(self, value: Any, path: Path, depth: int, whole: bool) -> None:
        if isinstance(value, torch.Tensor):
            self._tensor(value, path)
        elif isinstance(value, torch.nn.Module):
            self._module(value, path)
        elif isinstance(value, torch.optim.Optimizer):
            self._optimizer(value, path, depth)
        elif isinstance(value, types.FunctionType):
            self._function(value, path, depth, whole)
        elif isinstance(value, types.MethodType):
            self._meet(value.__self__, Path("self") if depth == 0 else path.attribute("__self__"), depth + 1, whole)
            self._meet(value.__func__, path, depth, whole)
        elif isinstance(value, (staticmethod, classmethod)):
            self._meet(value.__func__, path, depth, whole)
        elif isinstance(value, property):
            for part in (value.fget, value.fset):
                self._meet(part, path, depth, whole)
        elif isinstance(value, functools.partial):
            self._meet(value.func, path, depth, whole)
            for index, item in enumerate(value.args):
                self._meet(item, path.attribute("args").item(index), depth + 1, whole)
            self._mapping(value.keywords, path.attribute("keywords"), depth + 1, whole)
        elif isinstance(value, types.ModuleType):
            self._python_module(value, path, depth)
        elif isinstance(value, type):
            self._class(value, path)
        elif isinstance(value, (dict, list, tuple, set, frozenset, deque)):
            self._container(value, path, depth, whole)
        else:
            self._instance(value, path, depth, whole)

    def _tensor(self, tensor: torch.Tensor, path: Path) -> None:
        self.tensors[id(tensor)] = tensor
        if not tensor.is_leaf:
            return
        for name in _TENSOR_PLACES if tensor.requires_grad else _TENSOR_PLACES[:1]:
            place = places.Attribute(path.attribute(name), tensor, _TENSOR_TABLE[name], _tensor_field(name))
            self.places.append(place)
            hooks = place.content()[0][1]
            if isinstance(hooks, dict):
                self._mapping(hooks, place.path, 1, True)

    def _module(self, module: torch.nn.Module, path: Path) -> None:
        ours = id(module) in self._model_modules
        name = self._model_names.get(id(module), path.text)
        of = f" of {name}" if name and ours else " of the model" if ours else path.of
        here = Path("self", of) if ours else path
        self.places.append(places.Mapping(here, vars(module), owner=module))
        whole = not self._is_users_class(type(module))
        for key, value in list(vars(module).items()):
            if key in _NOT_OF_THE_STEP or (key in _HOOK_OPTIONS and not self.everything):
                continue
            inner = here.attribute(key)
            if key in ("_parameters", "_buffers", "_modules") and isinstance(value, dict):
                owned = key[1:] if ours and key != "_modules" else ""
                self._mapping(value, inner, 0, whole, owned)
            elif key in _HOOKS and isinstance(value, dict):
                self._mapping(value, inner, 1, whole)
            else:
                self._meet(value, inner, 1, whole)
        self._class(type(module), here)

    def _optimizer(self, optimizer: torch.optim.Optimizer, path: Path, depth: int) -> None:
        if any(optimizer is passed for passed in self.optimizers):
            return
        self.foreign_optimizers.append(optimizer)
        if self.everything:
            self.places.append(places.Mapping(path, vars(optimizer), owner=optimizer))
            for key in ("state", "param_groups"):
                self._meet(vars(optimizer).get(key), path.attribute(key), depth + 1, True)

    def _instance(self, value: Any, path: Path, depth: int, whole: bool) -> None:
        if hasattr(type(value), "__next__") and not isinstance(value, io.IOBase):
            if not whole and not self.everything:
                self.iterators.append(path)
            return
        if self.everything:
            self._random_generator(value, path)
        users = self._is_users_class(type(value))
        if not users and self._stands_for_itself(value):
            return
        attributes = getattr(value, "__dict__", None)
        if users and not (whole or self.everything or _ANY in self.names):
            self._named_attributes(value, attributes, path, depth)
        else:
            if isinstance(attributes, dict):
                self.places.append(places.Mapping(path, attributes, owner=value))
                for key, item in list(attributes.items()):
                    self._meet(item, path.attribute(str(key)), depth + 1, whole or not users)
            self._slots(value, path, depth, whole or not users, None)
        if users:
            self._class(type(value), path)

    def _named_attributes(self, value: Any, attributes: Any, path: Path, depth: int) -> None:
        if isinstance(attributes, dict):
            for name in sorted(self.names):
                if name in attributes or hasattr(type(value), name):
                    self.places.append(places.Entry(path.attribute(name), attributes, name))
                    self._meet(attributes.get(name), path.attribute(name), depth + 1, False)
        self._slots(value, path, depth, False, self.names)

    def _slots(self, value: Any, path: Path, depth: int, whole: bool, names: set[str] | None) -> None:
        for cls in type(value).__mro__:
            for name, descriptor in vars(cls).items():
                if isinstance(descriptor, types.MemberDescriptorType) and (names is None or name in names):
                    place = places.Attribute(path.attribute(name), value, descriptor)
                    self.places.append(place)
                    for _, item in place.content():
                        self._meet(item, place.path, depth + 1, whole)

    def _stands_for_itself(self, value: Any) -> bool:
        """Objects of libraries whose inside is not the function's business."""
        kind = type(value)
        if self.everything and isinstance(value, _STANDS_FOR_ITSELF[:2]):
            return False  # a scheduler that steps inside the function
        if isinstance(value, _STANDS_FOR_ITSELF) or hasattr(kind, "__enter__"):
            return True
        top = kind.__module__.partition(".")[0]
        if isinstance(value, (types.SimpleNamespace, argparse.Namespace)):
            return False
        return top in ("builtins", "lowtide", "numpy") or top in sys.stdlib_module_names

    def _random_generator(self, value: Any, path: Path) -> None:
        if isinstance(value, random.Random):
            self.places.append(places.RandomState(path, value, value.getstate, value.setstate))
        elif type(value).__module__.startswith("numpy.random"):
            bits = getattr(value, "bit_generator", None) or getattr(value, "_bit_generator", None)
            if bits is not None:
                self.places.append(
                    places.RandomState(path, value, lambda: bits.state, lambda state: setattr(bits, "state", state))
                )

    # -- containers ----------------------------------------------------------------------------------------------------

    def _mapping(
        self,
        table: dict[Any, Any],
        path: Path,
        depth: int,
        whole: bool,
        owned: str = "",
        owner: object = None,
    ) -> None:
        """A dictionary that is always seen, entry by entry."""
        if id(table) in self.containers:
            return
        self.containers[id(table)] = len(self.containers)
        self.places.append(places.Mapping(path, table, owned, owner))
        if len(table) > MAX_FOLLOWED:
            return
        for key, item in list(dict.items(table)):
            inner = path.attribute(str(key)) if owner is not None else path.item(key)
            self._meet(key, path, depth + 1, whole)
            self._meet(item, inner, depth + 1, whole)

    def _container(self, value: Any, path: Path, depth: int, whole: bool) -> None:
        if len(value) > MAX_ITEMS:
            return
        if isinstance(value, dict):
            self._mapping(value, path, depth, whole)
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                self._meet(item, path.item(index), depth + 1, whole)
        elif id(value) not in self.containers:
            self.containers[id(value)] = len(self.containers)
            self.places.append((places.Sequence if isinstance(value, list) else places.Collection)(path, value))
            if len(value) <= MAX_FOLLOWED:
                for index, item in enumerate(list(value)):
                    self._meet(item, path.item(index), depth + 1, whole)
        if self._is_users_class(type(value)) and isinstance(getattr(value, "__dict__", None), dict):
            self._instance(value, path, depth, whole)

    # -- code ----------------------------------------------------------------------------------------------------------

    def _function(self, function: types.FunctionType, path: Path, depth: int, whole: bool) -> None:
        users = self._is_users_code(function)
        self.places.append(places.Function(path, function))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if id(cell) not in self.containers:
                self.containers[id(cell)] = len(self.containers)
                place = places.Cell(Path(name), cell)
                self.places.append(place)
                for _, item in place.content():
                    self._meet(item, Path(name), depth + 1, not users)
        for index, item in enumerate(function.__defaults__ or ()):
            self._meet(item, path.attribute("__defaults__").item(index), depth + 1, not users)
        if function.__kwdefaults__:
            self._mapping(function.__kwdefaults__, path.attribute("__kwdefaults__"), depth + 1, not users)
        if not users:
            return
        if vars(function):
            self._mapping(vars(function), path, depth + 1, False, owner=function)
        names = _names_in(function.__code__)
        self.names |= names.attributes
        if names.any_attribute:
            self.names.add(_ANY)
        for name in names.variables:
            self._variable(function.__globals__, name, depth)
        for name in names.imports:
            self._meet(sys.modules.get(name), Path(name), depth + 1, False)

    def _variable(self, table: dict[str, Any], name: str, depth: int) -> None:
        if (id(table), name) in self._entries or name.startswith("__"):
            return
        self._entries.add((id(table), name))
        self.places.append(places.Variable(Path(name), table, name))
        self._meet(table.get(name), Path(name), depth + 1, False)

    def _python_module(self, module: types.ModuleType, path: Path, depth: int) -> None:
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not self._is_users(module.__name__, file):
            return
        for name in sorted(self.names):
            if name in vars(module) and (id(vars(module)), name) not in self._entries:
                self._entries.add((id(vars(module)), name))
                self.places.append(places.Entry(path.attribute(name), vars(module), name))
                self._meet(vars(module)[name], path.attribute(name), depth + 1, False)

    def _class(self, cls: type, path: Path) -> None:
        for base in cls.__mro__:
            if base in self._classes:
                continue
            self._classes.add(base)
            users = self._is_users_class(base)
            if not users and not (issubclass(base, torch.nn.Module) and "forward" in vars(base)):
                continue
            for name, value in list(vars(base).items()):
                if name == "forward" or (users and (name in self.names or _is_operator(name, value))):
                    inner = Path(f"{base.__name__}.{name}")
                    self.places.append(places.Entry(inner, base, name))
                    self._meet(value, inner, 1, False)

    def _is_users_code(self, function: types.FunctionType) -> bool:
        return self._is_users(function.__module__, function.__code__.co_filename)

    def _is_users_class(self, cls: type) -> bool:
        module = sys.modules.get(cls.__module__)
        file = getattr(module, "__file__", None)
        if cls.__module__ == "builtins" or (file is None and cls.__module__ != "__main__"):
            return False
        return self._is_users(cls.__module__, file or "")

    def _is_users(self, module: str | None, file: str) -> bool:
        package = str(module or "").partition(".")[0]
        return (bool(package) and package == self._user_package) or _is_users_file(file)


def _is_operator(name: str, value: Any) -> bool:
    """Methods that code calls without naming them."""
    return (
        name.startswith("__")
        and name.endswith("__")
        and isinstance(value, types.FunctionType)
        and name not in ("__init__", "__new__", "__del__", "__repr__", "__str__", "__init_subclass__")
    )
