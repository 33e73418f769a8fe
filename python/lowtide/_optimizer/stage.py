"""The stage: where one-element twins stand in for the parameters while the user's `optimizer.step()` runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.optim.optimizer as torch_optimizer
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .._capture.recorder import ITEM, LIFT
from .classes import ParameterClass
from .ledger import Ledger, NotExpressible, OpFacts, facts_of, rule_line
from .snapshot import separate

_HOOK = -1  # our key in the optimizer's hook tables; PyTorch counts its own from 0
_ABSENT = object()


class Stage(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Swaps twins in while the rule runs, and keeps a ledger per class.

    A group whose parameters fall into several classes is shown to the rule as several groups. An optimizer with step
    hooks does not come on stage: hooks look at gradients and state, and the program that makes them has not run yet.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, classes: list[ParameterClass]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._optimizer = optimizer
        self._name = type(optimizer).__name__
        self._cast: list[tuple[int, ParameterClass | None]] = []  # per group on stage: the user's group, and the class
        for index in range(len(optimizer.param_groups)):
            own: list[ParameterClass | None] = [one for one in classes if one.group == index]
            self._cast += [(index, one) for one in own or [None]]
        self._stand_ins: dict[tuple[int, str], Tensor] = {}
        self._depth = 0
        self._fell = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # spares a wrapper that costs more than the rest of a call; nobody compiles this

    # -- the step --------------------------------------------------------------------------------------------------

    def perform(self) -> tuple[list[Ledger], list[dict[str, Any] | None]]:
        """One call of the user's `optimizer.step()`; gives the ledger and the twin's state of each class."""
        before: Any = self._optimizer._optimizer_step_pre_hooks
        after: Any = self._optimizer._optimizer_step_post_hooks
        if hasattr(vars(self._optimizer).get("step"), "_torchdynamo_orig_callable"):
            raise NotExpressible(f"{self._name}.step is compiled by torch.compile: give the optimizer as it is")
        everywhere = (torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks)
        if before or after or any(everywhere):
            raise NotExpressible(f"{self._name} has step hooks, which are to see the real gradients and state")
        if not _plain_step(self._optimizer):
            raise NotExpressible(f"{self._name}.step is wrapped by what may look at the real gradients and state")
        self._played = self._fell = False
        self._refused: NotExpressible | None = None
        before[_HOOK] = self._enter
        after[_HOOK] = self._leave
        try:
            self._step()
        except NotExpressible:
            raise
        except Exception as error:
            if not self._fell:
                raise  # not the rule's
            raise NotExpressible(f"{self._name}.step() fails on a parameter of one element: {error!r}") from error
        finally:
            del before[_HOOK], after[_HOOK]
        if not self._played:
            raise NotExpressible(f"{self._name}.step() never reached its update rule")
        return self._ledgers, self._states

    def _step(self) -> None:
        try:
            self._optimizer.step()
        except BaseException:
            self._fell = self._depth > 0
            if self._fell:
                self._swap_out()
            raise

    def _enter(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._depth += 1
        if self._depth == 1:  # else a step that calls super().step()
            self._swap_in()

    def _leave(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            content = self._optimizer.state, self._optimizer.param_groups
            self._swap_out()
            if self._refused is not None:  # which the rule has caught
                raise self._refused
            if content[0] is not self._twin_states or type(content[1]) is not _Groups:
                raise NotExpressible(f"{self._name}.step() replaces its state or its groups")
            self._read_states()
            self._write_groups()
            self._played = True

    # -- swapping --------------------------------------------------------------------------------------------------

    def _swap_in(self) -> None:
        optimizer = self._optimizer
        attributes = vars(optimizer)
        self._groups, self._state = optimizer.param_groups, optimizer.state
        self._attributes = {name: value for name, value in attributes.items() if isinstance(value, Tensor)}
        shared = {name: self._stand_in(-1, name, value) for name, value in self._attributes.items()}
        self._twin_states: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self._ledgers: list[Ledger] = []
        self._staged: list[dict[str, Any]] = []
        by_place: list[Ledger | None] = []
        taken = -1
        for index, one in self._cast:
            group = self._groups[index].copy()
            hypers = {key: self._stand_in(index, key, item) for key, item in group.items() if isinstance(item, Tensor)}
            if index == taken:  # a further class of this group must not write into the first one's lists
                group = {key: item if key == "params" else separate(item) for key, item in group.items()}
            taken = index
            if hypers:
                group.update(hypers)
            if one is None:
                group["params"] = []
            else:
                group["params"] = [one.twin]
                for key, entry in one.own_entries.items():
                    group[key] = entry.copy()
            self._staged.append(group)
            by_place.append(None if one is None else self._open_ledger(one, hypers, shared))
        self._ledger = self._ledgers[0] if len(self._ledgers) == 1 else None
        attributes.update(shared)
        attributes["state"] = self._twin_states
        attributes["param_groups"] = _Groups(self._staged, by_place, self._make_current)
        self.__enter__()  # type: ignore[no-untyped-call]

    def _open_ledger(self, one: ParameterClass, hypers: dict[str, Tensor], attributes: dict[str, Tensor]) -> Ledger:
        one.twin.grad = one.gradient
        state = one.state_now(self._state)
        if state is not None:
            self._twin_states[one.twin] = state
        origins, roots = one.origins, one.roots
        if hypers or attributes:
            origins += tuple(("hyper", key) for key in hypers) + tuple(("attribute", name) for name in attributes)
            roots += (*hypers.values(), *attributes.values())
        ledger = Ledger(self._name, origins, roots, one.data_roots)
        self._ledgers.append(ledger)
        return ledger

    def _stand_in(self, group: int, key: str, real: Tensor) -> Tensor:
        """A copy of a tensor that the optimizer or a group holds, with its present value."""
        copy = self._stand_ins.get((group, key))
        if copy is None or copy.shape != real.shape or copy.dtype != real.dtype:
            copy = self._stand_ins[group, key] = real.detach().clone()
        else:
            copy.copy_(real)
        return copy

    def _swap_out(self) -> None:
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._depth = 0
        attributes = vars(self._optimizer)
        attributes["state"], attributes["param_groups"] = self._state, self._groups
        for name, value in self._attributes.items():
            if attributes.get(name) is not self._stand_ins[-1, name]:
                attributes.update(self._attributes)
                raise NotExpressible(f"{self._name}.step() replaces the tensor {name!r} on the optimizer")
            attributes[name] = value

    def _make_current(self, ledger: Ledger | None) -> None:
        self._ledger = ledger

    # -- what the step leaves behind -------------------------------------------------------------------------------

    def _read_states(self) -> None:
        self._states: list[dict[str, Any] | None] = []
        classes = [one for _, one in self._cast if one is not None]
        for one, ledger in zip(classes, self._ledgers, strict=True):
            state = self._twin_states.pop(one.twin, None)
            ledger.close(state)
            self._states.append(state)
            if one.twin.grad is not one.gradient:
                raise NotExpressible(f"{self._name}.step() replaces a parameter's gradient")
            if not one.attributes_kept():
                raise NotExpressible(f"{self._name}.step() changes attributes of a parameter")
        if self._twin_states:
            raise NotExpressible(f"{self._name}.step() keeps state that belongs to no parameter")
        tensors = [name for name, value in vars(self._optimizer).items() if isinstance(value, Tensor)]
        if tensors != list(self._attributes):
            raise NotExpressible(f"{self._name}.step() keeps a tensor on the optimizer: {', '.join(tensors)}")

    def _write_groups(self) -> None:
        """Carries over what the rule changed in its groups: once per group, from its first class."""
        taken = -1
        for (index, one), staged in zip(self._cast, self._staged, strict=True):
            real = self._groups[index]
            for key, value in staged.items():
                present = real.get(key, _ABSENT)
                if value is present or key == "params":
                    continue
                if one is not None and key in one.own_entries:
                    if value != one.own_entries[key]:
                        raise NotExpressible(f"{self._name}.step() changes {key!r} of its group, one per parameter")
                    continue
                if isinstance(value, Tensor):
                    if value is self._stand_ins.get((index, key)):
                        continue
                    raise NotExpressible(f"{self._name}.step() puts a tensor into {key!r} of its group")
                if index == taken and value != present:
                    raise NotExpressible(f"{self._name}.step() changes {key!r} of its group once per parameter")
                if index != taken:
                    real[key] = value
            if len(real) != len(staged):
                for key in [key for key in real if key not in staged]:
                    del real[key]
            taken = index

    # -- calls -----------------------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        facts = facts_of(func)
        if not facts.recorded:
            return func(*args, **kwargs)
        ledger = self._ledger
        if ledger is None:
            said = f"{self._name}.step() calls {facts.name} outside of its groups ({rule_line()})"
            self._refused = NotExpressible(said)
            raise self._refused
        if func is ITEM:
            answer = func(*args, **kwargs)
            ledger.item(args[0], answer)
            return answer
        if func is LIFT:
            out = func(*args, **kwargs)
            ledger.lift(args[0], out)
            return out
        ledger.call(facts, args, kwargs)
        if facts.skippable and _only_data(ledger, facts, args, kwargs):
            return args[0] if facts.returns_self else None
        out = func(*args, **kwargs)
        ledger.results(facts, out)
        return out


def _only_data(ledger: Ledger, facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call writes nothing but a twin's data: nobody reads that, so it need not run."""
    for written in facts.written_in(args, kwargs):
        if isinstance(written, Tensor):
            if ledger.known[id(written)] >= ledger.data_roots:
                return False
        elif any(ledger.known[id(tensor)] >= ledger.data_roots for tensor in written):
            return False
    return True


class _Groups(list[dict[str, Any]]):
    """The groups on stage: whoever takes one makes its ledger the current one."""

    def __init__(
        self,
        groups: list[dict[str, Any]],
        ledgers: list[Ledger | None],
        make_current: Callable[[Ledger | None], None],
    ) -> None:
        super().__init__(groups)
        self._ledgers = ledgers
        self._make_current = make_current

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for ledger, group in zip(self._ledgers, super().__iter__(), strict=True):
            self._make_current(ledger)
            yield group

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, int):
            self._make_current(self._ledgers[place])
        return super().__getitem__(place)


def _plain_step(optimizer: torch.optim.Optimizer) -> bool:
    """Whether `optimizer.step` is the class's own, or that with a scheduler's counter around it."""
    step: Any = vars(optimizer).get("step")
    if step is None:
        return True
    inner = getattr(step, "__wrapped__", None)
    return hasattr(step, "_wrapped_by_lr_sched") and getattr(inner, "__func__", inner) is type(optimizer).step
