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
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import Parameter

from .optimizer_classes import StateWatch, layout_of, marks_of, own_entries, partition, place_of, state_form
from .optimizer_probe import probe
from .optimizer_snapshot import Snapshot, containers_of, run_rule
from .optimizer_stage import Stage
from .update_ledger import Ledger, NotExpressible, Number
from .update_lives import held_over
from .update_template import Rehearsed, Subject, UpdateTemplate, trace_update

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
            ledgers, states = self._stage.perform()
            structures = tuple(map(self._number_of, ledgers))
            if not probed and not self._proven.issuperset(structures):
                self._prove(before)
        except BaseException:
            before.restore()
            raise
        self._proven.update(structures)
        return TwinRun(self, before, (self._layout, *structures), ledgers, states)

    def refresh_if_changed(self) -> bool:
        """Sorts the parameters into classes again if the user has touched groups or state; says whether it did."""
        if not self._stale and not self._watch.changed():
            return False
        self._refresh()
        return True

    def _refresh(self) -> None:
        name = type(self.optimizer).__name__
        for key, value in self.optimizer.state.items():
            if not isinstance(key, Tensor) or not isinstance(value, dict):
                raise NotExpressible(f"{name} keeps state {key!r} that belongs to no parameter")
        self.classes = partition(self.optimizer, self.updated, self._data_state)
        self.class_of = {id(member): place for place, one in enumerate(self.classes) for member in one.members}
        missing = [parameter for parameter in self.updated if id(parameter) not in self.class_of]
        if missing:
            raise NotExpressible(f"a parameter of shape {tuple(missing[0].shape)} is in no group of {name}")
        self._layout = _number(self._layouts, layout_of(self.optimizer, self.classes))
        self._containers = containers_of(self.optimizer)
        self._stage = Stage(self.optimizer, self.classes)
        self._watch = StateWatch(self.optimizer, self.classes)
        self._stale = False
        self._unproven = True

    def _snapshot(self) -> Snapshot:
        return Snapshot(self.optimizer, self._containers)

    def _prove(self, before: Snapshot) -> None:
        found = probe(before, self.classes)
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
        strides = tuple(_gradient_strides(parameter) if gradient_strides is None else gradient_strides)
        at = place_of(parameter, group)
        switches = tuple((key, value) for key, value in group.items() if isinstance(value, (bool, str)))
        form = (tuple(parameter.shape), parameter.stride(), strides, parameter.dtype, state_form(state))
        key = (self._structures[place], one.group, switches, marks_of(parameter, group, at), form)
        template = self._twin._templates.get(key)
        if template is None:
            self._check_open("trace an update")
            ledger = self._ledgers[place]
            twin_state = one.state_now(self._before.optimizer.state)
            twin = Subject(one.twin, one.twin.stride(), twin_state, one.own_entries)
            rehearsed = Rehearsed(
                one.group, ledger.structure[0], tuple(ledger.structure), ledger.numbers, ledger.items, twin
            )
            subject = Subject(parameter, strides, state, own_entries(group, at))
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
        own = own_entries(group, place_of(parameter, group))
        state: dict[Tensor, dict[str, Any]] = {}
        if parameter in optimizer.state:
            state[parameter] = optimizer.state[parameter]
        clone = self._before.clone([{**group, **own, "params": [parameter]}], state)
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
        if not twin._stale:
            twin._watch.settle()

    def rollback(self) -> None:
        """The program failed before any update: attributes, groups and Python state are as before the run."""
        self._check_open("roll back")
        self._open = False
        self._before.restore()

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


def _gradient_strides(parameter: Parameter) -> tuple[int, ...]:
    # Autograd's layout contract: as the parameter where it is dense, else row-major.
    if torch.ops.aten.is_non_overlapping_and_dense(parameter):
        return parameter.stride()
    return torch.empty(parameter.shape, device="meta").stride()


def _number(table: dict[Hashable, int], entry: Hashable) -> int:
    return table.setdefault(entry, len(table))
