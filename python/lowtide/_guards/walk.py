"""The walk from a step function and its model to the places that the function can see."""

from __future__ import annotations

import argparse
import collections
import contextvars
import dis
import functools
import gc
import io
import logging
import os
import random
import sys
import sysconfig
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.modules.module as module_hooks
from torch._library.custom_ops import CustomOpDef
from torch._subclasses.fake_tensor import FakeTensor

from .. import _core
from .._base.sources import OURS
from ..errors import CaptureError
from . import places
from .guards import plain_key
from .memory import ArrayOfObjects, Memory, is_array_of_objects, is_memory
from .places import Path, Place
from .type_questions import asks_for_tensors

MAX_PLACES = 200_000
MAX_DEPTH = 12  # of what libraries keep; what the user keeps is followed ten times as far
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
    torch.utils.data.DataLoader,
    torch.utils.data.Dataset,
    torch.utils.data.Sampler,
    torch.Generator,
    logging.Logger,
    logging.Handler,
    io.IOBase,
    weakref.ref,
    random.Random,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
)
_SCRIPTED = (torch.jit.ScriptModule, torch.jit.ScriptFunction)
# Code of an operator of the user's that runs only at capture; the operator itself runs at every call.
_TRACED_PARTS = ("_abstract_fn", "_setup_context_fn", "_backward_fn")
_VIEWS: tuple[type, ...] = (types.MappingProxyType, type({}.keys()), type({}.values()), type({}.items()))
_WRAPS = {
    collections.UserDict: "data",
    collections.UserList: "data",
    collections.ChainMap: "maps",
    os._Environ: "_data",
}
# Packages whose objects run the loop around the step and count as they go; modules lead to them.
_TRAINERS = frozenset({"lightning", "lightning_fabric", "pytorch_lightning"})
_AUTOCAST_PARTS = ("_enabled", "fast_dtype", "_cache_enabled")  # the rest changes whenever it is entered
_LIBRARY_ROOTS = tuple(
    {os.path.join(os.path.realpath(sysconfig.get_paths()[kind]), "") for kind in
     ("stdlib", "platstdlib", "purelib", "platlib")}
    | {os.path.join(os.path.realpath(folder), "") for folder in (os.path.dirname(torch.__file__), OURS)}
)  # fmt: skip


_CALLED_BY_AUTOGRAD = ("forward", "backward", "setup_context", "jvp", "vmap")


class _Names(NamedTuple):
    """The names in a function's code, nested functions included."""

    variables: tuple[str, ...]  # global ones
    attributes: frozenset[str]
    imports: tuple[str, ...]
    any_attribute: bool  # it makes up names of attributes as it runs


ANY = "*"  # among the names: some code makes up names as it runs
_VARIABLE_OPS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"})
_MAKES_UP_NAMES = frozenset({"getattr", "setattr", "hasattr", "delattr", "vars", "eval", "exec", "attrgetter"})


@functools.lru_cache(maxsize=4096)
def names_in(code: types.CodeType) -> _Names:
    """What the code names, of which most is found at run time only."""
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


@functools.lru_cache(4096)
def is_users_file(path: str) -> bool:
    """Whether a file is neither Python's nor of an installed package."""
    return not path.startswith("<frozen") and not os.path.realpath(path).startswith(_LIBRARY_ROOTS)


class _Look:
    """What an object that keeps its content out of sight holds now, as a descriptor gives it."""

    def __init__(self, look: Callable[[Any], Any]) -> None:
        self.look = look

    def __get__(self, value: Any, _kind: Any = None) -> Any:
        return self.look(value)


_LOOKS = {contextvars.ContextVar: _Look(lambda variable: variable.get(None))}


class Walk:
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
        self.scripted: list[Path] = []
        self.type_questions: list[str] = []  # code that asks whether a class is that of tensors
        self.unseen = ""  # where it stopped, if there was too much
        self.closed: list[Any] = []  # objects that stand for themselves
        self.foreign_optimizers: list[torch.optim.Optimizer] = []
        self._whole: dict[int, bool] = {}  # objects met, and whether all their attributes are seen
        self._classes: set[type] = set()
        self._entries: set[tuple[int, str]] = set()
        self._user_package = ""
        self._pending: deque[tuple[Any, Path, int, bool]] = deque()
        self._model_modules = {id(module) for module in model.modules()}
        self._model_names = {id(module): name for name, module in model.named_modules()}

    def start(self, function: Callable[..., Any]) -> None:
        """Walks from the model, then from the function."""
        package = str(getattr(function, "__module__", None) or "").partition(".")[0]
        self._user_package = package if package not in ("torch", "lowtide", "builtins") else ""
        for name in _GLOBAL_HOOKS:
            self._mapping(getattr(module_hooks, name), Path(f"torch.nn.modules.module.{name}"), 1, True)
        if self.everything or "param_groups" in self.names:
            self._hyper_parameters()
        self._meet(self.model, Path("model"), 0, False)
        self._meet(function, Path(getattr(function, "__name__", "step")), 0, False)
        while self._pending and not self.unseen:
            self._visit(*self._pending.popleft())
            if self._is_full() and self._pending:
                self.unseen = str(self._pending[0][1])

    def _is_full(self) -> bool:
        return len(self.places) > MAX_PLACES

    def _hyper_parameters(self) -> None:
        for optimizer in self.optimizers:
            path = Path(f"{type(optimizer).__name__}.param_groups")
            self._container(optimizer.param_groups, path, 0, True)
            for index, group in enumerate(optimizer.param_groups):
                self._mapping(group, path.item(index), 1, True, "hyper-parameters")

    # -- objects -------------------------------------------------------------------------------------------------------

    def _meet(self, value: Any, path: Path, depth: int, whole: bool) -> None:
        """Puts an object on the list, unless it was there or cannot change."""
        if depth > (MAX_DEPTH if whole else 10 * MAX_DEPTH) or plain_key(value) is not None:
            return
        seen = self._whole.get(id(value))
        if seen is None or (whole and not seen):
            self._whole[id(value)] = whole
            self._pending.append((value, path, depth, whole))

    def _visit(self, value: Any, path: Path, depth: int, whole: bool) -> None:
        if type(value) in weakref.ProxyTypes or isinstance(value, weakref.ref):  # a proxy is an instance of anything
            self._weak(value, path, depth, whole)
        elif isinstance(value, torch.Tensor):
            self._tensor(value, path)
        elif isinstance(value, _SCRIPTED):
            self.scripted.append(path)
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
        elif isinstance(value, functools._lru_cache_wrapper):
            self._meet(value.__wrapped__, path, depth, whole)
        elif isinstance(value, (types.BuiltinMethodType, types.MethodWrapperType)):
            if not isinstance(value.__self__, types.ModuleType):
                self._meet(value.__self__, path.attribute("__self__"), depth + 1, whole)
        elif isinstance(value, _VIEWS):
            for seen in gc.get_referents(value):
                self._meet(seen, path, depth + 1, whole)
        elif isinstance(value, (functools.partial, functools.partialmethod)):
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
        if not isinstance(tensor, FakeTensor):  # its attributes are those of its mode
            self._mapping(vars(tensor), path, 1, True, owner=tensor)
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
        look = _LOOKS.get(type(value))
        if look is not None:
            self.places.append(places.Property(path, value, look))
            return
        if is_memory(value):
            self.places.append(Memory(path, value))
            return
        if is_array_of_objects(value):
            self._array_of_objects(value, path, depth, whole)
            return
        if isinstance(value, threading.local):
            self._mapping(vars(value), path, depth, whole, owner=value)
            return
        if type(value).__module__.partition(".")[0] in _TRAINERS:
            self._by_name(value, getattr(value, "__dict__", None), path, depth, type(value))
            return
        for kind, name in _WRAPS.items():
            if isinstance(value, kind):
                self.places.append(places.Entry(path.attribute(name), vars(value), name))
                self._meet(vars(value).get(name), path, depth + 1, whole)
        if hasattr(type(value), "__next__") and not isinstance(value, io.IOBase):
            if not whole and not self.everything:
                self.iterators.append(path)
            return
        if self.everything:
            self._random_generator(value, path)
        if isinstance(value, torch.amp.GradScaler) and value.is_enabled() and value._scale is None:
            # It makes its scale at first use, of a number that it has already: now, lest that be seen as a change.
            value._lazy_init_scale_growth_tracker(torch.device(value._device))
        users = self._is_users_class(type(value))
        parts = _TRACED_PARTS if isinstance(value, CustomOpDef) else ()
        if isinstance(value, torch.autocast):
            parts = _AUTOCAST_PARTS
        for name in parts:
            self.places.append(places.Entry(path.attribute(name), vars(value), name))
            self._meet(vars(value).get(name), path.attribute(name), depth + 1, False)
        if not users and (parts or self._stands_for_itself(value)):
            self.closed.append(value)
            if isinstance(value, logging.Logger):
                self._levels(value, path)
            return
        attributes = getattr(value, "__dict__", None)
        if users and not (whole or self.everything or ANY in self.names):
            self._named_attributes(value, attributes, path, depth, type(value))
        else:
            if isinstance(attributes, dict):
                self.places.append(places.Mapping(path, attributes, owner=value))
                for key, item in list(attributes.items()):
                    self._meet(item, path.attribute(str(key)), depth + 1, whole or not users)
            self._slots(value, path, depth, whole or not users, None)
        if users:
            self._class(type(value), path)

    def _levels(self, logger: logging.Logger, path: Path) -> None:
        """What decides whether anything is logged: code may ask, and go by the answer."""
        one: logging.Logger | None = logger
        while one is not None:
            self.places += [places.Entry(path.attribute(name), vars(one), name) for name in ("level", "disabled")]
            one = one.parent
        self.places.append(places.Entry(path.attribute("manager.disable"), vars(logger.manager), "_disable"))

    def _weak(self, reference: Any, path: Path, depth: int, whole: bool) -> None:
        """What user's code holds weakly, as a module holds its trainer; what libraries hold so is their business.

        It is watched through a proxy, so that it goes when its owner lets it go.
        """
        value = reference if type(reference) in weakref.ProxyTypes else reference()
        if value is None or (whole and not self.everything):
            return
        try:
            cls, attributes = value.__class__, getattr(value, "__dict__", None)
        except ReferenceError:  # it is gone
            return
        if value is not reference and issubclass(cls, (torch.nn.Module, types.MethodType, types.FunctionType)):
            self._meet(value, path, depth, whole)
            return
        self._by_name(reference if value is reference else weakref.proxy(value), attributes, path, depth, cls)

    def _by_name(self, value: Any, attributes: Any, path: Path, depth: int, cls: type) -> None:
        """An object of which only what the user's code names is seen, whoever wrote its class."""
        self._named_attributes(value, attributes, path, depth, cls)
        if self._is_users_class(cls):
            self._class(cls, path)
            return
        for name in sorted(self.names):  # its code is not read, so its properties are
            descriptor = getattr(cls, name, None)
            if isinstance(descriptor, property):
                place = places.Property(path.attribute(name), value, descriptor)
                if place.content():
                    self.places.append(place)

    def _named_attributes(self, value: Any, attributes: Any, path: Path, depth: int, cls: type) -> None:
        if isinstance(attributes, dict):
            for name in sorted(self.names):
                if name in attributes or hasattr(cls, name):
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

    def _array_of_objects(self, values: Any, path: Path, depth: int, whole: bool) -> None:
        if values.size > MAX_ITEMS:
            return
        self.places.append(ArrayOfObjects(path, values))
        if values.size <= MAX_FOLLOWED:
            for index, item in enumerate(values.flat):
                self._meet(item, path.item(index), depth + 1, whole)

    # -- code ----------------------------------------------------------------------------------------------------------

    def _function(self, function: types.FunctionType, path: Path, depth: int, whole: bool) -> None:
        users = self._is_users_code(function)
        self.places.append(places.Function(path, function))
        line = asks_for_tensors(function, users=users)
        if line:
            self.type_questions.append(f"{path} ({function.__code__.co_filename}:{line})")
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if id(cell) not in self.containers:
                self.containers[id(cell)] = len(self.containers)
                place = places.Cell(Path(name), cell, "" if users else "library")
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
        names = names_in(function.__code__)
        self.names |= names.attributes
        if names.any_attribute:
            self.names.add(ANY)
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
        users = isinstance(file, str) and self._is_users(module.__name__, file)
        for name in sorted(self.names):
            if name in vars(module) and (id(vars(module)), name) not in self._entries:
                self._entries.add((id(vars(module)), name))
                self.places.append(places.Entry(path.attribute(name), vars(module), name))
                value = vars(module)[name]
                if users or isinstance(value, (types.ModuleType, os._Environ)):  # of a library only what is named
                    self._meet(value, path.attribute(name), depth + 1, False)

    def _class(self, cls: type, path: Path) -> None:
        if issubclass(cls, torch.optim.Optimizer):
            return  # the rule is the twin's matter
        for base in cls.__mro__:
            if base in self._classes:
                continue
            self._classes.add(base)
            users = self._is_users_class(base)
            if not users and not (issubclass(base, torch.nn.Module) and "forward" in vars(base)):
                continue
            called = _CALLED_BY_AUTOGRAD if issubclass(base, torch.autograd.Function) else ("forward",)
            for name, value in list(vars(base).items()):
                if name in called or (users and (name in self.names or _is_operator(name, value))):
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
        return (bool(package) and package == self._user_package) or is_users_file(file)


def refuse_type_questions(walk: Walk) -> None:
    """Raises `CaptureError` if code that a walk has met asks whether a class is that of tensors."""
    if walk.type_questions:
        raise CaptureError(
            f"{walk.type_questions[0]} asks with `type(...)` or `__class__` whether something is a torch.Tensor, which "
            "a planned step cannot answer; use isinstance(x, torch.Tensor)"
        )


def _is_operator(name: str, value: Any) -> bool:
    """Methods that code calls without naming them."""
    return (
        name.startswith("__")
        and name.endswith("__")
        and isinstance(value, types.FunctionType)
        and name not in ("__init__", "__new__", "__del__", "__repr__", "__str__", "__init_subclass__")
    )
