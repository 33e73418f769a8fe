"""The proof that an update rule treats each parameter by itself.

The rule runs on the real list of real parameters, on fake tensors, so that nothing is computed or written: place in
the group, number of parameters, identity, attributes and tables are what they are. What it does for each parameter must
be what it does for a stand-in alone, of the same form but of another identity: the same operators, windows and numbers,
the same state. What it leaves in Python must be what the twins left there.

Today's numbers may agree by chance (a table in which all rates are still 1, a warm-up), so both run once more with
other numbers: counters far ahead, and each hyper-parameter changed by a factor of its own.
"""

from __future__ import annotations

import functools
import zlib
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode

from .._capture.recorder import ITEM, LIFT, Ref, refs_in
from .._guards.guards import plain_key
from .classes import (
    ParameterClass,
    attributes_of,
    gradient_strides,
    marks_of,
    own_entries,
    place_of,
    state_form,
)
from .ledger import Ledger, NotExpressible, facts_of, rule_line
from .snapshot import Snapshot, containers_of, run_rule

_FAR = 1000  # steps ahead, where counters are asked about
_SHARED = ("hyper", "attribute")
_BY_SCHEDULERS = ("_opt_called",)


@dataclass(frozen=True)
class Performed:
    """What the twins did in the step to be proven: by class, their ledgers and the state that they left."""

    classes: Sequence[ParameterClass]
    ledgers: Sequence[Ledger]
    states: Sequence[dict[str, Any] | None]


def prove_apart(before: Snapshot, performed: Performed, *, also_far: bool) -> None:
    """Raises `NotExpressible` unless the rule does for each parameter what it does for it alone.

    `also_far` asks once more with other numbers. The optimizer is afterwards as the twins have left it.
    """
    after = Snapshot(before.optimizer, containers_of(before.optimizer))
    try:
        for far in (False, True) if also_far else (False,):
            before.restore()
            if far:
                _change_numbers(before, after)
            _Proof(before.optimizer, performed, far).compare(after)
    finally:
        before.restore()
        after.restore()


Story = tuple[Hashable, ...]  # what a rule does for one parameter


class _Proof:
    def __init__(self, optimizer: torch.optim.Optimizer, performed: Performed, far: bool) -> None:
        self._now = Snapshot(optimizer, containers_of(optimizer))
        self._optimizer = optimizer
        self._name = type(optimizer).__name__
        self._performed = performed
        self._far = far
        self._alone: dict[Hashable, Story] = {}
        fakes = (p.fake_mode for one in performed.classes for p in one.members if isinstance(p, FakeTensor))
        self._fake_mode: FakeTensorMode = next(fakes, None) or FakeTensorMode()

    def compare(self, after: Snapshot) -> None:
        """Refuses what differs; with numbers that the rule does not take, nothing is learnt."""
        try:
            together = self._run_together(after)
            for place, one in enumerate(self._performed.classes):
                for parameter in one.members:
                    self._run_alone(place, parameter)
        except NotExpressible:
            if self._far:
                return
            raise
        for place, one in enumerate(self._performed.classes):
            for parameter in one.members:
                if together[id(parameter)] != self._run_alone(place, parameter):
                    raise NotExpressible(
                        f"{self._name}.step() does for the parameter of shape {tuple(parameter.shape)} at place "
                        f"{place_of(parameter, self._now.groups[one.group][1])} of group {one.group} what it does not "
                        "do for one like it alone: it goes by place, number or identity of parameters"
                    )

    # -- the two runs ----------------------------------------------------------------------------------------------

    def _run_together(self, after: Snapshot) -> dict[int, Story]:
        """What the rule does for each parameter, on all of them."""
        optimizer, witness = self._optimizer, _Witness(self._name)
        attributes = vars(optimizer)
        members = [(place, p) for place, one in enumerate(self._performed.classes) for p in one.members]
        everyone = [p for group in optimizer.param_groups for p in group["params"]]
        hung = [dict(vars(p)) for p in everyone]
        try:
            with _tensors_kept(everyone):
                states: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
                for parameter, state in optimizer.state.items():
                    states[parameter] = dict(state)
                for actor, (place, p) in enumerate(members):
                    witness.cast(actor, self._answers(place))
                    witness.adopt(actor, p, ("param",))
                    p.grad = witness.adopt(actor, self._fake(p, gradient_strides(p)), ("grad",))
                    if p in states:
                        states[p] = self._stand_ins(witness, actor, place, states[p])
                self._share(witness, optimizer)
                attributes["state"] = states
                witness.states = {actor: (states, p) for actor, (_, p) in enumerate(members)}
                witness.run(optimizer)
                stories = {id(p): witness.story(actor) for actor, (_, p) in enumerate(members)}
                witness.check_states_apart()
                self._check_left(states, after, everyone, hung)
                return stories
        finally:
            for p, attached in zip(everyone, hung, strict=True):
                vars(p).clear()
                vars(p).update(attached)
            self._now.restore()

    def _run_alone(self, place: int, real: Parameter) -> Story:
        """What the rule does for a stand-in of `real`, with nobody else there."""
        one = self._performed.classes[place]
        group = self._now.groups[one.group][1]
        state: dict[str, Any] | None = self._optimizer.state.get(real)
        at = place_of(real, group)
        key = (place, tuple(real.shape), real.stride(), state_form(state), marks_of(real, group, at))
        if key not in self._alone:
            witness = _Witness(self._name)
            witness.cast(0, self._answers(place))
            p = Parameter(self._fake(real, real.stride()), requires_grad=real.requires_grad)
            witness.adopt(0, p, ("param",))
            vars(p).update(attributes_of(real))
            p.grad = witness.adopt(0, self._fake(real, gradient_strides(real)), ("grad",))
            states: dict[Tensor, dict[str, Any]] = {}
            if state is not None:
                states[p] = self._stand_ins(witness, 0, place, state)
            shown = {**group, **own_entries(group, at), "params": [p]}
            clone = self._now.clone(self._now.groups_with(one.group, shown, stock=False), states)
            self._share(witness, clone)
            witness.states = {0: (clone.state, p)}
            witness.run(clone)
            self._alone[key] = witness.story(0)
        return self._alone[key]

    # -- stand-ins -------------------------------------------------------------------------------------------------

    def _fake(self, real: Tensor, strides: Sequence[int]) -> Tensor:
        meta = torch.empty_strided(real.shape, strides, dtype=real.dtype, device="meta")
        return FakeTensor(self._fake_mode, meta, real.device)

    def _stand_ins(self, witness: _Witness, actor: int, place: int, state: Mapping[str, Any]) -> dict[str, Any]:
        left = self._performed.states[place] or {}
        return {
            key: witness.adopt(actor, self._fake(value, value.stride()), ("state", key))
            if isinstance(value, Tensor)
            else _other(value, left.get(key), f"state {key}")
            if self._far
            else value
            for key, value in state.items()
        }

    def _share(self, witness: _Witness, optimizer: torch.optim.Optimizer) -> None:
        """Puts fake tensors in the place of those of the groups and the optimizer."""
        for index, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if isinstance(value, Tensor):
                    origin = ("hyper", str(index), key)
                    group[key] = witness.share(self._fake(value, value.stride()), origin, value)
        for name, value in list(vars(optimizer).items()):
            if isinstance(value, Tensor):
                fake = self._fake(value, value.stride())
                vars(optimizer)[name] = witness.share(fake, ("attribute", name), value)

    def _answers(self, place: int) -> list[Any]:
        """What `.item()` gives for the parameter's own tensors, in order; shared ones answer for themselves."""
        ledger = self._performed.ledgers[place]
        origins, structure = ledger.structure[0], ledger.structure
        numbers = [structure[index + 1] for index, entry in enumerate(structure) if entry is ITEM]
        own = [number >= len(origins) or origins[number][0] not in _SHARED for number in numbers]
        answers = [answer for answer, mine in zip(ledger.items, own, strict=True) if mine]
        return [answer + _FAR if self._far and not isinstance(answer, bool) else answer for answer in answers]

    # -- what is left in Python ------------------------------------------------------------------------------------

    def _check_left(
        self, states: Mapping[Tensor, Any], after: Snapshot, everyone: Sequence[Parameter], hung: Sequence[Any]
    ) -> None:
        for parameter, attached in zip(everyone, hung, strict=True):
            if not _same_entries(vars(parameter), attached):
                raise NotExpressible(f"{self._name}.step() changes attributes of a parameter")
        known = set(map(id, everyone))
        if any(id(key) not in known for key in states):
            raise NotExpressible(f"{self._name}.step() keeps state that belongs to no parameter")
        if self._far:
            return
        tables = [vars(self._optimizer), *self._optimizer.param_groups]
        places = ["on the optimizer", *("in its group" for _ in after.groups)]
        for found, expected, where in zip(tables, after.separated(), places, strict=True):
            for key in {**found, **expected}:
                if key in ("state", "param_groups", "params", "step", *_BY_SCHEDULERS) or str(key).endswith("_hooks"):
                    continue
                if not _same(found.get(key), expected.get(key)):
                    raise NotExpressible(
                        f"{self._name}.step() leaves another {key!r} {where} for all of its parameters than for few"
                    )


def _same(one: Any, other: Any) -> bool:
    """Equal values; tensors have stand-ins and are compared as calls."""
    if one is other or (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return True
    key = plain_key(one)
    if key is not None or type(one) is not type(other):
        return key is not None and key == plain_key(other)
    if isinstance(one, dict):
        keys = zip(one, other, strict=False)
        return len(one) == len(other) and all(_same(a, b) and _same(one[a], other[b]) for a, b in keys)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, (set, frozenset)):
        return bool(one == other)
    return False


def _same_entries(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(value is other[key] for key, value in one.items())


@contextmanager
def _tensors_kept(parameters: Sequence[Parameter]) -> Iterator[None]:
    """Gradients, memory and versions are afterwards what they were; inside, nobody has a gradient yet."""
    before = [(p, p.data, p.grad, p._version) for p in parameters if not p.is_inference()]
    for p, *_ in before:
        p.grad = None
    try:
        yield
    finally:
        for p, data, grad, _ in before:
            p.grad = None
            if p.device != data.device or p.untyped_storage()._cdata != data.untyped_storage()._cdata:
                p.data = data
            p.grad = grad
        torch._C._autograd._unsafe_set_version_counter(
            tuple(p for p, *_ in before), tuple(version for *_, version in before)
        )


# -- other numbers -----------------------------------------------------------------------------------------------------


def _change_numbers(before: Snapshot, after: Snapshot) -> None:
    """Other hyper-parameters, and counters far ahead, on the optimizer itself; `before.restore()` puts them back."""
    attributes = vars(before.optimizer)
    for name, value in list(attributes.items()):
        if name not in ("param_groups", "state", "step") and not name.endswith("_hooks"):
            attributes[name] = _other(value, after.attributes.get(name), name)
    for (group, content), (_, left) in zip(before.groups, after.groups, strict=True):
        for key, value in content.items():
            if key != "params":
                group[key] = _other(value, left.get(key), key)


def _other(value: Any, left: Any, path: str) -> Any:
    """Another number of the same kind, by a factor that goes by its name; `left` is what a step makes of it."""
    kind = type(value)
    if kind is int and type(left) is int and left > value:
        return value + _FAR
    if kind is float:
        share = 0.9 + 0.08 * (zlib.crc32(path.encode()) % 1000) / 1000
        return share * value + (1 - share) * 0.25  # below one stays below one
    if kind is tuple:
        return tuple(_other(item, None, f"{path}.{index}") for index, item in enumerate(value))
    if kind is list:
        value[:] = [_other(item, None, f"{path}.{index}") for index, item in enumerate(value)]
    elif kind is dict:
        value.update((key, _other(item, None, f"{path}.{key!r}")) for key, item in list(value.items()))
    return value


# -- who does what -----------------------------------------------------------------------------------------------------


class _Witness(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows a rule on tensors without data and tells whose each call is: of the parameter whose values go in.

    A meta tensor stands behind each tensor that the rule is given; results are meta tensors. Calls on nobody's values
    (`torch.zeros(n)`) are of whoever uses their results. List operators are taken apart.
    """

    def __init__(self, optimizer: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._optimizer = optimizer
        self._behind: dict[int, Tensor] = {}  # by the id of a tensor that the rule was given
        self._own_answers: dict[int, list[Any]] = {}
        self._buffers: dict[int, int] = {}  # by storage
        self._origins: dict[int, tuple[str, ...]] = {}  # of buffers that were there before
        self._shared: dict[int, Tensor] = {}
        self._owner: dict[int, int] = {}
        self._free: dict[int, frozenset[int]] = {}  # of buffers that are nobody's: the calls that made them
        self._said: list[Any] = []  # calls, one by one
        self._calls_of: dict[int, set[int]] = {}
        self._held: list[Any] = []  # an id or a storage is a name only while its tensor lives
        self._last: int = 0
        self._refused: NotExpressible | None = None
        self.states: dict[int, tuple[Mapping[Tensor, dict[str, Any]], Tensor]] = {}  # where each has its state

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # spares a wrapper that costs more than the call

    def cast(self, actor: int, answers: list[Any]) -> None:
        """Makes a parameter known; `.item()` of its tensors gives the answers in turn."""
        self._own_answers[actor] = answers
        self._calls_of[actor] = set()

    def adopt(self, actor: int, tensor: Tensor, origin: tuple[str, ...]) -> Tensor:
        """Makes a tensor known as a parameter's own."""
        self._owner[self._root(tensor, origin)] = actor
        return tensor

    def share(self, tensor: Tensor, origin: tuple[str, ...], real: Tensor) -> Tensor:
        """Makes a tensor known that all parameters may read."""
        self._shared[self._root(tensor, origin)] = real
        return tensor

    def _root(self, tensor: Tensor, origin: tuple[str, ...]) -> int:
        meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        self._held.append(tensor)
        self._behind[id(tensor)] = meta
        buffer = self.ref(meta).buffer
        self._origins[buffer] = origin
        return buffer

    def ref(self, tensor: Tensor) -> Ref:
        """Which window on which buffer a tensor shows."""
        meta = self._behind.get(id(tensor), tensor)
        if not meta.is_meta or meta.layout is not torch.strided:
            raise self._refusal(
                "uses a tensor that is neither a parameter of its groups, a gradient, state nor made from them"
            )
        self._held.append(meta)
        buffer = self._buffers.setdefault(meta.untyped_storage()._cdata, len(self._buffers))
        return Ref(buffer, meta.dtype, tuple(meta.shape), meta.stride(), int(meta.storage_offset()))

    def run(self, optimizer: torch.optim.Optimizer) -> None:
        """Runs the rule once."""
        try:
            with self:
                run_rule(optimizer)
        except NotExpressible:
            raise
        except Exception as error:
            said = f"fails on tensors without data: {error!r}"
            if "set_data" in str(error):
                said = "gives a parameter new memory (`p.data = ...`)"
            raise NotExpressible(f"{self._optimizer}.step() {said}") from error
        if self._refused is not None:  # which the rule has caught
            raise self._refused

    # -- calls -----------------------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        facts = facts_of(func)
        if not facts.recorded:
            return func(*args, **kwargs)
        if func is ITEM:
            return self._answer(args[0])
        if func is LIFT and not args[0].is_meta:
            lifted = torch.empty_like(args[0], device="meta")
            self._note(facts.name, [args[0].clone()], [self.ref(lifted)], written=[])
            return lifted
        refs = [self._refs(argument) for argument in args]
        named = {name: self._refs(argument) for name, argument in kwargs.items()}
        out: Any = None
        results: list[Any] = []
        if not facts.skippable:
            out = func(*map(self._metas, args), **self._on_meta(func, kwargs))
            results = [self._refs(one) for one in (out if isinstance(out, (list, tuple)) else [out])]
        written = facts.written_in(tuple(refs), named)
        for arguments, made in _parts(func, [*refs, *named.items()], results):
            self._note(facts.name, arguments, made, written=written)
        return args[0] if facts.returns_self else out

    def _metas(self, tree: Any) -> Any:
        if isinstance(tree, Tensor):
            return self._behind.get(id(tree), tree)
        return [self._metas(item) for item in tree] if isinstance(tree, (list, tuple)) else tree

    def _refs(self, tree: Any) -> Any:
        if isinstance(tree, Tensor):
            return self.ref(tree)
        return [self._refs(item) for item in tree] if isinstance(tree, (list, tuple)) else tree

    def _on_meta(self, func: torch._ops.OpOverload, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        inner = {name: self._metas(argument) for name, argument in kwargs.items()}
        if _takes_device(func):
            inner["device"] = torch.device("meta")
        return inner

    def _answer(self, tensor: Tensor) -> Any:
        ref = self.ref(tensor)
        if ref.buffer in self._shared:
            return self._shared[ref.buffer].item()
        actor = self._owner.get(ref.buffer)
        if actor is None and ref.buffer in self._free:
            actor = self._keeper(ref.buffer)
        if actor is None or not self._own_answers[actor]:
            raise self._refusal("reads a value that is no parameter's own")
        self._note("item", [ref], [], written=[])
        return self._own_answers[actor].pop(0)

    def _keeper(self, buffer: int) -> int | None:
        """Whose state holds a tensor that was made of nobody's values, such as a counter; it is theirs from now on."""
        actors = [*range(self._last, len(self.states)), *range(self._last)]  # most rules go from one to the next
        for actor in actors:
            if any(isinstance(v, Tensor) and self.ref(v).buffer == buffer for v in self._state(actor).values()):
                self._owner[buffer] = self._last = actor
                self._calls_of[actor] |= self._free[buffer]
                return self._last
        return None

    def _state(self, actor: int) -> dict[str, Any]:
        states, parameter = self.states[actor]
        return states.get(parameter, {})

    def _note(self, name: str, arguments: list[Any], results: list[Any], *, written: list[Any]) -> None:
        index = len(self._said)
        self._said.append((name, arguments, results))
        read = {ref.buffer for ref in refs_in(arguments)}
        made = {ref.buffer for ref in refs_in(results)} | (read & {ref.buffer for ref in refs_in(written)})
        owners = {self._owner[b] for b in read | made if b in self._owner}
        if len(owners) > 1 or not made.isdisjoint(self._shared):
            raise self._refusal(f"mixes several parameters in {name}")
        calls = frozenset().union(*(self._free.get(b, ()) for b in read | made)) | {index}
        for actor in owners:
            self._calls_of[actor] |= calls
            self._owner.update(dict.fromkeys(made, actor))
        if not owners:
            self._free.update(dict.fromkeys(made, calls))

    def _refusal(self, reason: str) -> NotExpressible:
        self._refused = NotExpressible(f"{self._optimizer}.step() {reason} ({rule_line()})")
        return self._refused

    def check_states_apart(self) -> None:
        """Refuses a tensor in the state of several parameters."""
        keeper: dict[int, int] = {}
        for actor in self.states:
            for value in self._state(actor).values():
                if isinstance(value, Tensor) and keeper.setdefault(self.ref(value).buffer, actor) != actor:
                    raise self._refusal("keeps one tensor in the state of several parameters")

    # -- what was seen ---------------------------------------------------------------------------------------------

    def story(self, actor: int) -> Story:
        """What was done for a parameter, and the state that it has then; buffers are numbered as they turn up."""
        numbers: dict[int, int] = {}

        def told(value: Any) -> Hashable:
            if isinstance(value, Ref):
                known: Hashable = self._origins.get(value.buffer)
                if known is None:
                    known = numbers.setdefault(value.buffer, len(numbers))
                return (known, *value[1:])
            if isinstance(value, Tensor):
                return (value.dtype, repr(value.tolist()))
            if isinstance(value, (list, tuple)):
                return tuple(map(told, value))
            return plain_key(value) or repr(value)

        states, parameter = self.states[actor]
        left = [
            (key, self.ref(value) if isinstance(value, Tensor) else value) for key, value in self._state(actor).items()
        ]
        made = frozenset().union(*(self._free.get(ref.buffer, ()) for ref in refs_in(left)))
        calls = [self._said[index] for index in sorted(self._calls_of[actor] | made)]
        return told(calls), told(left), parameter in states, len(self._own_answers[actor])


@functools.lru_cache(4096)
def _takes_device(func: torch._ops.OpOverload) -> bool:
    return any(argument.name == "device" for argument in func._schema.arguments)


def _parts(func: torch._ops.OpOverload, arguments: list[Any], results: list[Any]) -> list[tuple[list[Any], list[Any]]]:
    """A call, or each element of a list operator as a call of its own."""
    lists = [a for a in arguments if isinstance(a, list) and any(isinstance(item, Ref) for item in a)]
    if not lists or not func._schema.name.startswith(("aten::_foreach_", "aten::_fused_")):
        return [(arguments, results)]
    length = len(lists[0])

    def cut(value: Any, place: int) -> Any:
        return [value[place]] if isinstance(value, list) and len(value) == length else value

    return [([cut(a, place) for a in arguments], cut(results, place)) for place in range(length)]
