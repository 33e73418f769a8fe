"""Lowering: a tape and its optimizers' update rules as one flat list of operators over buffers.

Views disappear (a view is a window on a buffer, not an operator), `optimizer.step()` becomes its per-parameter
operators, and every buffer learns what it is: bound (somebody else's memory), made (kept by the caller) or planned (in
the arena).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

import torch

from .. import _core
from .._base.devices import CPU
from .._base.engine_switches import fills_new_memory
from .._base.pause import PAUSE
from .._base.schemas import positional
from .._capture.recorder import LIFT, Call, Ref, Where, is_pure, may_draw, refs_in, written_buffers
from .._capture.tape import PauseMark, Root, Tape, UpdateMark
from .._optimizer.opaque import OPAQUE_UPDATE
from .._optimizer.template import Number, UpdateTemplate
from .._optimizer.twin import NotExpressible, TwinRun
from ..errors import CaptureError

CLONE = torch.ops.aten.clone.default
FULL = torch.ops.aten.full.default
# What these make depends on nothing but the form of what they are given, with this in every element.
_FILLED_LIKE = {torch.ops.aten.ones_like.default: 1, torch.ops.aten.zeros_like.default: 0}
DETACH = torch.ops.aten.detach.default


@dataclass(frozen=True, slots=True)
class StateRoot:
    """A tensor of an optimizer's: its state for a parameter, a group's hyper-parameter, or an attribute."""

    kind: str  # state, hyper, attribute
    optimizer: int
    owner: str | int  # the parameter's name for state, the group's index for a hyper-parameter
    key: str


@dataclass(slots=True)
class Buffer:
    """Memory behind one or more windows."""

    nbytes: int
    kind: str = "planned"  # planned, bound, made; aside: made as well, and gone with the step
    role: str = "activation"
    name: str = ""
    root: Root | StateRoot | None = None
    device: torch.device = CPU


@dataclass(slots=True)
class Operator:
    """One dispatcher call that computes, its arguments in schema order."""

    target: torch._ops.OpOverload
    arguments: list[Any]  # Ref, Number, lists of them, constants, DEFAULT
    results: list[Ref | None]
    made: list[bool]  # result i is the first window on a new buffer
    writes: list[int]  # buffers that it writes and did not make
    where: Where
    grad_mode: bool = False  # runs with gradients enabled
    backward: bool = False  # autograd's
    region: int = 0  # of the step, which is to run again; 0: none
    held: list[Ref] = field(default_factory=list)  # what must be there while it runs, beside its arguments

    def reads(self) -> Iterator[Ref]:
        """The windows it reads, those that it writes in place included."""
        return refs_in(self.arguments)

    def new_results(self) -> Iterator[Ref]:
        """The first windows on buffers that it makes."""
        return (ref for ref, new in zip(self.results, self.made, strict=True) if new and ref is not None)


@dataclass(slots=True)
class Lowered:
    """A step, flat. `numbers` counts the lifted numbers, over all optimizers."""

    operators: list[Operator] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    new_state: list[tuple[int, str, str, Ref]] = field(default_factory=list)  # optimizer, parameter, key, where
    dropped_state: list[tuple[int, str, str]] = field(default_factory=list)
    updates: dict[int, str] = field(default_factory=dict)  # operator index -> parameter whose update it belongs to
    pauses: dict[int, PauseMark] = field(default_factory=dict)  # by operator
    shared: list[tuple[int, Root, int]] = field(default_factory=list)  # what else a bound buffer has, at which byte
    misled: dict[str, bool] = field(default_factory=dict)  # calls whose fakes had wrong strides -> that is news
    absent: set[int] = field(default_factory=set)  # buffers of results that the real operator does not give
    opaque: list[tuple[int, str, str]] = field(default_factory=list)  # optimizer, parameter, why: by the rule itself
    late_gradients: list[tuple[int, str]] = field(default_factory=list)  # optimizer, parameter: for an eager update
    kept: set[int] = field(default_factory=set)  # buffers whose content is never to be made again
    outputs: list[Ref] = field(default_factory=list)  # result leaves, gradients, module buffers, state, late gradients
    outputs_at_turn: int = 0  # of these, the first: a region hands them out between its two passes
    device: torch.device = CPU  # where planned buffers lie

    def whole(self, buffer: int) -> Ref:
        """A window on all of its bytes."""
        return Ref(buffer, torch.uint8, (self.buffers[buffer].nbytes,), (1,), 0)

    def lies_on_cpu(self, buffer: int) -> None:
        """A buffer of a step of another device: it is small, and lies in ordinary memory until the step's end."""
        self.buffers[buffer].device = CPU
        if self.buffers[buffer].kind == "planned":
            self.buffers[buffer].kind = "aside"


def lower(
    tape: Tape, runs: dict[int, TwinRun], *, as_eager: bool = False, model_tensors: Iterable[str] = ()
) -> Lowered:
    """Composes `tape` with this step's update rules, the `runs` by optimizer.

    An optimizer without a run updates after the program, eagerly: its gradients become outputs. With `as_eager` all is
    as plain PyTorch would make and hold it: rules of list operators (`_foreach_...`) update all parameters in step, not
    one after the other, variables and autograd hold what they do, and what a checkpoint computes again is new memory.
    Tensors of the model that are named come first, whether the step uses them or not.
    """
    return _Lowering(tape, runs, as_eager).result(model_tensors)


def numbers_of(runs: dict[int, TwinRun]) -> list[int | float]:
    """This step's lifted numbers, of all optimizers, in the order in which `lower` counts them, before the tape's."""
    return [number for run in runs.values() for number in run.numbers]


class _UpdateCall(NamedTuple):
    target: torch._ops.OpOverload
    place: int  # of its operator; of the one before if it is a view
    result: Ref | None


class _LeftOver(NamedTuple):
    """What the update of one parameter leaves to the next one of its group, if that has the same rule."""

    group: int
    rule: Sequence[torch._ops.OpOverload]
    held: Sequence[tuple[Ref, int]]  # through which call of the next


class _Lowering:
    def __init__(self, tape: Tape, runs: dict[int, TwinRun], as_eager: bool) -> None:
        self.tape = tape
        self.runs = runs
        self.as_eager = as_eager
        counts = [len(run.numbers) for run in runs.values()]
        self.first_number = dict(zip(runs, accumulate(counts, initial=0), strict=False))
        self.tape_numbers = sum(counts)  # the first number of the tape's own
        self.lowered = Lowered()
        self.buffer_of: dict[int, int] = {}  # recorded buffer -> ours
        self.parameter_of = {
            root.key: (recorded, root)
            for recorded, roots in tape.roots.items()
            for root in roots
            if root.kind == "parameter"
        }
        self.hyper_of: dict[StateRoot, int] = {}
        self.known: set[int] = set()  # buffers that hold something already
        self.operators_after_call: list[int] = []  # how many there are then
        self.operators_after_update: list[int] = []

    def result(self, model_tensors: Iterable[str]) -> Lowered:
        self._add_model_tensors(model_tensors)
        marks: dict[int, list[UpdateMark]] = {}
        for mark in self.tape.updates:
            marks.setdefault(mark.position, []).append(mark)
        pauses: dict[int, list[PauseMark]] = {}
        for pause in self.tape.pauses:
            pauses.setdefault(pause.position, []).append(pause)
        for position, call in enumerate(self.tape.recording.calls):
            self._add_pauses(pauses.get(position, ()))
            self._add_updates(marks.get(position, ()))
            if self.as_eager and call.may_add_in_place:
                self._accumulate_in_place(call, position)
            if self.as_eager or not call.repeats:
                self._add_call(call, self._tape_window, call.where, self._tape_number)
            self.operators_after_call.append(len(self.lowered.operators))
        self._add_pauses(pauses.get(len(self.tape.recording.calls), ()))
        self._add_updates(marks.get(len(self.tape.recording.calls), ()))
        self._order_around_pauses()
        self._keep_what_is_left_behind()
        if self.as_eager:
            self._hold_as_variables_do()
        self._choose_device()
        known = map(self.tape.recording.known, self.tape.recording.kept)
        self.lowered.kept = {self.buffer_of[recorded] for recorded in known if recorded in self.buffer_of}
        return self.lowered

    def _choose_device(self) -> None:
        planned = [index for index, buffer in enumerate(self.lowered.buffers) if buffer.kind == "planned"]
        devices = {self.lowered.buffers[index].device for index in planned} - {CPU}
        if len(devices) > 1:
            raise CaptureError(f"the step works on {' and '.join(sorted(map(str, devices)))}: only one is planned")
        for device in devices:
            self.lowered.device = device
            for index in planned:
                if self.lowered.buffers[index].device == CPU:
                    self.lowered.lies_on_cpu(index)

    # -- buffers ---------------------------------------------------------------------------------------------------

    def _new_buffer(self, buffer: Buffer) -> int:
        self.lowered.buffers.append(buffer)
        index = len(self.lowered.buffers) - 1
        if buffer.kind == "bound":
            self.known.add(index)
        return index

    def _add_model_tensors(self, names: Iterable[str]) -> None:
        lies_in = {
            root.key: recorded
            for recorded, roots in self.tape.roots.items()
            for root in roots
            if root.kind in ("parameter", "buffer")
        }
        for name in names:
            if name in lies_in:
                self._tape_buffer(lies_in[name])

    def _tape_buffer(self, recorded: int) -> int:
        recorded = recorded if self.as_eager else self.tape.recording.known(recorded)
        index = self.buffer_of.get(recorded)
        if index is None:
            source = self.tape.recording.buffers[recorded]
            roots = self.tape.roots.get(recorded)
            if roots is None:
                index = self._new_buffer(Buffer(source.nbytes, name=source.name, device=source.device))
            else:
                first, *others = sorted(roots, key=lambda root: root.kind == "input")  # inputs come and go
                index = self._new_buffer(Buffer(source.nbytes, "bound", source.role, source.name, first, source.device))
                self.lowered.shared += [(index, root, root.offset - first.offset) for root in others]
            self.buffer_of[recorded] = index
        return index

    def _tape_window(self, ref: Ref) -> Ref:
        index = self._tape_buffer(ref.buffer)
        return ref._replace(buffer=index, offset=self._from_bound(index, ref.offset * ref.dtype.itemsize, ref.dtype))

    def _tape_number(self, number: Number) -> Number:
        return Number(self.tape_numbers + number.index, number.kind)

    def _from_bound(self, index: int, byte: int, dtype: torch.dtype) -> int:
        """Windows on bound memory count from the first element of the bound tensor, in items of their own."""
        root = self.lowered.buffers[index].root
        if isinstance(root, Root):
            byte -= root.offset
        if byte % dtype.itemsize:
            raise CaptureError(f"{self.lowered.buffers[index].name} is seen as {dtype} from within one of its elements")
        return byte // dtype.itemsize

    def _parameter_place(self, name: str) -> tuple[int, int]:
        """The buffer that a parameter lies in, and which of its elements is the parameter's first."""
        recorded, root = self.parameter_of[name]
        index = self._tape_buffer(recorded)
        return index, self._from_bound(index, root.offset, self.tape.parameters[name].dtype)

    # -- operators -------------------------------------------------------------------------------------------------

    def _add_call(
        self, call: Call, window: Callable[[Ref], Ref], where: Where, number: Callable[[Number], Any]
    ) -> None:
        def translate(tree: Any) -> Any:
            if isinstance(tree, Ref):
                return window(tree)
            if isinstance(tree, Number):
                return number(tree)
            if isinstance(tree, (list, tuple)):
                return [translate(item) for item in tree]
            return tree

        target = call.target
        if target is LIFT and isinstance(call.args[0], torch.Tensor):
            arguments: list[Any] = positional(CLONE, (self._constant(call.args[0]),), {})
            target = CLONE
        elif target in _FILLED_LIKE and (made := call.results[0]) is not None and _is_contiguous(made):
            # Whoever waits for the content of what it is like, waits for nothing: gradients of a loss begin with this.
            form = {"dtype": made.dtype, "device": made.device}
            arguments = positional(FULL, (list(made.sizes), _FILLED_LIKE[target]), form)
            target = FULL
        else:
            arguments = [translate(item) for item in positional(target, call.args, call.kwargs)]
        results = [None if ref is None else window(ref) for ref in call.results]
        writes = written_buffers(target, arguments)
        is_made: list[bool] = []
        for ref in results:
            is_made.append(ref is not None and ref.buffer not in self.known)
            if ref is not None and ref.buffer not in self.known:
                self.known.add(ref.buffer)
                buffer = self.lowered.buffers[ref.buffer]
                buffer.name = f"{target} of {where.module}" if where.module else str(target)
        shows = any(ref is not None for ref in results) and not any(is_made)
        if shows and (not writes or torch.Tag.inplace_view in target.tags):
            return  # a view: it only says which window
        self.lowered.operators.append(
            Operator(target, arguments, results, is_made, writes, where, call.grad_mode, call.backward, call.region)
        )

    def _constant(self, tensor: torch.Tensor) -> Ref:
        nbytes, root = tensor.untyped_storage().nbytes(), Root("constant", tensor)
        index = self._new_buffer(Buffer(nbytes, "bound", "constant", "constant", root, tensor.device))
        return Ref(index, tensor.dtype, tuple(tensor.shape), tensor.stride(), 0, tensor.device)

    def _accumulate_in_place(self, call: Call, position: int) -> None:
        """Autograd adds to a gradient in place if it has the last reference to it: if it is gone after the call."""
        old, total = call.args[0], call.results[0]
        ends_here = self.tape.recording.ends.get(old.buffer, (0, 0))[0] == position + 1
        if ends_here and total is not None and total.sizes == old.sizes and _is_dense(old):
            self.buffer_of[total.buffer] = self._tape_buffer(old.buffer)

    def _hold_as_variables_do(self) -> None:
        """What variables and autograd hold beyond the last use, the last operator before its end holds."""
        for recorded, (calls, updates) in self.tape.recording.ends.items():
            index = self.buffer_of.get(recorded)
            before = (*self.operators_after_call[calls - 1 : calls], *self.operators_after_update[:updates])
            through = max(before, default=0)
            if index is None or not through or self.lowered.buffers[index].kind != "planned":
                continue
            last = self.lowered.operators[through - 1]
            if all(ref.buffer != index for ref in last.new_results()):
                last.held.append(self.lowered.whole(index))

    # -- pauses ----------------------------------------------------------------------------------------------------

    def _add_pauses(self, marks: Sequence[PauseMark]) -> None:
        for mark in marks:
            value = self._tape_window(mark.value)
            strides = tuple(math.prod(value.sizes[place + 1 :]) for place in range(len(value.sizes)))
            nbytes = math.prod(value.sizes) * value.dtype.itemsize
            made = self._new_buffer(
                Buffer(nbytes, "made", "output", "value asked for in mid-step", device=value.device)
            )
            self.known.add(made)
            result = Ref(made, value.dtype, value.sizes, strides, 0, value.device)
            self.lowered.pauses[len(self.lowered.operators)] = mark
            self.lowered.operators.append(Operator(PAUSE, [value, []], [result], [True], [], mark.where))

    def _order_around_pauses(self) -> None:
        """Writes to bound memory stay on their side of a pause; so does what needs things that are known only later.

        These are the optimizers' numbers, which are read when they step, and tensors from outside.
        """
        operators, buffers = self.lowered.operators, self.lowered.buffers
        lasting: dict[int, Ref] = {}
        for operator in operators if self.lowered.pauses else ():
            for ref in operator.reads():
                if ref.buffer in operator.writes and buffers[ref.buffer].kind == "bound":
                    lasting.setdefault(ref.buffer, ref)
        roots = [(index, buffer.root) for index, buffer in enumerate(buffers)]
        inputs = {index: root.key for index, root in roots if isinstance(root, Root) and root.kind == "input"}
        for place, mark in self.lowered.pauses.items():
            late = {buffer for buffer, leaf in inputs.items() if leaf >= mark.inputs}
            pause = operators[place]
            pause.arguments[1] = [ref for buffer, ref in lasting.items() if buffer not in late]
            for index, operator in enumerate(operators):
                if index in self.lowered.updates or any(ref.buffer in late for ref in operator.reads()):
                    operator.held += [ref for ref in pause.results if ref is not None]

    # -- updates ---------------------------------------------------------------------------------------------------

    def _add_updates(self, marks: Sequence[UpdateMark]) -> None:
        for mark in marks:
            run = self.runs.get(mark.optimizer)
            if run is None:
                self.operators_after_update.append(len(self.lowered.operators))
                continue
            begin = len(self.lowered.operators)
            before: _LeftOver | None = None
            for name, gradient in mark.gradients.items():
                parameter = self.tape.parameters[name]
                try:
                    template, first = run.template(parameter, gradient.strides)
                except NotExpressible as error:
                    self._add_opaque_update(mark, name, gradient, str(error))
                    continue
                calls = self._add_update(mark, name, gradient, template, self.first_number[mark.optimizer] + first)
                if self.as_eager:
                    before = self._hold_over(before, mark.groups[name], calls, *run.held_over(parameter))
            if self.as_eager:
                self._bring_lists_together(begin)
            self.operators_after_update.append(len(self.lowered.operators))

    def _hold_over(
        self,
        before: _LeftOver | None,
        group: int,
        calls: Sequence[_UpdateCall],
        rule: Sequence[torch._ops.OpOverload],
        through: Mapping[int, int],
    ) -> _LeftOver:
        """Lets the update hold what the one before leaves to it; gives what it leaves in turn.

        Calls that make state come before those of the rule.
        """
        own = calls[len(calls) - len(rule) :]
        if [call.target for call in own] != rule:
            return _LeftOver(group, [], [])
        if before is not None and (before.group, before.rule) == (group, rule):
            for ref, call in before.held:
                self.lowered.operators[own[call].place].held.append(ref)
        made = ((own[call].result, last) for call, last in through.items())
        return _LeftOver(group, rule, [(ref, last) for ref, last in made if ref is not None])

    def _bring_lists_together(self, begin: int) -> None:
        """From `begin` on: new state, and rules without lists; the first call of every other rule; the second."""
        operators = self.lowered.operators[begin:]
        names = [self.lowered.updates[begin + index] for index in range(len(operators))]
        pairs = list(zip(operators, names, strict=True))
        of_lists = {name for operator, name in pairs if operator.target._schema.name.startswith("aten::_foreach_")}
        new_state = {ref.buffer for *_, ref in self.lowered.new_state}
        calls = dict.fromkeys(names, -1)
        turns: list[int] = []
        for operator, name in pairs:
            makes_state = any(ref.buffer in new_state for ref in operator.new_results())
            calls[name] += name in of_lists and not makes_state
            turns.append(-1 if makes_state else calls[name])
        order = sorted(range(len(operators)), key=turns.__getitem__)
        self.lowered.operators[begin:] = [operators[index] for index in order]
        self.lowered.updates.update({begin + place: names[index] for place, index in enumerate(order)})

    def _add_update(
        self, mark: UpdateMark, name: str, gradient: Ref, template: UpdateTemplate, first_number: int
    ) -> list[_UpdateCall]:
        own: dict[int, tuple[int, int]] = {}  # recorded in the template -> our buffer, and what to add to offsets

        def window(ref: Ref) -> Ref:
            if ref.buffer not in own:
                own[ref.buffer] = self._update_buffer(mark, name, gradient, template, ref.buffer)
            index, base = own[ref.buffer]
            return ref._replace(buffer=index, offset=base + ref.offset)

        def number(relative: Number) -> Number:
            return Number(first_number + relative.index, relative.kind)

        begin = len(self.lowered.operators)
        calls: list[_UpdateCall] = []
        for call in template.recording.calls:
            self._add_call(call, window, Where(mark.where.source, name), number)
            result = window(call.results[0]) if call.results and call.results[0] else None
            calls.append(_UpdateCall(call.target, len(self.lowered.operators) - 1, result))
        for index in range(begin, len(self.lowered.operators)):
            self.lowered.updates[index] = name
        for key, ref in template.new_state.items():
            self.lowered.new_state.append((mark.optimizer, name, key, window(ref)))
        self.lowered.dropped_state += [(mark.optimizer, name, key) for key in template.dropped_state]
        return calls

    def _add_opaque_update(self, mark: UpdateMark, name: str, gradient: Ref, reason: str) -> None:
        """The rule has been proven to treat each parameter on its own, but has no template for this one."""
        parameter = self.tape.parameters[name]
        there, first = self._parameter_place(name)
        window = Ref(there, parameter.dtype, tuple(parameter.shape), parameter.stride(), first, parameter.device)
        arguments = [window, self._tape_window(gradient), -1]  # its key comes with the program
        self.lowered.updates[len(self.lowered.operators)] = name
        where = Where(mark.where.source, name)
        self.lowered.operators.append(Operator(OPAQUE_UPDATE, arguments, [], [], [there], where))
        self.lowered.opaque.append((mark.optimizer, name, reason))

    def _update_buffer(
        self, mark: UpdateMark, name: str, gradient: Ref, template: UpdateTemplate, recorded: int
    ) -> tuple[int, int]:
        origin = template.origins.get(recorded)
        source = template.recording.buffers[recorded]
        nbytes, device = source.nbytes, source.device
        if origin is None:
            return self._new_buffer(Buffer(nbytes, role="temporary", device=device)), 0
        if origin == ("param",):
            return self._parameter_place(name)
        if origin == ("grad",):
            there = self._tape_window(gradient)
            return there.buffer, there.offset
        kind, key = origin
        if kind == "state":
            root = StateRoot(kind, mark.optimizer, name, key)
            return self._new_buffer(Buffer(nbytes, "bound", "optimizer_state", f"{name}.{key}", root, device)), 0
        root = StateRoot(kind, mark.optimizer, mark.groups[name] if kind == "hyper" else 0, key)
        if root not in self.hyper_of:  # one tensor serves the whole group
            self.hyper_of[root] = self._new_buffer(Buffer(nbytes, "bound", "constant", key, root, device))
        return self.hyper_of[root], 0

    # -- what the caller keeps ---------------------------------------------------------------------------------------

    def _keep_what_is_left_behind(self) -> None:
        def keep(ref: Ref, role: str, name: str) -> None:
            self.lowered.outputs.append(ref)
            buffer = self.lowered.buffers[ref.buffer]
            if buffer.kind == "planned":
                buffer.kind, buffer.role, buffer.name = "made", role, name

        for index, leaf in enumerate(self.tape.result_leaves):
            if isinstance(leaf, Ref):
                keep(self._tape_window(leaf), "output", f"output{index}")
        for name, gradient in self.tape.new_gradients.items():
            if gradient is not None:
                keep(self._tape_window(gradient), "gradient", f"{name}.grad")
        for ref in self.tape.dropped_gradients:
            buffer = self.lowered.buffers[self._tape_window(ref).buffer]
            if buffer.kind == "planned":
                buffer.role = "gradient"
        for name, ref in self.tape.new_buffers.items():
            keep(self._tape_window(ref), "buffer", name)
        for _, name, key, ref in self.lowered.new_state:
            keep(ref, "optimizer_state", f"{name}.{key}")
        for mark in self.tape.updates:
            if mark.optimizer not in self.runs:
                for name, gradient in mark.gradients.items():
                    self.lowered.late_gradients.append((mark.optimizer, name))
                    keep(self._tape_window(gradient), "gradient", f"{name}.grad")


def reuses(operator: Operator, buffers: Sequence[Buffer]) -> Iterator[tuple[int, int]]:
    """Buffers that it reads in whose bytes it can make a result, and that result's: the same form, and no other view.

    Whether it does is for the plan to decide: it can where nothing needs the buffer afterwards.
    """
    result = operator.results[0] if operator.results and operator.made[0] else None
    if fills_new_memory():
        return  # which would be the operand's
    if result is None or buffers[result.buffer].kind != "planned" or not _fills(result, buffers[result.buffer]):
        return
    if result.device.type != "cpu" and torch.Tag.pointwise not in operator.target.tags:
        return  # the table was tried on the CPU's kernels; elsewhere, what PyTorch itself does in place
    positions = _core.op_row(operator.target._schema.name).result_over
    candidates = [operator.arguments[position] for position in positions if position < len(operator.arguments)]
    form = result._replace(buffer=-1)
    for source in dict.fromkeys(argument for argument in candidates if isinstance(argument, Ref)):
        same = source._replace(buffer=-1) == form and buffers[source.buffer].nbytes == buffers[result.buffer].nbytes
        alone = [ref for ref in operator.reads() if ref.buffer == source.buffer]
        if (
            same
            and buffers[source.buffer].kind == "planned"
            and source.buffer not in operator.writes
            and len(alone) == candidates.count(source)
        ):
            yield source.buffer, result.buffer


def _is_dense(ref: Ref) -> bool:
    """Whether its elements lie side by side, in any order, each once."""
    end = 1
    for stride, size in sorted(zip(ref.strides, ref.sizes, strict=True)):
        if size != 1 and stride != end:
            return False
        end *= size
    return True


def _is_contiguous(ref: Ref) -> bool:
    """Whether its elements lie as a new tensor's would."""
    end = 1
    for stride, size in zip(reversed(ref.strides), reversed(ref.sizes), strict=True):
        if size != 1 and stride != end:
            return False
        end *= size
    return True


def _fills(ref: Ref, buffer: Buffer) -> bool:
    """Whether it shows every byte of its buffer, each once, and there are any."""
    return 0 < buffer.nbytes == ref.extent() == math.prod(ref.sizes) * ref.dtype.itemsize and ref.offset == 0


def check_last(tape: Tape, mark: UpdateMark) -> None:
    """Refuses an eager update that something after it on the tape depends on."""
    touched = {ref.buffer for ref in mark.gradients.values()}
    touched |= {
        b for b, roots in tape.roots.items() if any(r.kind == "parameter" and r.key in mark.gradients for r in roots)
    }
    for call in tape.recording.calls[mark.position :]:
        if touched & {ref.buffer for ref in refs_in((call.args, call.kwargs))} and call.target is not DETACH:
            raise CaptureError(
                f"{call.target} uses parameters or gradients after optimizer.step() ({call.where.source})"
            )


def is_effect(operator: Operator) -> bool:
    """Whether it is there only for what it does, such as raising an error."""
    return not operator.results and not operator.writes


def is_random(operator: Operator) -> bool:
    """Whether it may advance the random state; the user's own rule is called with the state of its optimizer."""
    if operator.target is OPAQUE_UPDATE or not may_draw(operator.target):
        return False
    # Attention and dropout are seeded only when they drop.
    for schema, argument in zip(operator.target._schema.arguments, operator.arguments, strict=True):
        if schema.name == "dropout_p" and is_pure(operator.target):
            return bool(argument) and isinstance(argument, float)
    return True


def runs_once(operator: Operator) -> bool:
    """Whether a second run could be seen: by the world, or by an operator that is not PyTorch's own."""
    return not is_pure(operator.target) or is_effect(operator)


def optional_updates(operator: Operator, buffers: Sequence[Buffer]) -> list[int]:
    """Arguments that it does without when it runs again: running statistics, which only the first run may update.

    They are the caller's and all that it writes, and it finds their dtype elsewhere: results have it too.
    """
    row = _core.op_row(operator.target._schema.name)
    condition, hidden = row.hidden_writes_condition, row.hidden_writes
    if not row.hidden_writes_are_optional or not (condition is None or operator.arguments[condition]):
        return []
    updated = [ref for index in hidden for ref in refs_in(operator.arguments[index])]
    others = [ref for index, item in enumerate(operator.arguments) if index not in hidden for ref in refs_in(item)]
    only_writes = {ref.buffer for ref in updated} == set(operator.writes)
    known_dtypes = {ref.dtype for ref in updated} <= {ref.dtype for ref in others}
    apart = not any(ref.buffer in operator.writes for ref in others)
    outside = all(buffers[buffer].kind != "planned" for buffer in operator.writes)
    return hidden if updated and only_writes and known_dtypes and apart and outside else []
