"""Capture: the user's own step function, over the stock model and optimizer, as a tape of dispatcher calls.

The function runs once on fake tensors. Model, optimizer and their tensors stay the real objects, so every reference
the user has to them works; nothing is computed and nothing of theirs is written. `optimizer.step()` is only marked on
the tape: the update itself is composed later, parameter by parameter, from the optimizer's own rule.
"""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensorMode

from .errors import CaptureError
from .recorder import Recorder, Recording, Ref, Where, is_library_file, module_paths, refs_in


@dataclass(frozen=True, slots=True)
class Root:
    """A tensor that exists before the step: what it is, and how to find it again at the next call."""

    kind: str  # parameter, buffer, gradient, input, constant
    key: Any  # the name; the leaf's index for an input; the tensor itself for a constant
    offset: int = 0  # of its first element in the recorded storage


@dataclass(slots=True)
class UpdateMark:
    """`optimizer.step()` was called when `position` calls were on the tape."""

    position: int
    optimizer: int
    gradients: dict[str, Ref]  # by parameter name, in the optimizer's order
    groups: dict[str, int]  # the parameter group of each
    where: Where


@dataclass(slots=True)
class Tape:
    """A captured step: calls, where their tensors come from, and what they leave behind."""

    recording: Recording
    roots: dict[int, list[Root]]  # by buffer
    updates: list[UpdateMark]
    result_leaves: list[Any]  # Ref, or a plain Python value
    result_spec: Any
    new_gradients: dict[str, Ref | None]  # by parameter name: what `.grad` is afterwards, where it changed
    new_buffers: dict[str, Ref]  # module buffers that the step replaced by another tensor
    any_gradients: bool  # the tape is the same whether or not `.grad` was set before
    parameters: dict[str, torch.nn.Parameter] = field(default_factory=dict)


class _EntryGradientUsed(Exception):
    """The step reads the gradients that it finds, so it matters whether there are any."""


def capture_step(
    function: Callable[..., Any],
    *,
    model: torch.nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Tape:
    """Runs `function(*args, **kwargs)` on fake tensors and gives its tape.

    Raises `CaptureError`, naming the source line, when the step cannot be captured. Model, optimizers, gradients,
    random state and module attributes are afterwards what they were before, in every case.
    """
    parameters = dict(model.named_parameters())
    if all(parameter.grad is None for parameter in parameters.values()):
        # Most functions clear the gradients before they make new ones. Such a tape serves whether or not gradients are
        # set at entry; stand-ins that must not be touched tell it from one that accumulates.
        try:
            return _Capture(function, model, optimizers, parameters, stand_in_gradients=True).run(args, kwargs)
        except _EntryGradientUsed:
            pass
    return _Capture(function, model, optimizers, parameters, stand_in_gradients=False).run(args, kwargs)


class _Capture:
    """One run of the step function under the recorder."""

    def __init__(
        self,
        function: Callable[..., Any],
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        parameters: dict[str, torch.nn.Parameter],
        *,
        stand_in_gradients: bool,
    ) -> None:
        self.function = function
        self.model = model
        self.optimizers = optimizers
        self.parameters = parameters
        self.stand_in_gradients = stand_in_gradients
        self.fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.recorder = Recorder(self.fake_mode)
        self.roots: dict[int, list[Root]] = {}
        self.updates: list[UpdateMark] = []

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tape:
        self._add_model_roots()
        fake_args, fake_kwargs = self._fake_inputs(args, kwargs)
        with ExitStack() as stack:
            stack.enter_context(_module_attributes_kept(self.model))
            stack.enter_context(_random_state_kept())
            stack.enter_context(_autocast_cache_apart())
            stack.enter_context(self._gradients_kept())
            stack.enter_context(self._steps_marked())
            stack.enter_context(module_paths(self.recorder, self.model))
            entry = {name: parameter.grad for name, parameter in self.parameters.items()}
            buffers = dict(self.model.named_buffers())
            try:
                with self.fake_mode, self.recorder:
                    result = self.function(*fake_args, **fake_kwargs)
            except (CaptureError, _EntryGradientUsed):
                raise
            except Exception as error:
                raise CaptureError(_describe(error)) from error
            tape = self._tape(result, entry, buffers)
            del result, entry
            stack.close()
            del fake_args, fake_kwargs
            self._refuse_escapes()
        return tape

    # -- what exists before ----------------------------------------------------------------------------------------

    def _add_root(self, tensor: torch.Tensor, kind: str, key: Any, name: str) -> None:
        fake = self.recorder.add_root(tensor, name, kind)
        ref = self.recorder.ref(fake)
        self.roots.setdefault(ref.buffer, []).append(Root(kind, key, ref.offset))

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
        leaves, spec = pytree.tree_flatten((args, kwargs))
        known = {id(tensor) for tensor in (*self.parameters.values(), *self.model.buffers())}
        fakes: list[Any] = []
        for index, leaf in enumerate(leaves):
            if not isinstance(leaf, torch.Tensor) or id(leaf) in known:
                fakes.append(leaf)
                continue
            if leaf.requires_grad:
                raise CaptureError(f"argument {index} requires a gradient: only parameters may")
            if leaf.layout is not torch.strided or leaf.device.type != "cpu":
                raise CaptureError(
                    f"argument {index} is a {leaf.layout} tensor on {leaf.device}: only strided ones on cpu"
                )
            # A storage of its own: batches are often slices of one large tensor, each time at another place.
            with self.fake_mode:
                fake = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype)
            self.recorder.add_fake_root(fake, f"input{index}", "input")
            ref = self.recorder.ref(fake)
            self.roots[ref.buffer] = [Root("input", index)]
            fakes.append(fake)
        fake_args, fake_kwargs = pytree.tree_unflatten(fakes, spec)
        return fake_args, fake_kwargs

    @contextmanager
    def _gradients_kept(self) -> Iterator[None]:
        before = [(parameter, parameter.grad) for parameter in self.parameters.values()]
        versions = [
            (tensor, tensor._version)
            for tensor in self.model.state_dict(keep_vars=True).values()
            if isinstance(tensor, torch.Tensor)
        ]
        try:
            for name, parameter in self.parameters.items():
                if self.stand_in_gradients and parameter.requires_grad:
                    with self.fake_mode:
                        stand_in = torch.empty_strided(parameter.shape, parameter.stride(), dtype=parameter.dtype)
                    self.recorder.add_fake_root(stand_in, f"{name}.grad", "gradient")
                    self.recorder.forbidden[self.recorder._buffer(stand_in)] = _EntryGradientUsed()
                    parameter.grad = stand_in
                elif parameter.grad is not None:
                    self._add_root(parameter.grad, "gradient", name, f"{name}.grad")
            yield
        finally:
            for parameter, grad in before:
                parameter.grad = grad
            torch._C._autograd._unsafe_set_version_counter(
                tuple(tensor for tensor, _ in versions), tuple(version for _, version in versions)
            )

    @contextmanager
    def _steps_marked(self) -> Iterator[None]:
        own = [optimizer.__dict__.get("step") for optimizer in self.optimizers]
        names = {id(parameter): name for name, parameter in self.parameters.items()}

        def marker(index: int, optimizer: torch.optim.Optimizer) -> Callable[..., None]:
            def step(closure: Any = None) -> None:
                if closure is not None:
                    raise CaptureError("optimizer.step(closure) cannot be planned")
                if any(mark.optimizer == index for mark in self.updates):
                    raise CaptureError("one optimizer steps twice in the function")
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

            return step

        try:
            for index, optimizer in enumerate(self.optimizers):
                optimizer.step = marker(index, optimizer)  # type: ignore[method-assign, assignment]
            yield
        finally:
            for optimizer, step in zip(self.optimizers, own, strict=True):
                if step is None:
                    optimizer.__dict__.pop("step", None)
                else:
                    optimizer.__dict__["step"] = step

    # -- what it leaves behind -------------------------------------------------------------------------------------

    def _tape(self, result: Any, entry: dict[str, Any], buffers: dict[str, torch.Tensor]) -> Tape:
        recorder = self.recorder
        leaves, spec = pytree.tree_flatten(result)
        backward_ran = any(parameter.grad is not entry[name] for name, parameter in self.parameters.items())
        result_leaves: list[Any] = []
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor):
                result_leaves.append(leaf)
                continue
            if leaf.grad_fn is not None and not backward_ran and not self.updates:
                raise CaptureError(
                    "the function returns a tensor that still needs its backward pass; call it under torch.no_grad(), "
                    "or let the function call backward()"
                )
            result_leaves.append(recorder.ref(leaf))
        new_gradients: dict[str, Ref | None] = {}
        for name, parameter in self.parameters.items():
            if parameter.grad is not entry[name]:
                new_gradients[name] = None if parameter.grad is None else recorder.ref(parameter.grad)
        new_buffers = {
            name: recorder.ref(tensor) for name, tensor in self.model.named_buffers() if tensor is not buffers.get(name)
        }
        for index, buffer in enumerate(recorder.recording.buffers):
            if buffer.role == "constant" and buffer.root is not None and index not in self.roots:
                self.roots[index] = [Root("constant", buffer.root, recorder.root_offset(buffer.root))]
        return Tape(
            recording=recorder.recording,
            roots=self.roots,
            updates=self.updates,
            result_leaves=result_leaves,
            result_spec=spec,
            new_gradients=new_gradients,
            new_buffers=new_buffers,
            any_gradients=self.stand_in_gradients or not self._gradients_used(),
            parameters=self.parameters,
        )

    def _gradients_used(self) -> bool:
        entry = {b for b, roots in self.roots.items() if any(root.kind == "gradient" for root in roots)}
        if not entry:
            return any(parameter.requires_grad for parameter in self.parameters.values())
        used = {ref.buffer for call in self.recorder.recording.calls for ref in refs_in((call.args, call.kwargs))}
        used |= {ref.buffer for mark in self.updates for ref in mark.gradients.values()}
        return bool(entry & used)

    def _refuse_escapes(self) -> None:
        """A tensor of the step that is still alive now is held by the user: a hook, a list, an attribute."""
        calls = self.recorder.recording.calls
        rooted = set(self.roots)
        for attempt in range(2):
            if attempt:
                gc.collect()  # reference cycles are nobody's
            kept = [
                (ref.buffer, index)
                for weak, index in self.recorder.made
                if not weak.expired()
                for ref in calls[index].results
                if ref is not None and ref.buffer not in rooted
            ]
            if not kept:
                return
        call = calls[max(index for buffer, index in kept if buffer == kept[0][0])]  # in place results: the last writer
        module = f" in {call.where.module}" if call.where.module else ""
        raise CaptureError(
            f"something keeps the result of {call.target}{module} after the step ({call.where.source}): "
            "a hook, a list or an attribute outside the function; return it from the function instead"
        )


@contextmanager
def _module_attributes_kept(model: torch.nn.Module) -> Iterator[None]:
    registries = ("_parameters", "_buffers", "_modules")
    before = [
        (module, dict(module.__dict__), {name: dict(module.__dict__[name]) for name in registries})
        for module in model.modules()
    ]
    try:
        yield
    finally:
        for module, attributes, contents in before:
            module.__dict__.clear()
            module.__dict__.update(attributes)
            for name, content in contents.items():
                registry = module.__dict__[name]
                if list(registry.items()) != list(content.items()):
                    registry.clear()
                    registry.update(content)


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """Restores every random state; numbers drawn by Python or NumPy would be frozen, so they are refused."""
    numpy = sys.modules.get("numpy")
    torch_state = torch.get_rng_state()
    python_state = random.getstate()
    numpy_state = numpy.random.get_state() if numpy is not None else None
    drawn = ""
    try:
        yield
        if random.getstate() != python_state:
            drawn = "random"
        elif numpy is not None and numpy_state is not None:
            now = numpy.random.get_state()
            if now[2] != numpy_state[2] or not (now[1] == numpy_state[1]).all():
                drawn = "numpy.random"
    finally:
        torch.set_rng_state(torch_state)
        random.setstate(python_state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)
    if drawn:
        raise CaptureError(f"the step draws numbers from Python's `{drawn}`; pass them to the function as tensors")


@contextmanager
def _autocast_cache_apart() -> Iterator[None]:
    """PyTorch keeps cast weights until the outermost autocast region ends; those of the capture must go."""
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        torch.clear_autocast_cache()


def _describe(error: Exception) -> str:
    """One line: what went wrong, and the innermost line that is not PyTorch's or ours."""
    line = ""
    trace = error.__traceback__
    while trace is not None:
        if not is_library_file(trace.tb_frame.f_code.co_filename):
            line = f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"
        trace = trace.tb_next
    first = str(error).strip().splitlines()
    return f"{type(error).__name__}: {first[0] if first else ''}{line}"
