"""Stand-ins that outlive a capture, in caches of libraries and other places outside a step's surroundings.

After a capture nothing fake may be found anywhere: eager code that came upon it would go on with shapes instead of
numbers. Four kinds of places are put right:

    what is made of constants alone    the stand-in turns into a real tensor, where it is: a mask in an `lru_cache`
    variables of libraries and such    are put back to what was there before (`bystanders.py`)
    other entries of an `lru_cache`    are dropped with the cache, which may be cleared at any time
    what was put into a queue          is taken out of it

What then is left cannot be put right, and is an error: nobody knows what was there before.
"""

from __future__ import annotations

import functools
import gc
import queue
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .._base.schemas import positional
from ..errors import CaptureError
from .bystanders import Bystanders, leads_to
from .constant_values import constant_values, is_constant
from .recorder import Recorder, Recording, Ref, written_buffers

_ROOTS = (types.ModuleType, type, types.FunctionType, functools._lru_cache_wrapper)
_LINKS = 4  # holders of holders that are watched
_ANYWHERE = object()  # in place of a key


class LeftBehindError(CaptureError):
    """A capture has left stand-ins where nobody knows what was there before."""


class StandIns:
    """Weak references to everything that a capture hands to the user's code in place of something real."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._given: list[weakref.ref[Any]] = []

    def add(self, one: object) -> None:
        """One that no recorded call has made."""
        self._given.append(weakref.ref(one))

    def alive(self, *, collect: bool = False) -> list[weakref.ref[Any]]:
        """Those that somebody still holds. Reference cycles are nobody's: `collect` looks for them too."""
        found = self._living()
        if found and collect:
            gc.collect()
            found = self._living()
        return found

    def _living(self) -> list[weakref.ref[Any]]:
        all_of_them = [*self._given, *(reference for reference, _ in self.recorder.made)]
        return list({id(one): reference for reference in all_of_them if _is_fake(one := reference())}.values())


@contextmanager
def old_objects_left_alone() -> Iterator[None]:
    """While open, the garbage collector looks at new objects only: there may be a million others."""
    frozen = gc.get_freeze_count() == 0  # else the user has frozen some
    if frozen:
        gc.freeze()
    try:
        yield
    finally:
        if frozen:
            gc.unfreeze()


class FilledCaches:
    """Tensors that captures have put into caches, and where: a step that reads them holds while they are there."""

    def __init__(self) -> None:
        self._tensors: dict[int, torch.Tensor] = {}
        self._links: list[_Link] = []

    def add(self, filled: Sequence[weakref.ref[torch.Tensor]]) -> bool:
        """From now on these are known here; False if nobody can tell where they are."""
        for reference in filled:
            links = _links(reference())
            tensor = reference()
            if not links or tensor is None:
                return False
            self._links += links
            self._tensors[id(tensor)] = tensor
        return True

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._tensors

    def intact(self) -> bool:
        """Whether everything is where it was put."""
        return all(link.is_there() for link in self._links)

    def forget(self) -> None:
        """The captures that read them are gone."""
        self._tensors.clear()
        self._links.clear()


class Leftovers:
    """Sees to what the captures of one call leave behind; made before the first of them."""

    def __init__(self, unwatched: Iterable[object], filled: FilledCaches) -> None:
        self._bystanders = Bystanders(unwatched)
        self._filled = filled
        self._turned: list[weakref.ref[Any]] = []  # those that were filled in

    def fill_in(self, stand_ins: StandIns) -> bool:
        """Turns what is alive into real tensors, where it is, if all of it is made of constants and can be watched."""
        found = stand_ins.alive()
        return self._turn(stand_ins, found) and self._filled.add([one for one in found if one() is not None])

    def put_back(self, stand_ins: StandIns) -> bool:
        """Nothing fake is left behind; whether constants were filled in for that.

        Raises `LeftBehindError` where it cannot be done.
        """
        found = stand_ins.alive()
        if not found:
            return False
        self._bystanders.put_back(_one_of(found))
        constants = [one for one in stand_ins.alive() if _is_constant(stand_ins.recorder, one)]
        turned = bool(constants) and self._turn(stand_ins, constants)
        self._empty(stand_ins.alive())
        _refuse_held(stand_ins.alive(collect=True))
        return turned

    def is_spoilt(self, recording: Recording) -> bool:
        """Whether a step writes what was filled in: then its first value is not the one that was found."""
        ids = {id(one) for reference in self._turned if (one := reference()) is not None}
        ours = {index for index, buffer in enumerate(recording.buffers) if id(buffer.root) in ids}
        written = (written_buffers(c.target, positional(c.target, c.args, c.kwargs)) for c in recording.calls if ours)
        return any(not ours.isdisjoint(buffers) for buffers in written)

    def take_out(self) -> None:
        """Takes everything out again that was filled in. Raises `LeftBehindError` where that cannot be done."""
        self._filled.forget()
        self._bystanders.put_back(_one_of(self._living()))
        self._empty(self._living())
        _refuse_held(self._living())

    def _living(self) -> list[weakref.ref[Any]]:
        return [reference for reference in self._turned if reference() is not None]

    def _turn(self, stand_ins: StandIns, found: Sequence[weakref.ref[Any]]) -> bool:
        fakes = [one for reference in found if (one := reference()) is not None]
        windows = _windows(stand_ins.recorder, fakes)
        values = None if windows is None else constant_values(stand_ins.recorder.recording, windows)
        if values is None:
            return False
        for fake, value in zip(fakes, values, strict=True):
            _become(fake, value)
        self._turned += found
        return True

    def _empty(self, found: Sequence[weakref.ref[Any]]) -> None:
        """Clears caches and takes out of queues what leads to these."""
        if not found:
            return
        ours = _one_of(found)
        for one in gc.get_objects():
            if type(one) is functools._lru_cache_wrapper and leads_to(one, ours):
                one.cache_clear()
            elif type(one) is queue.SimpleQueue and leads_to(one, ours):
                _take_out(one, ours)


def _refuse_held(found: Sequence[weakref.ref[Any]]) -> None:
    living = [reference for reference in found if reference() is not None]
    if not living or not _holders([reference() for reference in living]):
        return  # most often: a graph in C++ holds hundreds, and each search for holders goes through all objects
    for reference in living:
        held_by = _name_of_holder(reference())
        if held_by:
            raise LeftBehindError(
                f"the capture left {_describe(reference())} in {held_by}, and what was there before is not known: "
                "call the function without lowtide, or let it return what it keeps"
            )


def _one_of(found: Sequence[weakref.ref[Any]]) -> Callable[[object], bool]:
    ids = {id(reference()) for reference in found}
    return lambda value: id(value) in ids


def _take_out(queued: queue.SimpleQueue[Any], is_ours: Callable[[object], bool]) -> None:
    for _ in range(queued.qsize()):
        one = queued.get_nowait()
        if not leads_to(one, is_ours):
            queued.put(one)


def _is_constant(recorder: Recorder, reference: weakref.ref[Any]) -> bool:
    windows = _windows(recorder, [reference()])
    return windows is not None and is_constant(recorder.recording, windows)


def _is_fake(one: object) -> bool:
    """Whether it is there and has not been filled in."""
    return one is not None and (issubclass(type(one), FakeTensor) or not issubclass(type(one), torch.Tensor))


def _windows(recorder: Recorder, found: Sequence[Any]) -> list[Ref] | None:
    windows: list[Ref] = []
    for fake in found:
        if not issubclass(type(fake), FakeTensor) or (fake.requires_grad and not fake.is_leaf):
            return None
        try:
            windows.append(recorder.ref(fake))
        except Exception:  # of a kind that no tape holds
            return None
    return windows


def _become(fake: Any, value: torch.Tensor) -> None:
    """What holds the fake tensor holds the real one from now on: the same Python object, with other insides."""
    is_parameter = bool(getattr(fake, "_is_param", False))
    value = torch.nn.Parameter(value, fake.requires_grad) if is_parameter else value.requires_grad_(fake.requires_grad)
    fake.__class__ = type(value)
    fake.__dict__.clear()
    torch._C._swap_tensor_impl(fake, value)


# -- who holds it ------------------------------------------------------------------------------------------------------


class _Link(NamedTuple):
    """What holds something, at which key if it is a dictionary."""

    holder: Any
    key: Any
    held: Any

    def is_there(self) -> bool:
        if self.key is not _ANYWHERE:
            return bool(self.holder.get(self.key) is self.held)
        return any(one is self.held for one in gc.get_referents(self.holder))


def _links(held: Any) -> list[_Link]:
    """The way from a module, a class, a function or a cache down to what is held, as far as it is one way."""
    found: list[_Link] = []
    while len(found) < _LINKS:
        holders = _holders([held])
        if len(holders) != 1 or type(holders[0]) is list:
            break
        holder = holders.pop()
        found.append(_Link(holder, _key_of(held, holder), held))
        if isinstance(holder, _ROOTS):
            break
        held = holder
    return found


def _holders(held: list[Any]) -> list[Any]:
    """What refers to any of them, but for that list, our links and functions that run."""
    return [one for one in gc.get_referrers(*held) if type(one) not in (_Link, types.FrameType) and one is not held]


def _key_of(held: Any, holder: Any) -> Any:
    if type(holder) is dict:
        for key, value in holder.items():
            if value is held:
                return key
    return _ANYWHERE


def _describe(one: Any) -> str:
    return f"a tensor of shape {tuple(one.shape)}" if issubclass(type(one), torch.Tensor) else "an argument's stand-in"


def _name_of_holder(one: Any) -> str:
    """Who holds it, in words; "" if nobody does whom Python can see, as then nobody in Python gets at it."""
    holders = _holders([one])
    if not holders:
        return ""
    holder = holders[0]
    if type(holder) is not dict:
        return f"a {type(holder).__qualname__}"
    owner = next((owner for owner in gc.get_referrers(holder) if getattr(owner, "__dict__", None) is holder), None)
    name = "a dictionary" if owner is None else getattr(owner, "__name__", None) or type(owner).__qualname__
    return f"`{_key_of(one, holder)}` of {name}"
