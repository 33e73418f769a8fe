"""What Inductor will allocate for a graph under a given partition, found without compiling a kernel.

The graph goes the whole way through PyTorch's compiler: traced, partitioned, fused, scheduled, and written down as a
program in Python that allocates buffers, lets go of them and calls kernels. There it stops. The program is then run on
fake tensors, with kernels that do nothing, and the bytes that it holds are counted:

    bytes  |          _____
           |     ____|     |____         saved: what the backward pass finds
           |    |  saved + outputs |_____
           | ___|               gradients
           +-----------------------------> time
             forward     backward

So everything counts that Inductor does after fusion: buffers that exist only inside a kernel, buffers that are used
again, saved tensors that the backward pass lets go of early. Inputs and incoming gradients are the caller's, and what
operators allocate inside themselves is not seen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._functorch import config as functorch_config
from torch._inductor.compile_fx import compile_fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from .._step.living import Living
from ..errors import CaptureError
from .copies import copy_of
from .inductor_internals import (
    CustomPartitionerFn,
    GraphLowering,
    TracingContext,
    V,
    compile_fx_inner,
    free_unbacked_symbols,
    inductor_config,
    tracing,
)

_KERNELS = "async_compile = AsyncCompile()"  # the line of a program that its kernels are compiled by
_NO_KERNELS = "async_compile = _NoKernels()"
_EMPTY = "empty_strided_"  # how the functions are called that programs allocate with
_UNCACHED = {"fx_graph_cache": False, "fx_graph_remote_cache": False}  # what is found there is not written again


@dataclass(frozen=True, slots=True)
class Peak:
    """Bytes of a region beside what is the caller's."""

    nbytes: int  # the most at once, in either pass
    held: int  # between the passes: saved tensors and outputs; of inference: outputs
    gradients: int


@dataclass(slots=True)
class _Half:
    """A pass as a program: its inputs and outputs by the names of their nodes."""

    inputs: list[tuple[str, Any]]  # sizes, strides, dtype and device of tensors; numbers
    outputs: list[str | None]
    is_backward: bool
    program: str = ""
    constants: Mapping[str, Any] = field(default_factory=dict)
    call: Callable[[list[Any]], Any] | None = None  # of a pass without operators


def peak_of(graph: fx.GraphModule, example_inputs: Sequence[Any], partition: CustomPartitionerFn | None) -> Peak:
    """What the graph will allocate if it is parted so, or as Inductor does by itself. Raises `CaptureError`."""
    halves = _written(graph, example_inputs, partition)
    with _disable_current_modes(), torch.no_grad():
        return _counted(halves)


# -- writing the programs ----------------------------------------------------------------------------------------------


def _written(
    graph: fx.GraphModule, example_inputs: Sequence[Any], partition: CustomPartitionerFn | None
) -> list[_Half]:
    """The passes of the graph as Inductor writes them down."""
    if inductor_config.cpp_wrapper or inductor_config.fx_wrapper:
        raise CaptureError("Inductor is set to write programs in C++ or FX, which Lowtide does not read")
    halves: list[_Half] = []

    def write(half: fx.GraphModule, inputs: Sequence[Any], **how: Any) -> Callable[..., Any]:
        halves.append(_write(half, inputs, how))
        return _refuse_to_run

    around = TracingContext.try_get()
    with (
        functorch_config.patch(enable_autograd_cache=False, force_non_lazy_backward_lowering=True),
        inductor_config.patch({**_UNCACHED, "custom_partitioner_fn": partition}),
        tracing(copy(around)) if around is not None else contextlib.nullcontext(),
    ):
        compile_fx(copy_of(graph), list(example_inputs), inner_compile=write)  # type: ignore[arg-type]
    return halves


def _refuse_to_run(_: list[Any]) -> Any:
    raise AssertionError("a program that was only to be counted is run")


_refuse_to_run._boxed_call = True  # type: ignore[attr-defined]


def _write(graph: fx.GraphModule, inputs: Sequence[Any], how: dict[str, Any]) -> _Half:
    for node in graph.graph.nodes:
        if free_unbacked_symbols(node.meta.get("val")):
            raise CaptureError("sizes in the graph depend on values, so that its memory cannot be predicted")
    names = [node.name for node in graph.graph.find_nodes(op="placeholder")]
    (given,) = next(iter(graph.graph.find_nodes(op="output"))).args
    outputs = [node.name if isinstance(node, fx.Node) else None for node in given]
    forms = [_form_of(value) for value in inputs]
    half = _Half(list(zip(names, forms, strict=True)), outputs, bool(how.get("is_backward")))

    def stop(program: str) -> None:
        half.program, half.constants = program, dict(V.graph.constants)
        raise _Written

    with _called_before_kernels(stop):
        try:
            half.call = compile_fx_inner(graph, inputs, **how)
        except Exception:  # Inductor has wrapped what stopped it
            if not half.program:
                raise
    return half


class _Written(Exception):
    """The program is there: nothing is to be compiled."""


@contextlib.contextmanager
def _called_before_kernels(stop: Callable[[str], None]) -> Iterator[None]:
    """While open, `stop` is called with each program, before its kernels are. PyTorch compiles one graph at a time."""
    before = GraphLowering.save_output_code
    GraphLowering.save_output_code = staticmethod(stop)
    try:
        yield
    finally:
        GraphLowering.save_output_code = before


def _form_of(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return _number(value)
    return [_number(size) for size in value.shape], [_number(s) for s in value.stride()], value.dtype, value.device


def _number(value: Any) -> Any:
    """A size that may change from call to call, as it is in this one, which nothing is made to depend on."""
    return value.node.hint if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) else value


# -- counting ----------------------------------------------------------------------------------------------------------


def _counted(halves: Sequence[_Half]) -> Peak:
    """Runs the passes one after the other on fake tensors."""
    fakes, living = FakeTensorMode(allow_non_fake_inputs=True), Living()
    forward = halves[0]
    inputs = _fakes(forward.inputs, fakes)  # the caller holds them
    outputs = list(_run(forward, list(inputs), fakes, living))
    held = living.bytes
    if len(halves) == 1:
        return Peak(living.most, held, 0)
    backward = halves[1]
    saved = dict(zip(forward.outputs, outputs, strict=True))
    is_saved = [name in saved for name, _ in backward.inputs]
    given = _fakes([entry for entry, known in zip(backward.inputs, is_saved, strict=True) if not known], fakes)
    tangents = iter(given)  # these too
    args = [
        saved[name] if known else next(tangents) for (name, _), known in zip(backward.inputs, is_saved, strict=True)
    ]
    del saved
    del outputs[len(outputs) - sum(is_saved) :]  # those of the user come first: the caller holds them
    gradients = _run(backward, args, fakes, living)
    outputs.clear()
    made = living.bytes
    del gradients
    return Peak(living.most, held, made)


def _fakes(entries: Sequence[tuple[str, Any]], fakes: FakeTensorMode) -> list[Any]:
    """Inputs of these forms."""
    made = []
    for _, form in entries:
        if isinstance(form, tuple):
            sizes, strides, dtype, device = form
            with fakes:
                made.append(torch.empty_strided(sizes, strides, dtype=dtype, device=device))
        else:
            made.append(form)
    return made


def _run(half: _Half, args: list[Any], fakes: FakeTensorMode, living: Living) -> Any:
    """The outputs of a pass. `args` is emptied."""
    call = half.call if not half.program else _loaded(half)["call"]
    assert call is not None
    with fakes, living:
        return call(args)


def _loaded(half: _Half) -> dict[str, Any]:
    """The names of a program that allocates fake tensors, and whose kernels do nothing."""
    if half.program.count(_KERNELS) != 1:
        raise CaptureError("Inductor's programs have another form in this version of PyTorch")
    names: dict[str, Any] = {"__name__": "lowtide_counts_this", "_NoKernels": _NoKernels, **half.constants}
    exec(compile(half.program.replace(_KERNELS, _NO_KERNELS), "<program of Inductor>", "exec"), names)
    for name in [name for name in names if name.startswith(_EMPTY)]:
        names[name] = _allocator(name.removeprefix(_EMPTY).partition("_")[0])
    names["reinterpret_tensor"] = _window
    names["assert_size_stride"] = names["assert_alignment"] = _nothing
    return names


def _allocator(device: str) -> Callable[..., torch.Tensor]:
    def allocate(sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(sizes, strides, dtype=dtype, device=device)

    return allocate


def _window(tensor: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
    return torch.as_strided(tensor, sizes, strides, tensor.storage_offset() + offset)


def _nothing(*_: Any) -> None:
    pass


class _NoKernels:
    """Stands in for what compiles kernels: for each it gives one that does nothing."""

    def wait(self, _: dict[str, Any]) -> None:
        """They are there at once."""

    def __getattr__(self, _: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: _NoKernel()


class _NoKernel:
    def __call__(self, *_: Any, **__: Any) -> None:
        pass

    def run(self, *_: Any, **__: Any) -> None:
        """As kernels of Triton are called."""
