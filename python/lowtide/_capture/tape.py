"""Capture: the user's own step function, over the stock model and optimizer, as a tape of dispatcher calls.

The function runs once on fake tensors. Model, optimizer and their tensors stay the real objects, so every reference
the user has to them works; nothing is computed and nothing of theirs is written. `optimizer.step()` is only marked on
the tape: the update itself is composed later, parameter by parameter, from the optimizer's own rule.
"""

from __future__ import annotations

import contextvars
import logging
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .._base import hints
from .._base.devices import why_not_planned
from .._base.interrupts import signals_held
from .._base.own_thread import on_this_thread, others_run, this_thread
from .._base.schemas import positional
from .._base.sources import user_line_of
from .._base.stock_optimizers import is_stock
from .._base.structure import Structure, argument_names, flatten
from .._guards.guards import plain_key
from .._guards.surroundings import Surroundings, is_state
from ..errors import CaptureError, add_note
from .autocast_casts import Cast, kept_cast, region_around
from .checkpoints import Checkpoint, checkpoints_followed, merge_runs
from .leftovers import FilledCaches, LeftBehindError, Leftovers, StandIns, old_objects_left_alone
from .random_watch import MovedRandomState, RandomWatch, random_state_kept
from .recorder import Recorder, Recording, Ref, Where, module_paths, refs_in, why_not_plain, written_buffers
from .refused_modules import refuse_model, wrappers_refused
from .sealed import Sealed, sealed_argument
from .weightless import fake_mode_of

_fake_tensor_log = logging.getLogger("torch._subclasses.fake_tensor")


@dataclass(frozen=True, slots=True)
class Root:
    """A tensor that exists before the step: what it is, and how to find it again at the next call."""

    kind: str  # parameter, buffer, gradient, input, constant, cast
    key: Any  # the name; the leaf's index for an input; the tensor itself for a constant; a `Cast`
    offset: int = 0  # of its first element in the recorded storage, in bytes


class Given(NamedTuple):
    """A leaf of the result that is a leaf of the arguments: its index."""

    leaf: int


class Own(NamedTuple):
    """A leaf of the result that is a parameter or buffer of the model: its kind and name."""

    kind: str
    name: str


@dataclass(slots=True)
class UpdateMark:
    """`optimizer.step()` was called when `position` calls were on the tape."""

    position: int
    optimizer: int
    gradients: dict[str, Ref]  # by parameter name, in the optimizer's order
    groups: dict[str, int]  # the parameter group of each
    where: Where


@dataclass(slots=True)
class PauseMark:
    """Python asked for a value when `position` calls were on the tape."""

    position: int
    value: Ref
    inputs: int  # tensors from outside that were known then; those that come later have higher numbers
    where: Where


@dataclass(slots=True)
class Tape:
    """A captured step: calls, where their tensors come from, and what they leave behind."""

    recording: Recording
    roots: dict[int, list[Root]]  # by buffer
    updates: list[UpdateMark]
    result_leaves: list[Any]  # Ref, Given, Own, or a plain Python value
    result_structure: Structure  # of a pair: the result, and the arguments if the step changes what is in them
    new_gradients: dict[str, Ref | None]  # by parameter name: what `.grad` is afterwards, where it changed
    new_buffers: dict[str, Ref]  # module buffers that the step replaced by another tensor
    any_gradients: bool  # the tape is the same whether or not `.grad` was set before
    any_frozen_gradients: bool  # so it is for parameters that require none
    parameters: dict[str, torch.nn.Parameter] = field(default_factory=dict)
    spent: frozenset[int] = frozenset()  # leaves of the result whose graph the step has been backward through
    dropped_gradients: list[Ref] = field(default_factory=list)  # what eager leaves in `.grad`
    pauses: list[PauseMark] = field(default_factory=list)  # in their order, all before the updates

    def drop_gradients(self) -> None:
        """No gradient outlives the step any more, if its own updates are all that they are for."""
        if self.any_gradients and self.updates:
            self.dropped_gradients = [ref for ref in self.new_gradients.values() if ref is not None]
            self.new_gradients = dict.fromkeys(self.new_gradients)


class _EntryGradientUsed(Exception):
    """The step reads the gradients that it finds, so it matters whether there are any."""


class _FrozenGradientUsed(Exception):
    """The same, of a parameter that requires no gradient: an optimizer updates it if it has one."""


class CachesFilled(Exception):
    """The step has put constants into caches that were empty: it is captured again, as it runs from then on."""


def capture_step(
    function: Callable[..., Any],
    surroundings: Surroundings,
    model: torch.nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    sharing: frozenset[int] = frozenset(),
    filled: FilledCaches | None = None,
) -> Tape:
    """Runs `function(*args, **kwargs)` on fake tensors and gives its tape.

    `sharing` are leaves of the arguments whose memory is also seen elsewhere; others are taken to have their own.

    Raises `CaptureError`, naming the source line, when the step cannot be captured. Model, optimizers, gradients,
    random state and everything in the `surroundings` are afterwards what they were before, in every case, and caches
    hold nothing fake. Those that the step has put constants into are told to `filled`: the tape reads them.
    """
    refuse_model(model)
    parameters = dict(model.named_parameters())
    filled = FilledCaches() if filled is None else filled
    leftovers = Leftovers(surroundings.closed, filled)

    def capture(stand_in_gradients: bool) -> Tape:
        # A frozen parameter seldom has a gradient, and few functions look; if one does, it is seen as it is.
        stand_in_frozen, may_fill, may_move = True, 2, 2
        while True:
            one = Capture(
                function, surroundings, model, optimizers, parameters, sharing, stand_in_gradients, stand_in_frozen,
                filled,
            )  # fmt: skip
            try:
                return one.run(args, kwargs, leftovers, may_fill=may_fill > 0)
            except _FrozenGradientUsed:
                stand_in_frozen = False
            except CachesFilled:
                may_fill -= 1
            except MovedRandomState:
                if may_move == 0 or not others_run():
                    raise
                may_move -= 1  # another thread may have drawn a number: if it was the step, it does so again

    gradients = [parameter.grad for parameter in parameters.values() if parameter.requires_grad]
    if not gradients or any(gradient is None for gradient in gradients):
        # Most functions clear the gradients before they make new ones. Such a tape serves whether or not gradients are
        # set at entry; stand-ins that must not be touched tell it from one that accumulates.
        try:
            return capture(stand_in_gradients=True)
        except _EntryGradientUsed:
            pass
    return capture(stand_in_gradients=False)


class Capture:
    """One run of the step function under the recorder."""

    def __init__(
        self,
        function: Callable[..., Any],
        surroundings: Surroundings,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        parameters: dict[str, torch.nn.Parameter],
        sharing: frozenset[int],
        stand_in_gradients: bool,
        stand_in_frozen: bool,
        filled: FilledCaches,
    ) -> None:
        self.function = function
        self.surroundings = surroundings
        self.model = model
        self.optimizers = optimizers
        self.parameters = parameters
        self.sharing = sharing
        self.stand_in_gradients = stand_in_gradients
        self.stand_in_frozen = stand_in_frozen
        self.filled = filled
        self.fake_mode = fake_mode_of(model) or FakeTensorMode(allow_non_fake_inputs=True)
        self.random = RandomWatch()
        self.recorder = Recorder(self.fake_mode, random=self.random)
        self.stand_ins = StandIns(self.recorder)
        self.roots: dict[int, list[Root]] = {}
        self.updates: list[UpdateMark] = []
        self.consumed: set[Any] = set()  # autograd nodes that a backward pass of the step starts from or reaches
        self.given: dict[int, int] = {}  # leaves of the arguments by the id of what stands in for them
        self.first_node: int = torch.autograd._get_sequence_nr()  # type: ignore[attr-defined]

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], leftovers: Leftovers, *, may_fill: bool) -> Tape:
        """The tape. Whatever happens, nothing fake is left behind.

        Raises `CachesFilled` where that has filled a cache and the function is to be run once more, to see what it
        does with a full one.
        """
        failure: BaseException | None = None
        tape: Tape | None = None
        with old_objects_left_alone():
            try:
                tape = in_own_context(self._record, args, kwargs)
            except BaseException as error:
                drop_tracebacks(error)
                failure = error
            self._let_go()
            self.stand_ins.alive(collect=True)
        return self._conclude(tape, failure, leftovers, may_fill=may_fill)

    def _conclude(
        self, tape: Tape | None, failure: BaseException | None, leftovers: Leftovers, *, may_fill: bool
    ) -> Tape:
        """The tape, or raises the failure: nothing fake is left behind either way, nor in a cache that calls change."""
        failure = self._take_out_spoilt(leftovers, failure)
        kept = "" if failure else self._kept_result()
        if kept and may_fill and leftovers.fill_in(self.stand_ins):
            raise CachesFilled
        if kept:
            failure = CaptureError(kept)
        if failure is not None:
            filled = self._finish(lambda: leftovers.put_back(self.stand_ins), failure)
            if filled and may_fill and isinstance(failure, CaptureError):
                raise CachesFilled
            raise failure
        assert tape is not None
        for buffer in tape.recording.buffers:
            buffer.root = None  # bindings find it again: what the caller replaces is not kept alive
        return tape

    def _take_out_spoilt(self, leftovers: Leftovers, failure: BaseException | None) -> BaseException | None:
        """A cache whose tensor a call has changed is as it was before, and that is a failure."""
        if leftovers.is_spoilt(self.recorder.recording):
            failure = failure or CaptureError("the step changes a tensor that it keeps in a cache")
            self.roots.clear()
            for buffer in self.recorder.recording.buffers:
                buffer.root = None
            self._finish(leftovers.take_out, failure)
        return failure

    def _finish(self, clean: Callable[[], Any], failure: BaseException) -> Any:
        try:
            return clean()
        except LeftBehindError as error:
            if isinstance(failure, Exception):
                raise error from failure
            add_note(failure, f"lowtide: {error}")

    def _let_go(self) -> None:
        self.fakes: list[Any] = []
        self.consumed.clear()
        self.random.forget()
        self.recorder.let_go()

    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tape:
        try:
            with ExitStack() as stack:
                self._add_model_roots()
                inputs = self._fake_inputs(args, kwargs)
                for context in (
                    self.surroundings.kept(),
                    random_state_kept(self.random),
                    _autocast_cache_apart(),
                    other_optimizers_refused(),
                    wrappers_refused(),
                    _scalers_followed(),
                    self._tensors_kept(),
                    self._steps_marked(),
                    self._backward_followed(),
                    module_paths(self.recorder, self.model),
                    torch.compiler.set_stance("force_eager"),  # a compiled submodule is traced as its original
                    self._wishes_noted(),
                    failures_unlogged(),
                ):
                    stack.enter_context(context)
                checkpoints = stack.enter_context(checkpoints_followed(self.recorder))
                entry = {name: parameter.grad for name, parameter in self.parameters.items()}
                buffers = dict(self.model.named_buffers())
                with self.fake_mode, self.recorder, signals_held.users_code():
                    result = self.function(*inputs[0], **inputs[1])
                    self.recorder.refuse_misuse()
                tape = self._tape((result, inputs if self._changed(inputs) else None), entry, buffers, checkpoints)
        except (CaptureError, _EntryGradientUsed, _FrozenGradientUsed):
            raise
        except Exception as error:
            if signals_held.raised(error):
                raise
            raise CaptureError(describe_error(error)) from error
        finally:
            forget_real_tensors(self.fake_mode)
        return tape

    # -- what exists before ----------------------------------------------------------------------------------------

    def _add_root(self, tensor: torch.Tensor, kind: str, key: Any, name: str) -> None:
        fake = self.recorder.add_root(tensor, name, kind)
        self._note_root(fake, kind, key)

    def _note_root(self, fake: torch.Tensor, kind: str, key: Any) -> None:
        ref = self.recorder.ref(fake)
        self.roots.setdefault(ref.buffer, []).append(Root(kind, key, ref.offset * ref.dtype.itemsize))

    def _add_model_roots(self) -> None:
        for name, parameter in self.parameters.items():
            self._add_root(parameter, "parameter", name, name)
        for name, buffer in self.model.named_buffers():
            self._add_root(buffer, "buffer", name, name)
        known = {id(parameter) for parameter in self.parameters.values()}
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if id(parameter) not in known:
                        raise CaptureError(
                            f"{type(optimizer).__name__} updates a parameter of shape {tuple(parameter.shape)} "
                            "that is not one of model.parameters()"
                        )

    def _fake_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        leaves, structure = flatten((args, kwargs))
        names = argument_names(self.function, args, kwargs)
        known = self.surroundings.names
        fakes: list[Any] = []
        for index, (leaf, name) in enumerate(zip(leaves, names, strict=True)):
            if id(leaf) in known or (not isinstance(leaf, torch.Tensor) and plain_key(leaf) is not None):
                fakes.append(leaf)
                continue
            tensor = isinstance(leaf, torch.Tensor)
            fakes.append(self._fake_input(index, leaf, name) if tensor else sealed_argument(name, leaf))
            self.stand_ins.add(fakes[-1])
            self.given[id(fakes[-1])] = index
        self.fakes, self.argument_structure = fakes, structure
        fake_args, fake_kwargs = structure.unflatten(fakes)
        return fake_args, fake_kwargs

    def _fake_input(self, index: int, leaf: torch.Tensor, name: str) -> torch.Tensor:
        if leaf.requires_grad:
            raise CaptureError(f"{name} requires a gradient: of the arguments, only parameters may")
        refused = why_not_plain(leaf)
        if not refused and type(leaf) not in (torch.Tensor, torch.nn.Parameter, FakeTensor):
            refused = f"a {type(leaf).__qualname__} (a class derived from torch.Tensor)"
        if refused:
            raise CaptureError(f"{name} is {refused}: arguments are plain strided tensors on cpu")
        if index in self.sharing:
            fake = self.recorder.add_root(leaf, f"input{index}", "input")
        else:
            # A storage of its own: batches are often slices of one large tensor, each time at another place.
            with self.fake_mode, torch.inference_mode(leaf.is_inference()):
                fake = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device)
            self.recorder.add_fake_root(fake, f"input{index}", "input")
        self._note_root(fake, "input", index)
        return fake

    def _changed(self, inputs: tuple[tuple[Any, ...], dict[str, Any]]) -> bool:
        """Whether the step has put something else into the dicts, lists or objects that it was given."""
        leaves, structure = flatten(inputs)
        return structure != self.argument_structure or any(map(operator.is_not, leaves, self.fakes))

    def _stands_in_for_gradient(self, parameter: torch.nn.Parameter) -> bool:
        if parameter.requires_grad:
            return self.stand_in_gradients
        return self.stand_in_frozen and _is_plain(parameter)

    @contextmanager
    def _tensors_kept(self) -> Iterator[None]:
        """Gradients, versions and memory of the model's tensors are afterwards what they were before."""
        tensors = [*self.parameters.values(), *self.model.buffers()]
        before = [
            (tensor, tensor.data, tensor.grad, tensor._version) for tensor in tensors if not tensor.is_inference()
        ]
        try:
            for name, parameter in self.parameters.items():
                if self._stands_in_for_gradient(parameter):
                    with self.fake_mode:
                        stand_in = torch.empty_strided(
                            parameter.shape, parameter.stride(), dtype=parameter.dtype, device=parameter.device
                        )
                    error = _EntryGradientUsed if parameter.requires_grad else _FrozenGradientUsed
                    self.recorder.forbid(stand_in, f"{name}.grad", error)
                    self.stand_ins.add(stand_in)
                    parameter.grad = stand_in
                elif parameter.grad is not None:
                    self._add_root(parameter.grad, "gradient", name, f"{name}.grad")
            yield
            for name, parameter in self.parameters.items():
                if parameter.device.type == "meta":
                    raise CaptureError(f"the step gives {name} new memory (`parameter.data = ...`)")
        finally:
            for tensor, data, grad, _ in before:
                if tensor.device.type == "meta":
                    tensor.data = data
                if tensor.grad is not grad:
                    tensor.grad = grad
            torch._C._autograd._unsafe_set_version_counter(
                tuple(tensor for tensor, *_ in before), tuple(version for *_, version in before)
            )
            others = [(leaf, grad) for leaf, grad in self.recorder.found_gradients if leaf.grad is not grad]
            for leaf, grad in others:
                leaf.grad = grad
        if others:
            raise CaptureError("the step makes a gradient for a tensor that is not one of model.parameters()")

    @contextmanager
    def _backward_followed(self) -> Iterator[None]:
        """Notes which parts of the autograd graph the step itself has been backward through.

        None of them may have been there before: the engine would free what they saved, and real code needs it.
        """
        autograd: Any = torch.autograd
        own_run = autograd._engine_run_backward
        is_this_thread = this_thread()

        def follow(outputs: Any) -> None:
            outside = {b.root.grad_fn for b in self.recorder.recording.buffers if b.root is not None} - {None}
            nodes = [one.grad_fn if isinstance(one, torch.Tensor) else getattr(one, "node", None) for one in outputs]
            while nodes:
                node = nodes.pop()
                if node is None or node in self.consumed:
                    continue
                if node in outside or node._sequence_nr() < self.first_node:
                    raise CaptureError(
                        f"backward() goes on into a graph that was made before the step ({self.recorder.where().source}"
                        "): let the function make it, or detach what it is given"
                    )
                self.consumed.add(node)
                nodes += [next_node for next_node, _ in node.next_functions]

        def run(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if is_this_thread():
                follow(outputs)
            return own_run(outputs, *args, **kwargs)

        autograd._engine_run_backward = run
        try:
            yield
        finally:
            autograd._engine_run_backward = own_run

    @contextmanager
    def _wishes_noted(self) -> Iterator[None]:
        before, hints.capture.keep = hints.capture.keep, self.recorder.keep
        try:
            yield
        finally:
            hints.capture.keep = before

    def mark_step(self, index: int, closure: Any = None) -> Any:
        """Notes that an optimizer steps, and with which gradients; gives what its `step` returns."""
        optimizer = self.optimizers[index]
        if closure is not None:
            raise CaptureError("optimizer.step(closure) cannot be planned")
        if any(mark.optimizer == index for mark in self.updates):
            raise CaptureError("one optimizer steps twice in the function")
        names = {id(parameter): name for name, parameter in self.parameters.items()}
        gradients = {
            names[id(parameter)]: self.recorder.ref(parameter.grad)
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        }
        groups = {
            names[id(parameter)]: number
            for number, group in enumerate(optimizer.param_groups)
            for parameter in group["params"]
        }
        position = len(self.recorder.recording.calls)
        self.updates.append(UpdateMark(position, index, gradients, groups, self.recorder.where()))
        self.recorder.recording.updates += 1
        if is_stock(optimizer):
            return None
        return Sealed(
            f"the step uses what {type(optimizer).__name__}.step() returns, which is known only after the step"
        )

    @contextmanager
    def _steps_marked(self) -> Iterator[None]:
        own = [optimizer.__dict__.get("step") for optimizer in self.optimizers]

        def marker(index: int) -> Callable[..., Any]:
            return lambda closure=None: self.mark_step(index, closure)

        try:
            for index, optimizer in enumerate(self.optimizers):
                optimizer.step = marker(index)  # type: ignore[method-assign]
            yield
        finally:
            for optimizer, step in zip(self.optimizers, own, strict=True):
                if step is None:
                    optimizer.__dict__.pop("step", None)
                else:
                    optimizer.__dict__["step"] = step

    # -- what it leaves behind -------------------------------------------------------------------------------------

    def _tape(
        self, result: Any, entry: dict[str, Any], buffers: dict[str, torch.Tensor], checkpoints: list[Checkpoint]
    ) -> Tape:
        recorder = self.recorder
        leaves, structure = flatten(result)
        result_leaves: list[Any] = []
        spent: set[int] = set()
        own = {id(tensor): Own("buffer", name) for name, tensor in buffers.items()}
        own.update((id(tensor), Own("parameter", name)) for name, tensor in self.parameters.items())
        for index, leaf in enumerate(leaves):
            if id(leaf) in self.given:
                result_leaves.append(Given(self.given[id(leaf)]))
                continue
            if id(leaf) in own:
                result_leaves.append(own[id(leaf)])
                continue
            if not isinstance(leaf, torch.Tensor):
                if plain_key(leaf) is None and id(leaf) not in self.surroundings.names and not callable(leaf):
                    raise CaptureError(
                        f"the function returns a {type(leaf).__qualname__}: besides tensors and what holds them, only "
                        "values that cannot change may be returned"
                    )
                result_leaves.append(leaf)
                continue
            if leaf.grad_fn is not None and leaf.grad_fn not in self.consumed:
                raise CaptureError(
                    "the function returns a tensor that still needs its backward pass; call it under torch.no_grad(), "
                    "or let the function call backward()"
                )
            if type(leaf) not in (FakeTensor, torch.Tensor) or isinstance(leaf, torch.nn.Parameter):
                kind = "Parameter" if isinstance(leaf, torch.nn.Parameter) else type(leaf).__qualname__
                raise CaptureError(f"the function returns a {kind}: of what it makes, only plain tensors are returned")
            if leaf.requires_grad and leaf.grad_fn is None:
                raise CaptureError("the function returns a leaf of its own that requires a gradient; detach it")
            if leaf.grad_fn is not None:
                spent.add(index)
            result_leaves.append(recorder.ref(leaf))
        new_gradients: dict[str, Ref | None] = {}
        for name, parameter in self.parameters.items():
            if parameter.grad is not entry[name]:
                new_gradients[name] = None if parameter.grad is None else recorder.ref(parameter.grad)
        new_buffers = {
            name: recorder.ref(tensor) for name, tensor in self.model.named_buffers() if tensor is not buffers.get(name)
        }
        self._find_constants()
        gradients = [ref for mark in self.updates for ref in mark.gradients.values()]
        left_behind = refs_in([result_leaves, new_gradients, new_buffers, gradients])
        updates = [mark.position for mark in self.updates]
        merge_runs(recorder.recording, checkpoints, updates, {ref.buffer for ref in left_behind})
        if region_around():
            self._take_kept_casts()
        return Tape(
            recording=recorder.recording,
            roots=self.roots,
            updates=self.updates,
            result_leaves=result_leaves,
            result_structure=structure,
            new_gradients=new_gradients,
            new_buffers=new_buffers,
            any_gradients=self.stand_in_gradients or not self._gradients_used(),
            any_frozen_gradients=self.stand_in_frozen or all(p.requires_grad for p in self.parameters.values()),
            parameters=self.parameters,
            spent=frozenset(spent),
        )

    def _find_constants(self) -> None:
        """Names the tensors that the step uses besides its model and arguments; refuses those that nobody watches."""
        for index, buffer in enumerate(self.recorder.recording.buffers):
            if buffer.role == "constant" and buffer.root is not None and index not in self.roots:
                if not self.surroundings.explains(buffer.root) and buffer.root not in self.filled:
                    raise CaptureError(
                        f"the step uses a tensor of shape {tuple(buffer.root.shape)} that it gets from where it cannot "
                        "be found again, such as an iterator; pass it as an argument"
                    )
                self.roots[index] = [Root("constant", buffer.root, self.recorder.root_offset(buffer.root))]

    def _take_kept_casts(self) -> None:
        """Casts that autocast keeps beyond the call are there before the step, or are made then: it makes none."""
        recording = self.recorder.recording
        others = [buffer.root for buffer in recording.buffers if buffer.role == "constant" and buffer.root is not None]
        for weight in (*self.parameters.values(), *others):
            cast = kept_cast(weight)
            if cast is None:
                continue
            source, made = self.recorder.ref(weight).buffer, self.recorder.ref(cast).buffer
            index = next(i for i, c in enumerate(recording.calls) if made in [ref.buffer for ref in c.results if ref])
            before = (
                written_buffers(c.target, positional(c.target, c.args, c.kwargs)) for c in recording.calls[:index]
            )
            if any(source in written for written in before) or any(mark.position <= index for mark in self.updates):
                raise CaptureError(
                    "the step changes a weight and then casts it, in an autocast region that outlives the call: "
                    "put the region into the function"
                )
            recording.calls[index].repeats = True
            recording.buffers[made].name, recording.buffers[made].role = (
                f"cast of {recording.buffers[source].name}",
                "constant",
            )
            self.roots[made] = [Root("cast", Cast(weight, cast.dtype, cast.requires_grad))]

    def _gradients_used(self) -> bool:
        """Whether the tape depends on the gradients at entry; of one that was not set then, nothing is known."""
        found = {root.key for roots in self.roots.values() for root in roots if root.kind == "gradient"}
        if any(parameter.requires_grad and name not in found for name, parameter in self.parameters.items()):
            return True
        return self.found_gradients_used()

    def found_gradients_used(self) -> bool:
        """Whether the tape depends on the gradients that were there at entry."""
        entry = {b for b, roots in self.roots.items() for root in roots if root.kind == "gradient"}
        used = {ref.buffer for call in self.recorder.recording.calls for ref in refs_in((call.args, call.kwargs))}
        used |= {ref.buffer for mark in self.updates for ref in mark.gradients.values()}
        return bool(entry & used)

    def _kept_result(self) -> str:
        """In words, which tensor of the step somebody outside still holds, if anybody does."""
        if not self.stand_ins.alive():
            return ""
        kept = [index for reference, index in self.recorder.made if index >= 0 and reference() is not None]
        said = "return it from the function instead"
        if not kept:
            return f"something keeps an argument after the step: a hook, a list or an attribute outside; {said}"
        calls = self.recorder.recording.calls
        buffers = [{ref.buffer for ref in calls[index].results if ref is not None} for index in kept]
        call = calls[max(index for index, made in zip(kept, buffers, strict=True) if made & buffers[0])]
        module = f" in {call.where.module}" if call.where.module else ""
        return (
            f"something keeps the result of {call.target}{module} after the step ({call.where.source}): "
            f"a hook, a list or an attribute outside the function; {said}"
        )


def _is_plain(parameter: torch.nn.Parameter) -> bool:
    """Whether a frozen parameter can be given a gradient; quantized ones cannot."""
    known = type(parameter) in (torch.nn.Parameter, FakeTensor) and parameter.layout is torch.strided
    return known and not why_not_planned(parameter.device) and (parameter.is_floating_point() or parameter.is_complex())


@contextmanager
def other_optimizers_refused() -> Iterator[None]:
    """Those that were passed to `compile` do not step during a capture; any other would leave fake state behind."""

    def refuse(optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        raise CaptureError(f"{type(optimizer).__name__} steps in the function: pass it to lowtide.compile as well")

    handle = register_optimizer_step_pre_hook(on_this_thread(refuse))
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _scalers_followed() -> Iterator[None]:
    """`GradScaler.scale` is traced like anything else; what follows it looks at the gradients, so it is refused."""
    names = ("unscale_", "step", "update")
    own = [getattr(torch.amp.GradScaler, name) for name in names]
    is_this_thread = this_thread()

    def refusing(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(scaler: torch.amp.GradScaler, *args: Any, **kwargs: Any) -> Any:
            if scaler.is_enabled() and is_this_thread():
                raise CaptureError(
                    f"GradScaler.{name} decides by the gradients' values whether the optimizer steps; call unscale_, "
                    "step and update of the scaler after the function, and what is in it is planned"
                )
            return method(scaler, *args, **kwargs)

        return call

    try:
        for name, method in zip(names, own, strict=True):
            setattr(torch.amp.GradScaler, name, refusing(name, method))
        yield
    finally:
        for name, method in zip(names, own, strict=True):
            setattr(torch.amp.GradScaler, name, method)


@contextmanager
def _autocast_cache_apart() -> Iterator[None]:
    """PyTorch keeps cast weights until the outermost autocast region ends; those of the capture must go."""
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        torch.clear_autocast_cache()


def in_own_context(function: Callable[..., Any], *args: Any) -> Any:
    """Calls the function. Context variables that it sets are set in a context of its own, and refused."""
    outside = contextvars.copy_context()
    context = outside.copy()
    result = context.run(function, *args)
    for variable in context:
        if context[variable] is not outside.get(variable) and is_state(context[variable]):
            raise CaptureError(
                f"the step sets the context variable `{variable.name}` in code that a plan does not run again: do it "
                "outside of modules, or return it"
            )
    return result


@contextmanager
def failures_unlogged() -> Iterator[None]:
    """While open, PyTorch does not log that an operator has failed on fake tensors: the error itself is told of."""
    before = _fake_tensor_log.disabled
    _fake_tensor_log.disabled = True
    try:
        yield
    finally:
        _fake_tensor_log.disabled = before


def forget_real_tensors(fake_mode: FakeTensorMode) -> None:
    """The mode may outlive the capture, and `torch.utils.swap_tensors` refuses tensors with weak references."""
    describer = fake_mode.fake_tensor_converter.meta_converter.describer
    describer.lookup_tensor.clear()
    describer.lookup_storage.clear()


def drop_tracebacks(error: BaseException) -> None:
    """Lets go of the functions that the error, and those that led to it, came through: their variables hold tensors."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        one = pending.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = None
            pending += [one.__cause__, one.__context__]


def describe_error(error: Exception) -> str:
    """One line: what went wrong, and the innermost line that is not PyTorch's or ours."""
    at = user_line_of(error)
    line = f" ({at[0]}:{at[1]})" if at is not None else ""
    first = str(error).strip().splitlines()
    return f"{type(error).__name__}: {first[0] if first else ''}{line}"
