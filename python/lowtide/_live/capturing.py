"""A capture that is made call by call, while the step function's own Python runs in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint as torch_checkpoint

from .._base.interrupts import signals_held
from .._base.schemas import positional
from .._base.structure import flatten
from .._base.wrapped import Wrapped
from .._capture.autocast_casts import any_kept, region_around
from .._capture.checkpoints import Checkpoint, checkpoints_followed
from .._capture.formulas import refuse_formulas
from .._capture.leftovers import Leftovers, old_objects_left_alone
from .._capture.random_watch import RandomWatch, random_state_kept
from .._capture.recorder import Recording, module_paths, written_buffers
from .._capture.refused_modules import refuse_model, wrappers_refused
from .._capture.said import Sayings
from .._capture.tape import (
    Capture,
    PauseMark,
    Tape,
    describe_error,
    drop_tracebacks,
    failures_unlogged,
    forget_real_tensors,
    in_own_context,
    other_optimizers_refused,
)
from .._guards.surroundings import Effect
from .._step.binding import RunsEager, owner_of
from ..errors import CaptureError
from .log import Written

if TYPE_CHECKING:
    from .live_step import LiveStep

_CHECKPOINTS = ("CheckpointFunction", "_checkpoint_without_reentrant_generator")  # what PyTorch calls for one


class LiveCapture(Capture):
    """Each deferred call runs once on fake tensors, when it is asked for.

    From the first call to the end, gradients that the calls make are fake and lie in `.grad` of the parameters: live
    Python must not see them. Whoever makes a capture calls `finish` or `abandon`.
    """

    def __init__(
        self,
        step: LiveStep,
        leftovers: Leftovers,
        sharing: frozenset[int],
    ) -> None:
        refuse_model(step.model)
        super().__init__(
            step.function, step.surroundings, step.model, step.optimizers, dict(step.model.named_parameters()), sharing,
            False, False, step.filled,
        )  # fmt: skip
        self._leftovers = leftovers
        self._open = ExitStack()
        self._checkpoints: list[Checkpoint] = []
        self._inputs: dict[int, torch.Tensor] = {}
        self.new_buffers: dict[str, torch.Tensor] = {}  # those that a module has replaced
        self._begun: list[Any] = []  # checkpoints, as PyTorch's own generators
        self._following: dict[str, Any] = {}
        self._pauses: list[PauseMark] = []
        self.effects: list[Effect] = []  # of the last call
        self.sayings = Sayings()
        if region_around() and any_kept(step.surroundings.tensors):
            raise RunsEager("an autocast region that keeps casts of weights from before the call")
        torch.clear_autocast_cache()
        try:
            self._add_model_roots()
            self._open.enter_context(self._tensors_kept())
            before = {name: vars(torch_checkpoint)[name] for name in _CHECKPOINTS}
            self._checkpoints = self._open.enter_context(checkpoints_followed(self.recorder))
            self._following = {name: vars(torch_checkpoint)[name] for name in _CHECKPOINTS}
            vars(torch_checkpoint).update(before)  # live Python's own are deferred
        except BaseException as error:
            drop_tracebacks(error)
            self.abandon()
            raise
        self._entry = {name: parameter.grad for name, parameter in self.parameters.items()}
        self._buffers = dict(step.model.named_buffers())

    def input(self, number: int, tensor: torch.Tensor) -> torch.Tensor:
        """What stands in for a tensor that comes from outside."""
        if number not in self._inputs:
            if not tensor.is_leaf:
                raise CaptureError(
                    f"the step uses a tensor of shape {tuple(tensor.shape)} whose graph was made before the model was "
                    "called"
                )
            given = tensor.detach() if tensor.requires_grad else tensor
            fake = self._inputs[number] = self._fake_input(number, given, f"tensor {number}")
            if tensor.requires_grad:
                fake.requires_grad_()
            self.stand_ins.add(fake)
            self.given[id(fake)] = number
        return self._inputs[number]

    def begin_call(self) -> None:
        """What the last call has done in Python is known."""
        self.effects, self.sayings.said = [], []

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any, *, atom: bool) -> Any:
        """One call on fake tensors. Raises `CaptureError` where it cannot be planned, or fails for any other reason."""
        self.random = self.recorder.random = RandomWatch()
        try:
            with ExitStack() as stack:
                for context in (
                    self._python_kept() if atom else nullcontext(),
                    random_state_kept(self.random),
                    other_optimizers_refused(),
                    wrappers_refused(),
                    self._steps_marked(),
                    self._backward_followed(),
                    module_paths(self.recorder, self.model),
                    torch.compiler.set_stance("force_eager"),
                    self._wishes_noted(),
                    failures_unlogged(),
                    self.sayings,
                    Wrapped(*[(torch_checkpoint, name, lambda _, by=by: by) for name, by in self._following.items()]),
                    self.fake_mode,
                    self.recorder,
                    signals_held.users_code() if atom else nullcontext(),
                ):
                    stack.enter_context(context)
                result = in_own_context(lambda: function(*args, **kwargs)) if atom else function(*args, **kwargs)
            refuse_formulas(self.recorder.recording)
            return result
        except CaptureError:
            raise
        except Exception as error:
            if signals_held.raised(error):
                raise
            raise CaptureError(describe_error(error)) from error

    def begin_checkpoint(self, make_again: Callable[[], None], preserves_random_state: bool) -> None:
        """What is called from here on is made again in the backward pass, by calling `make_again`."""
        around = self._following[_CHECKPOINTS[1]](make_again, preserves_random_state)
        next(around)
        self._begun.append(around)

    def end_checkpoint(self) -> None:
        """Of the checkpoint that began last."""
        next(self._begun.pop(), None)

    @contextmanager
    def _python_kept(self) -> Iterator[None]:
        with self.surroundings.kept() as self.effects:  # which puts real buffers back
            put_buffers(self.model, self.new_buffers)
            yield
            for name, buffer in self.model.named_buffers():
                if name not in self._buffers:
                    raise CaptureError(f"a module registers the buffer {name!r} while it runs")
                if buffer is not self._buffers[name]:
                    self.new_buffers[name] = buffer

    def is_spent(self, tensor: torch.Tensor) -> bool:
        """Whether no backward pass is open for it."""
        return tensor.grad_fn is None or tensor.grad_fn in self.consumed

    def unspent_outside(self) -> frozenset[int]:
        """Tensors from outside that were written, and have a graph since then that a backward pass can go through.

        It cannot where the graph leads into one that is spent, as that of a sum of losses does: eager raises there.
        """
        written = {number: fake.grad_fn for number, fake in self._inputs.items() if fake.grad_fn is not None}
        return frozenset(number for number, node in written.items() if not self._leads_into_spent(node))

    def _leads_into_spent(self, node: Any) -> bool:
        nodes, seen = [node], {node}
        while nodes:
            node = nodes.pop()
            following = {one for one, _ in node.next_functions} - {None}
            if following and node in self.consumed:  # a leaf's own node is there for all graphs
                return True
            nodes += following - seen
            seen |= following
        return False

    def gradients_outside(self) -> dict[int, torch.Tensor]:
        """What backward passes have given tensors from outside."""
        return {number: fake.grad for number, fake in self._inputs.items() if fake.grad is not None}

    def written_since(self, position: int) -> Written:
        """What was there before and is changed by the calls from `position` on."""
        recording = self.recorder.recording
        calls = recording.calls[position:]
        written = {b for c in calls for b in written_buffers(c.target, positional(c.target, c.args, c.kwargs))}
        there = [b for b in written if recording.buffers[b].root is not None]
        constants = [recording.buffers[b].root for b in there if b not in self.roots]
        kinds = {root.kind for b in there for root in self.roots.get(b, ())}
        outside = frozenset(n for n, fake in self._inputs.items() if self.recorder.ref(fake).buffer in written)
        return Written(
            outside,
            bool(outside or constants or kinds - {"buffer"}),
            frozenset(one.untyped_storage()._cdata for one in constants if one is not None),
        )

    @property
    def position(self) -> int:
        """How many operators have been called."""
        return len(self.recorder.recording.calls)

    def peek(self, value: torch.Tensor) -> Tape:
        """The tape of the calls so far that gives one value, and leaves nothing behind but what they write."""
        self._find_constants()
        recording = self.recorder.recording
        buffers = [replace(buffer, root=None) for buffer in recording.buffers]
        known = Recording(buffers, list(recording.calls), set(recording.kept), dict(recording.same))
        return Tape(
            recording=known,
            roots=dict(self.roots),
            updates=[],
            result_leaves=[self.recorder.ref(value), None],
            result_structure=flatten(([0], None))[1],
            new_gradients={},
            new_buffers={},
            any_gradients=False,
            any_frozen_gradients=False,
            parameters=self.parameters,
        )

    def pause(self, value: torch.Tensor, inputs: int) -> None:
        """Python asks for a value here, and so many tensors from outside are known."""
        self._pauses.append(PauseMark(self.position, self.recorder.ref(value), inputs, self.recorder.where()))

    def finish(self, results: list[torch.Tensor]) -> Tape:
        """The tape that gives these. Nothing fake is left behind; the caller holds no fake tensor but `results`.

        Raises `CachesFilled` where caches were empty before and are full now: the calls are to be recorded once more.
        """
        failure: BaseException | None = None
        tape = None
        try:
            put_buffers(self.model, self.new_buffers)
            try:
                tape = self._tape((results, None), self._entry, self._buffers, self._checkpoints)
                tape.any_gradients = not self.found_gradients_used()
            finally:
                put_buffers(self.model, {name: self._buffers[name] for name in self.new_buffers})
        except BaseException as error:
            drop_tracebacks(error)
            failure = error
        results.clear()
        try:
            self._close()
        except CaptureError as error:
            failure = failure or error
        tape = self._conclude(tape, failure, self._leftovers, may_fill=True)
        tape.pauses = self._pauses
        return tape

    def abandon(self) -> None:
        """Puts everything back as it was before the first call."""
        try:
            with suppress(CaptureError):  # of what the calls have done, which counts no more
                self._close()
        finally:
            self._take_out_spoilt(self._leftovers, None)
            if self.stand_ins.alive() and self._leftovers.put_back(self.stand_ins):
                self._leftovers.take_out()  # whoever goes on eagerly fills caches himself

    def _close(self) -> None:
        torch.clear_autocast_cache()
        while self._begun:
            self._begun.pop().close()
        try:
            self._open.close()
        finally:
            forget_real_tensors(self.fake_mode)
            self._inputs.clear()
            self.new_buffers.clear()
            with old_objects_left_alone():
                self._let_go()
                self.stand_ins.alive(collect=True)


def put_buffers(model: torch.nn.Module, buffers: Mapping[str, torch.Tensor]) -> None:
    """Gives a model these buffers, by name."""
    for name, buffer in buffers.items():
        owner, key = owner_of(model, name)
        owner._buffers[key] = buffer
