"""The recording of a program: each of its calls once, on fake tensors, and what live Python is to be answered."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .._base.structure import flatten, instances_in
from .._capture.leftovers import Leftovers
from .._capture.sealed import Sealed
from .._guards.guards import plain_key
from ..errors import CaptureError
from .atoms import CheckpointEnds, is_atom, is_checkpoint, is_step, name_of, sees_python
from .capturing import LiveCapture
from .log import Entry
from .modes import under_modes
from .numbers import kind_of, lift, mark
from .operands import Operands
from .stand_in import Form

if TYPE_CHECKING:
    from .._capture.tape import Tape
    from .live_step import LiveStep

_ONE_LEAF = flatten(0)[1]


@dataclass(slots=True)
class _Span:
    """Entries of a checkpoint."""

    start: int
    stop: int = -1


class ProgramRecording:
    """Calls are recorded one by one. Whoever makes one calls `finish` or `abandon`.

    `entries` are those that the program has so far. `own_buffers` is open while a call is made: the model has the
    buffers then that it had before the program. Of programs that are recorded `again`, numbers have other marks.
    """

    def __init__(
        self,
        step: LiveStep,
        operands: Operands,
        entries: list[Entry],
        leftovers: Leftovers,
        sharing: frozenset[int],
        own_buffers: Callable[[], AbstractContextManager[None]],
        *,
        again: bool,
    ) -> None:
        self._step = step
        self._operands = operands
        self._entries = entries
        self._own_buffers = own_buffers
        self._again = again
        self._capture = LiveCapture(step, leftovers, sharing)
        self._fakes: dict[int, torch.Tensor] = {}
        self._fake_numbers: dict[int, int] = {}
        self._gradients: dict[str, Any] = dict(operands.gradients)
        self._outside: dict[int, torch.Tensor] = {}  # gradients of tensors from outside
        self._checkpoints: list[_Span] = []  # that have begun

    def record(self, entry: Entry) -> None:
        """Makes the call of an entry, and writes down what it does."""
        capture = self._capture
        pairs = zip(entry.asked.operands, entry.constants, strict=True)
        given = [self._fake(operand, value) for operand, value in pairs]
        args, kwargs = entry.asked.structure.unflatten(given)
        position, updates = capture.position, len(capture.updates)
        replaced = dict(capture.new_buffers)
        with under_modes(entry.asked.modes), self._own_buffers():
            out: Any = None
            capture.begin_call()
            if is_checkpoint(entry.call):
                self._mark_checkpoint(entry.call)
            elif is_step(entry.call):
                out = capture.mark_step(self._step.optimizers.index(entry.call.optimizer), *args, **kwargs)
            else:
                out = capture.call(entry.call, args, kwargs, atom=sees_python(entry.call))
        if is_atom(entry.call) and not _same_tree((args, kwargs), entry.asked.structure, given):
            raise CaptureError(f"{name_of(entry.asked.function)} changes a list, dict or object that it is called with")
        leaves, entry.result_structure = ([out], _ONE_LEAF) if type(out) is Sealed else flatten(out)
        if any(operand[0] == "number" for operand in entry.asked.operands):
            for leaf in instances_in(leaves, FakeTensor):
                leaf.constant = None  # what PyTorch makes of constants and a mark
        entry.results = [self._result(leaf) for leaf in leaves]
        entry.effects, entry.said = capture.effects, capture.sayings.said
        entry.updates = len(capture.updates) > updates
        new = {name: buffer for name, buffer in capture.new_buffers.items() if buffer is not replaced.get(name)}
        entry.buffers = {name: self._result(buffer) for name, buffer in new.items()}
        entry.writes = capture.written_since(position)
        entry.draws = capture.random.drawn
        entry.unspent = frozenset(n for n, fake in self._fakes.items() if not capture.is_spent(fake))
        entry.unspent_outside = capture.unspent_outside()
        for name, parameter in self._operands.own.parameters.items():
            gradient = parameter.grad
            if gradient is not self._gradients[name]:
                self._gradients[name] = gradient
                entry.gradients[name] = None if gradient is None else self._result(gradient)
        for number, gradient in capture.gradients_outside().items():
            if gradient is not self._outside.get(number):
                self._outside[number] = gradient
                entry.outside[number] = self._result(gradient)

    def mark_pause(self, entry: Entry) -> None:
        """Live Python asks for a value here."""
        value = self._fakes[entry.asked.operands[0][1]]
        operands = [operand for before in self._entries for operand in before.asked.operands]
        known = 1 + max((operand[1] for operand in operands if operand[0] == "outside"), default=-1)
        if value.numel() > 0:
            self._capture.pause(value, known)

    @property
    def in_checkpoint(self) -> bool:
        """Whether a checkpoint has begun."""
        return bool(self._checkpoints)

    def peek(self, number: int) -> Tape:
        """The tape of the calls so far that gives one variable."""
        return self._with_numbers(self._capture.peek(self._fakes[number]))

    def finish(self, needed: tuple[int, ...]) -> Tape:
        """The tape that gives these variables."""
        results = [self._fakes[number] for number in needed]
        self._let_go()
        return self._with_numbers(self._capture.finish(results))

    def abandon(self) -> None:
        """Nothing is made of it."""
        self._let_go()
        self._capture.abandon()

    def _let_go(self) -> None:
        self._fakes.clear()
        self._checkpoints.clear()
        self._fake_numbers.clear()
        self._gradients.clear()
        self._outside.clear()

    def _with_numbers(self, tape: Tape) -> Tape:
        if not lift(tape.recording, [kind_of(number) or float for number in self._operands.numbers], self._again):
            raise self._step.number_refused()
        return tape

    def _mark_checkpoint(self, call: Any) -> None:
        if type(call) is CheckpointEnds:
            span = self._checkpoints.pop()
            span.stop = len(self._entries)
            self._capture.end_checkpoint()
            return
        span = _Span(len(self._entries) + 1)
        self._checkpoints.append(span)
        self._capture.begin_checkpoint(functools.partial(self._make_again, span), call.preserves_random_state)

    def _make_again(self, span: _Span) -> None:
        """The calls of a checkpoint once more."""
        made: dict[int, torch.Tensor] = {}
        for entry in self._entries[span.start : span.stop]:
            if entry.peek is not None or is_checkpoint(entry.call):
                continue
            pairs = zip(entry.asked.operands, entry.constants, strict=True)
            leaves = [made[o[1]] if o[0] == "variable" and o[1] in made else self._fake(o, v) for o, v in pairs]
            args, kwargs = entry.asked.structure.unflatten(leaves)
            with under_modes(entry.asked.modes):
                results, _ = flatten(entry.call(*args, **kwargs))
            made.update((r[1], leaf) for r, leaf in zip(entry.results, results, strict=True) if r[0] == "variable")

    def _fake(self, operand: tuple[Any, ...], value: Any) -> Any:
        kind, which = operand[:2]
        if kind == "plain":
            return value
        if kind == "number":
            return mark(which, operand[2], self._again)
        if kind == "variable":
            return self._fakes[which]
        if kind == "outside":
            return self._capture.input(which, self._operands.outside[which])
        return self._operands.given(operand)

    def _result(self, leaf: Any) -> tuple[Any, ...]:
        if type(leaf) is Sealed:
            return ("value", leaf)
        if not isinstance(leaf, torch.Tensor):
            if plain_key(leaf) is None:
                raise CaptureError(
                    f"a {type(leaf).__qualname__} is what a call gives: only tensors and plain values may be"
                )
            return ("value", leaf)
        if id(leaf) in self._fake_numbers:
            return ("variable", self._fake_numbers[id(leaf)], Form.of(leaf))
        known = self._operands.known(leaf)
        if known is not None:
            return known
        if id(leaf) in self._capture.given:
            return ("outside", self._capture.given[id(leaf)])
        if type(leaf) is not FakeTensor:
            raise CaptureError(f"a call gives a {type(leaf).__qualname__} that is none of its results")
        number = len(self._fakes)
        self._fakes[number] = leaf
        self._fake_numbers[id(leaf)] = number
        return ("variable", number, Form.of(leaf))


def _same_tree(tree: Any, structure: Any, leaves: list[Any]) -> bool:
    """Whether a tree that was made of these leaves has them still."""
    now, structure_now = flatten(tree)
    return structure_now == structure and all(one is other for one, other in zip(now, leaves, strict=True))
