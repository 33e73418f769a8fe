"""The user's update rule for one parameter, as recorded calls with slots for numbers.

The rule runs once on a fake parameter of the real shape. What it asks for must agree, in structure and in numbers, with
what the one-element twin asked for: then the twin's numbers are this parameter's numbers at every later step too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode

from .._capture.recorder import ITEM, LIFT, Call, Recorder, Recording, Ref
from .classes import attributes_of
from .ledger import Ledger, NotExpressible, Number, OpFacts, facts_of
from .snapshot import Snapshot, run_rule

__all__ = ["NotExpressible", "Number", "Rehearsed", "Subject", "UpdateTemplate", "trace_update"]

Make = Callable[[Tensor, Sequence[int]], Tensor]  # a stand-in for a tensor, with these strides


@dataclass
class UpdateTemplate:
    """How one parameter is updated; every number in its calls is a `Number` that names a slot.

    `origins` says what a buffer is: ("param",), ("grad",), ("state", key), ("hyper", key) for a tensor in the group
    such as a tensor learning rate, ("attribute", name) for a tensor on the optimizer such as `found_inf`. Buffers that
    are not listed are made by the calls.
    """

    recording: Recording
    origins: dict[int, tuple[str, ...]]
    new_state: dict[str, Ref]  # state that the step creates or replaces; may stand in the gradient's buffer
    dropped_state: tuple[str, ...]


@dataclass
class Rehearsed:
    """What the twin of a parameter's class did in the step to be traced."""

    group: int
    origins: tuple[tuple[str, ...], ...]
    structure: tuple[Any, ...]
    numbers: list[int | float]
    items: list[Any]
    twin: Subject
    stock: bool  # the rule is PyTorch's own


@dataclass
class Subject:
    """Whose update is traced: a parameter, the strides of its gradient, its state, its own entries in the group."""

    parameter: Parameter
    gradient_strides: tuple[int, ...]
    state: Mapping[str, Any] | None
    own_entries: dict[str, list[Any]]


def trace_update(before: Snapshot, rehearsed: Rehearsed, subject: Subject, fake_mode: FakeTensorMode) -> UpdateTemplate:
    """Records the rule for `subject`, starting from the optimizer as it was at `before`."""
    trace = _Trace(before, rehearsed, subject, fake_mode)
    trace.must_agree(rehearsed.structure, rehearsed.numbers)
    _check_other_numbers(before, rehearsed, subject, fake_mode)
    return trace.template()


class _Cast:
    """A clone of the optimizer whose only parameter is made by `make`, with state and shared tensors to match."""

    def __init__(self, before: Snapshot, rehearsed: Rehearsed, subject: Subject, make: Make, other: bool) -> None:
        change = _other if other else _same
        real = subject.parameter
        self.roots: dict[tuple[str, ...], Tensor] = {}

        def root(value: Any, *origin: str) -> Any:
            if not isinstance(value, Tensor):
                return change(value)
            self.roots[origin] = make(value, value.stride())
            return self.roots[origin]

        self.parameter = self.roots["param",] = Parameter(make(real, real.stride()))
        self.parameter.grad = self.roots["grad",] = make(real, subject.gradient_strides)
        vars(self.parameter).update(attributes_of(real))
        self.state = {key: root(value, "state", key) for key, value in (subject.state or {}).items()}
        content = before.groups[rehearsed.group][1]
        group = {key: root(value, "hyper", key) for key, value in content.items() if key != "params"}
        shown = {**group, **subject.own_entries, "params": [self.parameter]}
        self.clone = before.clone(
            before.groups_with(rehearsed.group, shown, stock=rehearsed.stock),
            {} if subject.state is None else {self.parameter: dict(self.state)},
        )
        for name, value in list(vars(self.clone).items()):
            if isinstance(value, Tensor):
                setattr(self.clone, name, root(value, "attribute", name))
        self.ledger = Ledger(
            type(before.optimizer).__name__,
            rehearsed.origins,
            [self.roots[origin] for origin in rehearsed.origins],
            data_roots=0,
        )

    def run(self, *modes: Any) -> None:
        """Runs the rule and closes the ledger."""
        with ExitStack() as stack:
            for mode in modes:
                stack.enter_context(mode)
            run_rule(self.clone)
        self.after: dict[str, Any] | None = self.clone.state.get(self.parameter)
        self.ledger.close(self.after)


class _Trace:
    """One run of the rule on a fake parameter, recorded."""

    def __init__(
        self,
        before: Snapshot,
        rehearsed: Rehearsed,
        subject: Subject,
        fake_mode: FakeTensorMode,
        other: bool = False,
    ) -> None:
        def make(real: Tensor, strides: Sequence[int]) -> Tensor:
            return FakeTensor(fake_mode, _make_meta(real, strides), real.device)

        self._shape = tuple(subject.parameter.shape)
        self._cast = _Cast(before, rehearsed, subject, make, other)
        self.ledger = self._cast.ledger
        self._recorder = _RuleRecorder(fake_mode, self.ledger, _answers(rehearsed.items, other))
        for origin, tensor in self._cast.roots.items():
            self._recorder.add_fake_root(tensor, ".".join(origin), origin[0])
        self._root_refs = {origin: self._recorder.ref(tensor) for origin, tensor in self._cast.roots.items()}
        try:
            self._cast.run(fake_mode, self._recorder)
        except NotExpressible:
            raise
        except Exception as error:
            raise NotExpressible(
                f"{self.ledger.optimizer}.step() fails on a fake parameter of shape {self._shape}: {error}"
            ) from error

    def must_agree(self, structure: tuple[Any, ...], numbers: list[int | float]) -> None:
        """Refuses when the twin did something else."""
        if tuple(self.ledger.structure) != structure:
            pairs = zip(_operators(self.ledger.structure), _operators(structure), strict=False)
            found = next((pair for pair in pairs if pair[0] != pair[1]), ("more calls", "fewer"))
            raise NotExpressible(
                f"{self.ledger.optimizer}.step() runs other operators for shape {self._shape} than for one element: "
                f"{found[0]} instead of {found[1]}"
            )
        if self.ledger.numbers != numbers:
            pair = next(pair for pair in zip(self.ledger.numbers, numbers, strict=True) if pair[0] != pair[1])
            raise NotExpressible(
                f"{self.ledger.optimizer}.step() passes a number that depends on the parameter's shape: "
                f"{pair[0]} for shape {self._shape}, {pair[1]} for one element"
            )

    def template(self) -> UpdateTemplate:
        """The recording, with numbers lifted to slots."""
        if self._recorder.ref(self._cast.parameter) != self._root_refs["param",]:
            raise NotExpressible(f"{self.ledger.optimizer}.step() gives a parameter new memory (`p.data = ...`)")
        after = self._cast.after or {}
        placed = {key: self._recorder.ref(value) for key, value in after.items() if isinstance(value, Tensor)}
        recording = self._recorder.recording
        return UpdateTemplate(
            recording=Recording(recording.buffers, _lifted(recording.calls)),
            origins={ref.buffer: origin for origin, ref in self._root_refs.items()},
            new_state={key: ref for key, ref in placed.items() if self._root_refs.get(("state", key)) != ref},
            dropped_state=tuple(key for key in self._cast.state if key not in after),
        )


# -- the same question, with other numbers -----------------------------------------------------------------------------


def _check_other_numbers(before: Snapshot, rehearsed: Rehearsed, subject: Subject, fake_mode: FakeTensorMode) -> None:
    """Compares twin and parameter once more, on other hyper-parameters and counters.

    Today's numbers may agree by chance: a warm-up that starts from `lr = 0` hides any factor. Meta tensors are quick
    but not every rule runs on them; fake ones decide when they differ or fail.
    """

    def on_meta(one: Subject) -> tuple[list[Any], list[int | float]]:
        cast = _Cast(before, rehearsed, one, _make_meta, other=True)
        cast.run(_MetaRun(cast.ledger, _answers(rehearsed.items, other=True)))
        return cast.ledger.structure, cast.ledger.numbers

    try:
        if on_meta(rehearsed.twin) == on_meta(subject):
            return
    except Exception:  # whatever a rule does on tensors without data
        pass
    try:
        twin = _Trace(before, rehearsed, rehearsed.twin, fake_mode, other=True)
        trace = _Trace(before, rehearsed, subject, fake_mode, other=True)
    except NotExpressible:
        return  # the rule does not take such numbers: nothing learnt
    trace.must_agree(tuple(twin.ledger.structure), twin.ledger.numbers)


def _make_meta(real: Tensor, strides: Sequence[int]) -> Tensor:
    return torch.empty_strided(real.shape, strides, dtype=real.dtype, device="meta")


def _answers(items: list[Any], other: bool) -> list[Any]:
    return [item + 3 if other and not isinstance(item, bool) else item for item in items]


def _same(value: Any) -> Any:
    return value


def _other(value: Any) -> Any:
    """Another number of the same kind; below one stays below one."""
    if isinstance(value, tuple):
        return tuple(map(_other, value))
    return 0.93 * value + 0.0171 if type(value) is float else value


class _RuleRecorder(Recorder):  # type: ignore[no-untyped-call]
    """Records calls and keeps the ledger; `.item()` is answered from a list."""

    def __init__(self, fake_mode: FakeTensorMode, ledger: Ledger, answers: list[Any]) -> None:
        super().__init__(fake_mode)
        self._ledger = ledger
        self._items = answers

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        facts = facts_of(func)
        if not facts.recorded:
            return func(*args, **kwargs)
        if func is ITEM:
            return _answer(self._ledger, args[0], self._items)
        if func is LIFT and not isinstance(args[0], FakeTensor):
            out = super().__torch_dispatch__(func, types, args, kwargs)
            out.constant = None  # its value comes from the twin, like every other
            self._ledger.lift(args[0], out)
            return out
        self._ledger.call(facts, args, kwargs)
        out = super().__torch_dispatch__(func, types, args, kwargs)
        self._ledger.results(facts, out)
        return out


class _MetaRun(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the ledger of a rule on meta tensors; calls that only write are left out."""

    def __init__(self, ledger: Ledger, answers: list[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ledger = ledger
        self._items = answers

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # spares a wrapper that costs more than the call

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        facts = facts_of(func)
        if func is ITEM:
            return _answer(self._ledger, args[0], self._items)
        if func is LIFT:
            out = func(*args, **kwargs)
            self._ledger.lift(args[0], out)
            return out
        if facts.recorded:
            self._ledger.call(facts, args, kwargs)
            if facts.skippable:
                return args[0] if facts.returns_self else None
        out = func(*args, **kwargs)
        if facts.recorded:
            self._ledger.results(facts, out)
        return out


def _answer(ledger: Ledger, tensor: Tensor, answers: list[Any]) -> Any:
    if not answers:
        raise ledger.refusal("reads more values for this shape than for one element")
    answer = answers.pop(0)
    ledger.item(tensor, answer)
    return answer


def _operators(structure: Sequence[Any]) -> list[str]:
    return [entry.name if isinstance(entry, OpFacts) else str(entry) for entry in structure[1:]]


def _lifted(calls: list[Call]) -> list[Call]:
    """The calls with numbers replaced by slots, in the order of the ledger."""
    count = 0

    def lift(value: Any, lifts: bool) -> Any:
        nonlocal count
        if lifts and type(value) in (int, float):
            count += 1
            return Number(count - 1, type(value))
        if isinstance(value, (list, tuple)) and not isinstance(value, Ref):
            return [lift(item, lifts) for item in value]
        return value

    lifted = []
    for call in calls:
        if call.target is LIFT and isinstance(call.args[0], Tensor):
            call = _as_full(call)
        facts = facts_of(call.target)
        args = tuple(lift(value, lifts) for value, lifts in zip(call.args, facts.lifts, strict=False))
        kwargs = {name: lift(value, facts.keyword_lifts[name]) for name, value in call.kwargs.items()}
        lifted.append(Call(call.target, args, kwargs, call.results, call.where))
    return lifted


def _as_full(call: Call) -> Call:
    # torch.tensor(x) made a tensor out of a Python number: `full` does the same from a slot.
    constant: Tensor = call.args[0]
    if constant.dim() != 0:
        return call
    form = {"dtype": constant.dtype, "device": constant.device}
    return Call(torch.ops.aten.full.default, ([], constant.item()), form, call.results, call.where)
