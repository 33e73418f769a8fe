"""Logs: the deferred calls of a program, told apart by everything that decides what they do."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from .._base.structure import Structure
from .._capture.sealed import Sealed
from .._guards.guards import plain_key
from .._guards.surroundings import Effect

if TYPE_CHECKING:
    from .._step.captured_step import CapturedStep


@dataclass(slots=True)
class Asked:
    """A call as live Python makes it, in terms of its program.

    Operands are `("variable", number)` for what a call before it has made, `("outside", number)` for other tensors in
    the order of their first use, with a description then, `("parameter" or "buffer", name)`, `("gradient", name)` for a
    gradient that was there before, `("number", index, kind)` for numbers that change from call to call, and
    `("plain", key)` for values that cannot change.
    """

    function: Any  # as `key_of` tells it
    structure: Structure
    operands: list[tuple[Any, ...]]
    modes: tuple[Hashable, ...]
    state: Hashable  # of Python, as far as an atom sees it


class DepartedError(Exception):
    """This call does something that is in no log, and no new one is made of it."""


class Written(NamedTuple):
    """What was there before a program and one of its calls changes in place."""

    outside: frozenset[int] = frozenset()  # tensors from outside
    lasts: bool = False  # anything but buffers of the model
    elsewhere: frozenset[int] = frozenset()  # storages of tensors that modules keep, but for parameters and buffers


@dataclass(slots=True)
class Entry:
    """One call of a log, and how it is answered."""

    asked: Asked
    call: Any
    constants: list[Any]  # the values of plain operands, by position
    region: int  # of autocast: casts are kept until it ends
    results: list[tuple[Any, ...]] = field(default_factory=list)  # as operands are, variables with their form
    result_structure: Structure | None = None
    gradients: dict[str, tuple[Any, ...] | None] = field(default_factory=dict)  # what `.grad` is from here on
    outside: dict[int, tuple[Any, ...]] = field(default_factory=dict)  # the same of tensors from outside
    buffers: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # of the model, that it replaces
    effects: list[Effect] = field(default_factory=list)  # attributes that modules have set
    said: list[Callable[[], Any]] = field(default_factory=list)  # printed, warned and logged
    updates: bool = False  # parameters
    writes: Written = field(default_factory=Written)
    draws: bool = False  # random numbers
    unspent: frozenset[int] = frozenset()  # variables whose graph is not gone through yet
    unspent_outside: frozenset[int] = frozenset()  # tensors from outside, which it has written, with such a graph
    peek: CapturedStep | None = None  # Python asks for a value here: what computes it; the call itself makes nothing
    source: str = ""

    @property
    def is_sealed(self) -> bool:
        """Whether live Python must not look at what the call gives."""
        return any(type(result[1]) is Sealed for result in self.results)

    def gives_as(self, other: Entry) -> bool:
        """Whether it gives what another one gives."""
        if self.is_sealed or other.is_sealed:
            return self.is_sealed and other.is_sealed
        return list(map(_key_of, self.results)) == list(map(_key_of, other.results))


def _key_of(result: tuple[Any, ...]) -> tuple[Any, ...]:
    """Strides do not count: a recording may have predicted wrong ones, which live Python has not seen then."""
    if result[0] == "variable":
        return (*result[:2], result[2]._replace(strides=()))
    return ("value", plain_key(result[1])) if result[0] == "value" else result


@dataclass(slots=True)
class Log:
    """The calls of one program, and the captured steps that run it, by the variables that live Python still holds."""

    start: Hashable  # what holds before its first call
    entries: list[Entry]
    steps: dict[tuple[int, ...], CapturedStep] = field(default_factory=dict)
    last: CapturedStep | None = None  # of these, the one that ran last

    has_numbers: bool = field(init=False)  # among its operands, which are others at each call

    def __post_init__(self) -> None:
        self.has_numbers = any(o[0] == "number" for entry in self.entries for o in entry.asked.operands)

    def all_steps(self) -> Iterator[CapturedStep]:
        """Everything that can run of it."""
        yield from self.steps.values()
        for entry in self.entries:
            if entry.peek is not None:
                yield entry.peek

    def begins_with(self, entries: Sequence[Entry]) -> bool:
        """Whether its first calls are these."""
        return len(self.entries) >= len(entries) and all(
            mine is other or mine.asked == other.asked for mine, other in zip(self.entries, entries, strict=False)
        )
