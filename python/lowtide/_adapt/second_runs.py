"""A block that runs again finds what its first run found: arguments, attributes, tensors, random numbers, settings.

PyTorch's checkpoint looks after its own random state and autocast. The rest is here. What is in Python is put back for
the second run, and afterwards is again what it was before. The content of tensors is kept without copies
(`content.py`); one that somebody wrote to is replaced in the second run by one with the content of the first. Of
running statistics, which a run changes and no result depends on, each second run has copies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Mapping
from contextlib import ExitStack, nullcontext
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from .._base.engine_switches import read_switches, set_switches
from .buffers import running_statistics
from .content import Content, address_of, version_of
from .forward import Forward
from .given import Given
from .places import Place, write_back
from .random_state import RandomStates
from .reach import Reach
from .samples import Sampled, determinism_check

NOTHING: Any = nullcontext()

_random_states = RandomStates()


class _Parameter(NamedTuple):
    """A parameter, and what tells whether it is as it was."""

    name: str
    tensor: torch.Tensor
    version: int
    address: int
    requires_grad: bool

    @classmethod
    def now(cls, name: str, tensor: torch.Tensor) -> _Parameter:
        return cls(name, tensor, version_of(tensor), address_of(tensor), tensor.requires_grad)

    def was_changed(self) -> bool:
        return version_of(self.tensor) != self.version or address_of(self.tensor) != self.address


class FirstRun(NamedTuple):
    """What the first run of a block has done."""

    written: list[str]  # names of tensors that it wrote to
    lost: list[str]  # those of which the content of before is not known
    moved: list[str]  # those that it did not write to, and asked for memory to write to
    copied: bool  # there is a copy of something


class SecondRuns:
    """Calls a block, first and again; a context for whatever runs it again, entered once for each of these runs.

    Arguments and buffers share their memory with what is kept of them, except for those named in `unshared`. With
    `watch`, for a block that nobody has seen running yet, these are copied, and what parameters hold is kept too.
    `later` is told what was written to between two runs, and `differs` if a second run is another than the first.
    """

    def __init__(
        self,
        forward: Forward,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        unshared: Container[str],
        watch: bool,
        later: Callable[[list[str]], None],
        differs: Callable[[], None],
    ) -> None:
        def keep(name: str, tensor: torch.Tensor) -> Content:
            return Content(tensor, share=name not in unshared, copy=watch)

        self._forward = forward.original
        self._first: tuple[tuple[Any, ...], dict[str, Any]] | None = (args, kwargs)
        self._later = later
        self._differs = differs
        self._given = Given(args, kwargs, keep)
        reach = Reach((forward.module, self._forward, *self._given.others), without=(Forward,))
        self._ends_late = reach.ends_late or reach.saves_early
        self._check = "default" if reach.saves_early else determinism_check()
        self._parameters = [_Parameter.now(name, tensor) for name, tensor in reach.parameters.values()]
        self._devices = self._given.devices | {held.tensor.device for held in self._parameters}
        self._statistics = {id(held.tensor): held.tensor for held in running_statistics(reach.modules)}
        # What is kept of tensors, by id.
        seen = reach.tensors.items()
        self._contents = {key: (name, keep(name, one)) for key, (name, one) in seen if key not in self._statistics}
        if watch:
            self._contents |= {id(held.tensor): (held.name, keep(held.name, held.tensor)) for held in self._parameters}
        self._places = self._without_graphs(reach)
        self._switches = read_switches()  # a loop may have them around its forward pass only, as `sdpa_kernel`
        self._random = _random_states.now()
        self._draws = True
        self._inner: Any = NOTHING
        self._known: set[int | str] = set()  # what is known to be written to
        self._after = ExitStack()
        self.once = [*self._given.once, *reach.once]  # why there can be no second run

    def _without_graphs(self, reach: Reach) -> list[Place]:
        """The places, with what is kept of tensors instead of those that have a graph.

        A block may keep a result as an attribute. Its graph leads to this object; if this led to the result of the run
        before, no result would ever be freed.
        """
        graphs = {key: self._contents[key][1] for key, (_, one) in reach.tensors.items() if one.grad_fn is not None}
        if not graphs:
            return reach.places
        replaced = functools.partial(_replaced, graphs)
        return [(kind, target, kind.replaced(content, replaced)) for kind, target, content in reach.places]

    def around(self, inner: Any) -> SecondRuns:
        """Enters another context too."""
        self._inner = inner
        return self

    # -- runs ---------------------------------------------------------------------------------------------------------

    def run(self, first: Any = NOTHING) -> Any:
        """The first run, so that what it saves is dropped and made again. `first` is a context for it."""
        statistics = {address_of(tensor) for tensor in self._statistics.values()}
        # PyTorch finds in its arguments on which devices it is to look after random state.
        there = [torch.empty(0, device=device) for device in self._devices if device.type not in ("cpu", "meta")]
        return checkpoint(
            self._call,
            *there,
            use_reentrant=False,
            preserve_rng_state=True,
            context_fn=lambda: (Sampled(self._differs, statistics, first), self),
            determinism_check=self._check,
            early_stop=not self._ends_late,
        )

    def _call(self, *there: torch.Tensor) -> Any:
        if self._first is not None:
            (args, kwargs), self._first = self._first, None
        else:
            args, kwargs = self._given.again()
        return self._forward(*args, **kwargs)

    def look(self) -> FirstRun:
        """What the first run has done; to be called after it."""
        self._draws = _random_states.now() is not self._random
        written = self._written_now()
        lost = [name for key, name in written.items() if self._content_of(key).is_lost()]
        for held in self._parameters:
            kept = self._contents.get(id(held.tensor))
            if kept is None and held.was_changed():
                lost.append(held.name)
            if (kept is None and held.was_changed()) or (kept is not None and not kept[1].is_of(held.tensor)):
                written[id(held.tensor)] = held.name
        for held in self._parameters:
            if id(held.tensor) not in written:
                self._contents.pop(id(held.tensor), None)  # lest an update find its memory shared
        self._parameters = [_Parameter.now(held.name, held.tensor) for held in self._parameters]
        self._known = set(written)
        everything = [*self._given.contents.items(), *self._contents.values()]
        return FirstRun(
            written=list(written.values()),
            lost=lost,
            moved=[name for name, content in everything if content.moved() and not content.was_written()],
            copied=any(content.took_bytes for _, content in everything),
        )

    def _written_now(self) -> dict[int | str, str]:
        """Names of tensors that somebody has written to since the first run began, running statistics aside."""
        written = (item for item in self._contents.items() if item[1][1].was_written())
        found: dict[int | str, str] = {key: name for key, (name, _) in written}
        return found | {name: name for name in self._given.written()}

    def _content_of(self, key: int | str) -> Content:
        return self._given.contents[key] if isinstance(key, str) else self._contents[key][1]

    # -- the context --------------------------------------------------------------------------------------------------

    def __enter__(self) -> None:
        self._look_again()
        try:
            self._put_back()
            self._inner.__enter__()
        except BaseException:
            self._after.close()
            raise

    def __exit__(self, *error: object) -> None:
        try:
            self._inner.__exit__(*error)
        finally:
            self._after.close()
        if error[0] is None and self._stops_early():
            self._differs()  # it has not saved as much as the first

    def _look_again(self) -> None:
        written = {key: name for key, name in self._written_now().items() if key not in self._known}
        lost = [name for key, name in written.items() if self._content_of(key).is_lost()]
        lost += [held.name for held in self._parameters if held.was_changed()]
        if lost:
            raise RuntimeError(
                f"one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"{lost[0]} was written to between the forward and the backward pass, and lowtide.adapt runs its block "
                "again; write to a copy, or name other blocks with blocks=[...]"
            )
        if written:
            self._known |= set(written)
            self._later(list(written.values()))

    def _put_back(self) -> None:
        self._put_back_switches()
        for held in self._parameters:
            if held.tensor.requires_grad != held.requires_grad and held.tensor.is_leaf:
                self._after.callback(held.tensor.requires_grad_, held.tensor.requires_grad)
                held.tensor.requires_grad_(held.requires_grad)
        fresh = self._fresh_tensors()
        replaced = functools.partial(_replaced, fresh)
        before: list[Place] = []
        self._after.callback(write_back, before)
        for kind, target, content in self._places:
            now = kind.read(target)
            before.append((kind, target, now))
            wanted = kind.replaced(content, replaced) if fresh else content
            if not kind.same(now, wanted):
                kind.write(target, wanted)
        if self._draws:
            self._after.callback(_random_states.now().restore)
            self._random.restore()

    def _put_back_switches(self) -> None:
        now = read_switches()
        if now != self._switches:
            self._after.callback(set_switches, now)
            set_switches(self._switches)

    def _fresh_tensors(self) -> dict[int, torch.Tensor]:
        """Tensors for this run in place of those that were written to or have a graph, and of running statistics."""
        fresh: dict[int, torch.Tensor] = {key: tensor.clone() for key, tensor in self._statistics.items()}
        parameters = {id(held.tensor) for held in self._parameters}
        made: dict[int, torch.Tensor] = {}
        for key, (_, content) in self._contents.items():
            if key in self._known or content.has_graph:
                tensor = content.fresh(made)
                fresh[key] = nn.Parameter(tensor.detach(), tensor.requires_grad) if key in parameters else tensor
                fresh[id(content)] = fresh[key]
        return fresh

    def _stops_early(self) -> bool:
        """Whether PyTorch ends a second run, by an exception, once it has saved what the first has."""
        wanted = getattr(torch.utils.checkpoint, "_enable_checkpoint_early_stop", None)
        return not self._ends_late if wanted is None else bool(wanted)


def _replaced(fresh: Mapping[int, Any], value: Any) -> Any:
    if type(value) is tuple:
        return tuple([_replaced(fresh, item) for item in value]) if value else value
    return fresh.get(id(value), value)
