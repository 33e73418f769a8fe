"""The user's own `optimizer.step()`, run once per training step on one-element twins.

The program updates the real parameters; the twin supplies what changes from step to step: the numbers that the user's
rule would have passed (learning rate, bias correction, ...) and the structure of this step's update. Because the very
method the user calls is run, schedulers and counters see one ordinary step. An optimizer with step hooks has no twin.

    twin = OptimizerTwin(optimizer, parameters)
    run = twin.run()                      # optimizer.step(), on twins
    template, first = run.template(p)     # p's update; its Number(i) is run.numbers[first + i]
    ...                                   # run the program, store new state in optimizer.state
    run.commit()                          # or run.rollback(), if nothing was updated
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import Parameter

from .._base.stock_optimizers import is_stock
from .classes import (
    StateWatch,
    layout_of,
    marks_of,
    own_entries,
    partition,
    place_of,
    state_form,
)
from .classes import (
    gradient_strides as layout_of_gradient,
)
from .ledger import Ledger, NotExpressible, Number
from .lives import held_over
from .probe import probe
from .proof import Performed, prove_apart
from .reach import RuleReach
from .snapshot import Snapshot, containers_of, run_rule
from .stage import Stage
from .template import Rehearsed, Subject, UpdateTemplate, trace_update

_MOST_LOOKS = 32  # at what a rule reaches, because that has changed

__all__ = ["NotExpressible", "Number", "OptimizerTwin", "TwinRun", "UpdateTemplate"]


class OptimizerTwin:
    """Stands in for the `updated` parameters of an optimizer: those that have a gradient when it steps."""

    def __init__(self, optimizer: torch.optim.Optimizer, updated: Sequence[Parameter]) -> None:
        _check_step(optimizer)
        self.optimizer = optimizer
        self.updated = list(updated)
        self._fake_mode = FakeTensorMode()
        self._data_state: set[str] = set()
        self._structures: dict[Hashable, int] = {}
        self._layouts: dict[Hashable, int] = {}
        self._proven: set[int] = set()
        self._templates: dict[Hashable, UpdateTemplate] = {}
        self.reach: RuleReach | None = None  # of rules that are not PyTorch's own
        self._runs = 0
        self._looks = 0
        self._refresh()
        self._prove(self._snapshot())

    def run(self) -> TwinRun:
        """Calls `optimizer.step()` once, on the twins; nothing of the user's changes if it raises."""
        self.refresh_if_changed()
        before = self._snapshot()
        probed = self._unproven
        if probed:
            self._prove(before)
        try:
            with self.rule_watched():
                ledgers, states = self._stage.perform()
            if self.reach is not None and before.new_tensors():
                name = type(self.optimizer).__name__
                raise NotExpressible(f"{name}.step() keeps tensors in a list, dict or set on the optimizer")
            structures = tuple(map(self._number_of, ledgers))
            new = not self._proven.issuperset(structures)
            if new and not probed:
                self._prove(before)
            self._runs += 1
            due = self._runs.bit_count() == 1  # less and less often: 1, 2, 4, 8, ...
            if self.reach is not None and (probed or new or due):
                with self.rule_watched():
                    prove_apart(before, Performed(self.classes, ledgers, states), also_far=probed or new)
        except BaseException:
            before.restore()
            raise
        self._proven.update(structures)
        return TwinRun(self, before, (self._layout, *structures), ledgers, states)

    def refresh_if_changed(self) -> bool:
        """Sorts the parameters into classes again if the user has touched groups or state; says whether it did."""
        if not self._stale and not self._watch.changed() and not self._surroundings_changed():
            return False
        self._refresh()
        return True

    def rule_watched(self) -> AbstractContextManager[None]:
        """Around any run of the rule: what it changes beyond the optimizer is put back and refused."""
        return nullcontext() if self.reach is None else self.reach.kept()

    def settle(self) -> None:
        """After a step: what it has changed is known."""
        if not self._stale:
            self._watch.settle()
        if self.reach is not None:
            self.reach.settle()

    def _surroundings_changed(self) -> bool:
        if self.reach is None or not self.reach.changed():
            return False
        self._looks += 1
        if self._looks > _MOST_LOOKS:
            name = type(self.optimizer).__name__
            raise NotExpressible(f"{name}.step() reaches what changes too often to be proven anew each time")
        return True

    def _refresh(self) -> None:
        name = type(self.optimizer).__name__
        for key, value in self.optimizer.state.items():
            if not isinstance(key, Tensor) or not isinstance(value, dict):
                raise NotExpressible(f"{name} keeps state {key!r} that belongs to no parameter")
        self.stock = is_stock(self.optimizer)
        if self.stock:
            self.reach = None
        elif self.reach is None:
            self.reach = RuleReach(self.optimizer)
        self.classes = partition(self.optimizer, self.updated, self._data_state, stock=self.stock)
        self.class_of = {id(member): place for place, one in enumerate(self.classes) for member in one.members}
        missing = [parameter for parameter in self.updated if id(parameter) not in self.class_of]
        if missing:
            raise NotExpressible(f"a parameter of shape {tuple(missing[0].shape)} is in no group of {name}")
        self._layout = _number(self._layouts, layout_of(self.optimizer, self.classes))
        self._containers = containers_of(self.optimizer) if self.stock else None
        self._stage = Stage(self.optimizer, self.classes)
        self._watch = StateWatch(self.optimizer, self.classes)
        self._stale = False
        self._unproven = True

    def _snapshot(self) -> Snapshot:
        known = self._containers
        return Snapshot(self.optimizer, containers_of(self.optimizer) if known is None else known)

    def _prove(self, before: Snapshot) -> None:
        now = self._snapshot()
        try:
            with self.rule_watched():
                found = probe(before, self.classes)
        finally:
            now.restore()  # a rule may know the optimizer by another name than `self`
        self._stale = self._stale or not found <= self._data_state  # to be sorted as data from the next run on
        self._data_state |= found
        self._unproven = False

    def _number_of(self, ledger: Ledger) -> int:
        return _number(self._structures, tuple(ledger.structure))


class TwinRun:
    """One step of the twins. `key` selects the variant of the program, `numbers` fill its slots."""

    def __init__(
        self,
        twin: OptimizerTwin,
        before: Snapshot,
        key: tuple[int, ...],
        ledgers: list[Ledger],
        states: list[dict[str, Any] | None],
    ) -> None:
        self.key: Hashable = key
        self.numbers: list[int | float] = []
        self._first: list[int] = []
        for ledger in ledgers:
            self._first.append(len(self.numbers))
            self.numbers += ledger.numbers
        self._structures = key[1:]
        self._twin = twin
        self._classes = twin.classes
        self._class_of = twin.class_of
        self._before = before
        self._ledgers = ledgers
        self._states = states
        self._held: dict[int, tuple[list[Any], dict[int, int]]] = {}  # by class
        self._by_rule: set[int] = set()  # parameters that `update` has updated, state included
        self._open = True

    def template(
        self, parameter: Parameter, gradient_strides: Sequence[int] | None = None
    ) -> tuple[UpdateTemplate, int]:
        """The update of `parameter`, and the place in `numbers` of its class's first number.

        Gradients are taken to lie in memory as autograd makes them, like their parameter, unless strides are given.
        """
        place = self._class_of[id(parameter)]
        one, group = self._classes[place], self._before.groups[self._classes[place].group][1]
        state = self._before.optimizer.state.get(parameter)
        strides = tuple(layout_of_gradient(parameter) if gradient_strides is None else gradient_strides)
        at = place_of(parameter, group)
        marks = () if self._twin.stock else marks_of(parameter, group, at)
        switches = tuple((key, value) for key, value in group.items() if isinstance(value, (bool, str)))
        form = (tuple(parameter.shape), parameter.stride(), strides, parameter.dtype, state_form(state))
        key = (self._structures[place], one.group, switches, marks, form)
        template = self._twin._templates.get(key)
        if template is None:
            self._check_open("trace an update")
            ledger = self._ledgers[place]
            twin_state = one.state_now(self._before.optimizer.state)
            twin = Subject(one.twin, one.twin.stride(), twin_state, one.own_entries)
            rehearsed = Rehearsed(
                one.group, ledger.structure[0], tuple(ledger.structure), ledger.numbers, ledger.items, twin, one.stock
            )
            subject = Subject(parameter, strides, state, self._own_entries(group, at))
            with self._twin.rule_watched():
                template = trace_update(self._before, rehearsed, subject, self._twin._fake_mode)
            self._twin._templates[key] = template
        return template, self._first[place]

    def held_over(self, parameter: Parameter) -> tuple[list[Any], dict[int, int]]:
        """What its update leaves to the next one in variables, as `update_lives` says it."""
        place = self._class_of[id(parameter)]
        if place not in self._held:
            one = self._classes[place]
            self._held[place] = held_over(self._before, self._before.groups[one.group][1], one.twin)
        return self._held[place]

    def update(self, parameter: Parameter, gradient: Tensor) -> None:
        """Runs the user's rule itself on one parameter, for a rule that has no template for it."""
        optimizer = self._before.optimizer
        group = self._before.groups[self._classes[self._class_of[id(parameter)]].group][1]
        own = self._own_entries(group, place_of(parameter, group))
        state: dict[Tensor, dict[str, Any]] = {}
        if parameter in optimizer.state:
            state[parameter] = optimizer.state[parameter]
        shown = {**group, **own, "params": [parameter]}
        index = self._classes[self._class_of[id(parameter)]].group
        clone = self._before.clone(self._before.groups_with(index, shown, stock=self._twin.stock), state)
        kept, parameter.grad = parameter.grad, gradient
        try:
            run_rule(clone)
        finally:
            parameter.grad = kept
        if parameter in clone.state:
            optimizer.state[parameter] = clone.state[parameter]
        self._by_rule.add(id(parameter))

    def commit(self) -> None:
        """After the program, once new tensor state is stored: writes Python numbers to every parameter's state."""
        self._check_open("commit")
        self._open = False
        optimizer, twin = self._before.optimizer, self._twin
        newcomers: set[int] = set()
        for one, state in zip(self._classes, self._states, strict=True):
            old = one.state
            members = [member for member in one.members if id(member) not in self._by_rule]
            if state is None:
                for member in members if old is not None else ():
                    optimizer.state.pop(member, None)
                twin._stale = twin._stale or old is not None
                continue
            python = {key: value for key, value in state.items() if not isinstance(value, Tensor)}
            replaced = old is None or any(
                value is not old.get(key) for key, value in state.items() if key not in python
            )
            reshaped = old is None or old.keys() != state.keys()
            if python or reshaped:
                for member in members:
                    _write(optimizer.state[member], python, state)
            if old is None:
                newcomers.update(map(id, one.members))
            twin._stale = twin._stale or replaced or reshaped
        if newcomers:  # in the order in which the optimizer would have met them
            for parameter in [one for group in optimizer.param_groups for one in group["params"]]:
                if id(parameter) in newcomers:
                    optimizer.state[parameter] = optimizer.state.pop(parameter)
        twin._stale = twin._stale or bool(self._by_rule)
        twin.settle()

    def rollback(self) -> None:
        """The program failed before any update: attributes, groups and Python state are as before the run."""
        self._check_open("roll back")
        self._open = False
        self._before.restore()

    def _own_entries(self, group: dict[str, Any], place: int) -> dict[str, list[Any]]:
        return {} if self._twin.stock else own_entries(group, place)

    def _check_open(self, what: str) -> None:
        if not self._open:
            raise RuntimeError(f"cannot {what}: this run was committed or rolled back")


def _write(real: dict[str, Any], python: dict[str, Any], state: dict[str, Any]) -> None:
    """Brings a parameter's state to the keys of the twin's, in its order."""
    real.update(python)
    if list(real) != list(state):
        content = {key: real[key] for key in state if key in real}
        real.clear()
        real.update(content)


def _check_step(optimizer: torch.optim.Optimizer) -> None:
    """Refuses steps that cannot be called without arguments, or that bypass the step hooks."""
    step = type(optimizer).step
    if not getattr(step, "hooked", False):
        raise NotExpressible(f"{type(optimizer).__name__}.step() does not call step hooks")
    required = [
        name
        for name, argument in list(inspect.signature(step).parameters.items())[1:]
        if argument.default is argument.empty and argument.kind not in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD)
    ]
    if required:
        raise NotExpressible(f"{type(optimizer).__name__}.step() needs {', '.join(required)}: it cannot run on its own")


def _number(table: dict[Hashable, int], entry: Hashable) -> int:
    return table.setdefault(entry, len(table))
