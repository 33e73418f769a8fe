"""The tape recorder: what PyTorch's dispatcher is asked to do, call by call, without doing it.

A `Recorder` is a dispatch mode that runs every call on fake tensors and writes it down. A tensor is known by the
storage behind it and by its shape, never by its Python object, so that recording holds nothing alive: the calls (who
steals a gradient, who clones it) are those that eager would have made.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, disable_fake_tensor_cache
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from .. import _core
from .._base.devices import CPU, why_not_planned
from .._base.engine_switches import changed_since, read_operator_switches
from .._base.hints import is_recomputed
from .._base.interrupts import signals_held
from .._base.own_thread import on_this_thread
from .._base.progress import ProgressLine
from .._base.schemas import positional
from .._base.sources import user_line
from .._base.structure import instances_in
from ..errors import CaptureError
from .foreach_fakes import leave_fakes_alone, take_fakes_for_tensors
from .formulas import formula_without_data, loss_without_data
from .layouts import layouts
from .random_watch import RandomWatch

LIFT = torch.ops.aten.lift_fresh.default
ITEM = torch.ops.aten._local_scalar_dense.default
_ADD = torch.ops.aten.add.Tensor
_GIVES_LENGTHS = torch.ops.aten._scaled_dot_product_flash_attention.default  # of its arguments, beside tensors
_PURE_NAMESPACES = frozenset({"aten", "prims"})  # what their operators do is in their schemas and tags
_COLLECTIVES = frozenset({"c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "_dtensor",
                          "symm_mem"})  # fmt: skip
QUANTIZED = frozenset({torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4})


class Ref(NamedTuple):
    """A tensor on the tape: a window (dtype, sizes, strides, offset in elements) on a recorded buffer."""

    buffer: int
    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    device: torch.device = CPU

    def extent(self) -> int:
        """Bytes from its first element to the end of its last."""
        return (1 + sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True))) * self.dtype.itemsize


class Where(NamedTuple):
    """Who asked for a call: the user's source line and the module path."""

    source: str
    module: str


@dataclass(slots=True)
class Call:
    """One dispatched operator; tensors in `args`, `kwargs` and `results` are `Ref`s, results are flat."""

    target: torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[Ref | None]
    where: Where
    grad_mode: bool = False  # gradients were enabled; noted for operators that look
    backward: bool = False  # autograd asked for it
    region: int = 0  # which stretch that is to run again it belongs to; 0: none
    repeats: bool = False  # does again what another call did: its results are those
    may_add_in_place: bool = False  # autograd adds a gradient: of plain tensors, in place if nothing else has the first


@dataclass(slots=True)
class RecordedBuffer:
    """A storage seen on the tape. `root` is the real tensor it stands for, where it existed before the recording."""

    nbytes: int
    root: torch.Tensor | None
    name: str
    role: str
    device: torch.device
    storage: StorageWeakRef  # keeps the storage's address from being handed to another one


@dataclass(slots=True)
class Recording:
    """What a recorder wrote: buffers, and calls in program order."""

    buffers: list[RecordedBuffer] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    kept: set[int] = field(default_factory=set)  # buffers whose content is never to be made again
    same: dict[int, int] = field(default_factory=dict)  # buffers of calls that repeat others, and those of the others
    updates: int = 0  # how often optimizers have stepped by now
    tensors: Counter[int] = field(default_factory=Counter)  # how many there are of each buffer
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)  # by buffer: calls and updates before it was gone
    formulas: dict[str, str] = field(default_factory=dict)  # what has others than eager's (formulas.py), and where

    def known(self, buffer: int) -> int:
        """The buffer, or the one in which its content was made first."""
        return self.same.get(buffer, buffer)


def _note_end(recording: Recording, buffer: int, _tensor: Any) -> None:
    """One tensor of the buffer is gone."""
    recording.tensors[buffer] -= 1
    if not recording.tensors[buffer]:
        recording.ends[buffer] = len(recording.calls), recording.updates


def why_not_plain(tensor: torch.Tensor) -> str:
    """What a tensor is that is no plain window on memory that can be planned; "" if it is one."""
    if type(tensor) is not FakeTensor and type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"a {type(tensor).__qualname__} (a class that sees each operator itself)"
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}"
    if tensor.dtype in QUANTIZED:
        return f"a quantized tensor ({tensor.dtype})"
    if refused := why_not_planned(tensor.device):
        return f"a tensor on {tensor.device} ({refused})"
    if tensor.is_conj() or tensor.is_neg():
        return "a lazily conjugated or negated tensor"
    return ""


def is_pure(target: torch._ops.OpOverload) -> bool:
    """Whether its schema and tags tell all that it does, as PyTorch's own do."""
    return target.namespace in _PURE_NAMESPACES


def may_draw(target: torch._ops.OpOverload) -> bool:
    """Whether it may draw random numbers; of what is not PyTorch's own nobody knows."""
    return torch.Tag.nondeterministic_seeded in target.tags or not is_pure(target)


def refs_in(tree: Any) -> Iterator[Ref]:
    """Every `Ref` in an argument: itself, or inside lists, tuples and dicts."""
    return instances_in(tree, Ref)


def written_buffers(target: torch._ops.OpOverload, arguments: Sequence[Any]) -> list[int]:
    """The buffers that a call changes in place; `arguments` are in schema order."""
    written: list[int] = []
    for schema, argument in zip(target._schema.arguments, arguments, strict=True):
        if schema.alias_info is not None and schema.alias_info.is_write:
            written += [ref.buffer for ref in refs_in(argument)]
    row = _core.op_row(target._schema.name)
    condition, hidden = row.hidden_writes_condition, row.hidden_writes
    if hidden and (condition is None or arguments[condition]):
        written += [ref.buffer for index in hidden for ref in refs_in(arguments[index])]
    return list(dict.fromkeys(written))


def refuse_collective(function: Any) -> None:
    """Raises `CaptureError` for an operator that communicates."""
    collective = isinstance(function, torch._ops.OpOverload) and function.namespace in _COLLECTIVES
    if collective or str(getattr(function, "__module__", "")).startswith("torch.distributed"):
        name = getattr(function, "__name__", function)
        raise CaptureError(
            f"{name} communicates with other processes, which a planned step does not do yet ({user_line()}): call "
            "collectives outside the function, such as after backward() on the gradients that it leaves, and the "
            "optimizer behind them"
        )


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records every dispatched call made under it, on the fake tensors of `fake_mode`.

    `item_answers` answers `.item()` in order, for code whose numbers are known from elsewhere; without it a call that
    needs a tensor's data is refused. `random` is told of each call that may draw random numbers.
    """

    def __init__(
        self,
        fake_mode: FakeTensorMode,
        *,
        item_answers: Sequence[Any] | None = None,
        random: RandomWatch | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fake_mode = fake_mode
        self.random = random
        self._switches = read_operator_switches()
        self.recording = Recording()
        self.module_stack: list[str] = []
        self.made: list[tuple[weakref.ref[torch.Tensor], int]] = []  # each fake, and the call that made it or -1
        self.found_gradients: list[tuple[torch.Tensor, torch.Tensor | None]] = []  # of other leaves than parameters
        self._answers = None if item_answers is None else list(item_answers)
        self._buffer_of: dict[int, int] = {}
        self._root_fakes: dict[
            int, torch.Tensor
        ] = {}  # fake mode finds the stand-in of a real tensor only while it lives
        self._forward_where: dict[int, Where] = {}
        self._open_regions: list[int] = []
        self._num_regions = 0
        # Buffers that must not be used, and what to raise if they are: made then, as an error that was raised leads to
        # all frames on its way, whose tensors lead back here through autograd, where no collector sees it.
        self.forbidden: dict[int, type[Exception]] = {}
        self._took_fakes: list[bool] = []  # by how often it is entered
        self._misused: type[Exception] | None = None  # what a backward pass that goes on is to raise
        self._line = ProgressLine("capturing")

    def __enter__(self) -> Recorder:
        self._took_fakes.append(take_fakes_for_tensors())
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        self._line.clear()
        if self._took_fakes.pop():
            leave_fakes_alone()
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # dynamo is not in play, and wrapping every call against it costs microseconds

    # -- tensors ---------------------------------------------------------------------------------------------------

    def add_root(self, real: torch.Tensor, name: str, role: str) -> torch.Tensor:
        """The fake stand-in of a tensor that exists before the step; its storage becomes a named buffer."""
        with _disable_current_modes():
            fake = self._fake_of(real)
        if fake is not real and id(fake) not in self._root_fakes:
            self.made.append((weakref.ref(fake), -1))
        self._root_fakes[id(fake)] = fake
        self._buffer(fake, root=real, name=name, role=role)
        return fake

    def add_fake_root(self, fake: torch.Tensor, name: str, role: str) -> None:
        """Names the storage of a tensor that is fake already."""
        self._buffer(fake, root=None, name=name, role=role)

    def let_go(self) -> None:
        """The recording is done: real tensors need no stand-ins any more."""
        self._root_fakes.clear()
        self.found_gradients.clear()

    def forbid(self, fake: torch.Tensor, name: str, error: type[Exception]) -> None:
        """Raises `error` if anything uses this tensor; after the backward pass, if that does.

        The engine would keep the rest of a pass that fails, and all fake tensors in it.
        """
        self.add_fake_root(fake, name, "gradient")
        self.forbidden[self._buffer(fake)] = error

    def refuse_misuse(self) -> None:
        """Raises what is due for the use of a forbidden tensor, outside of backward passes."""
        if self._misused is not None and torch._C._current_autograd_node() is None:
            raise self._misused

    def root_offset(self, real: torch.Tensor) -> int:
        """At which byte of its storage's fake the first element of a real tensor stands."""
        return int(self._fake_of(real).storage_offset()) * real.dtype.itemsize

    def _fake_of(self, tensor: torch.Tensor) -> torch.Tensor:
        if isinstance(tensor, FakeTensor):
            return tensor
        refused = why_not_plain(tensor)
        if refused:
            raise CaptureError(f"the step uses {refused}, which cannot be planned ({self.where().source})")
        return self.fake_mode.from_tensor(tensor)

    def ref(self, tensor: torch.Tensor) -> Ref:
        """Where `tensor` stands on the tape."""
        return self._window(self._stand_in(tensor))

    def _window(self, tensor: torch.Tensor) -> Ref:
        refused = why_not_plain(tensor)
        if refused:
            raise CaptureError(f"the step makes {refused}, which cannot be planned ({self.where().source})")
        buffer = self._buffer(tensor)
        if buffer in self.forbidden:
            self._misused = self._misused or self.forbidden[buffer]
            self.refuse_misuse()
        offset = int(tensor.storage_offset())
        return Ref(buffer, tensor.dtype, tuple(tensor.shape), tensor.stride(), offset, tensor.device)

    def _buffer(
        self, fake: torch.Tensor, root: torch.Tensor | None = None, name: str = "", role: str = "activation"
    ) -> int:
        storage = fake.untyped_storage()
        index = self._buffer_of.get(storage._cdata)
        if index is None:
            index = len(self.recording.buffers)
            self._buffer_of[storage._cdata] = index
            weak = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
            self.recording.buffers.append(RecordedBuffer(storage.nbytes(), root, name, role, fake.device, weak))
        elif root is not None:  # the fake of a storage grows with what is found to lie in it
            self.recording.buffers[index].nbytes = storage.nbytes()
        elif storage.nbytes() != self.recording.buffers[index].nbytes:
            raise CaptureError(f"a tensor is resized in place ({self.where().source})")
        return index

    def _stand_in(self, tree: Any) -> Any:
        if isinstance(tree, torch.Tensor):
            if isinstance(tree, FakeTensor) and tree.untyped_storage()._cdata in self._buffer_of:
                return tree
            known = len(self.recording.buffers)
            fake = self.add_root(tree, f"constant{known}", "constant")
            if len(self.recording.buffers) > known and tree.requires_grad and tree.is_leaf:
                self.found_gradients.append((tree, tree.grad))
            return fake
        if isinstance(tree, (list, tuple)):
            return [self._stand_in(item) for item in tree]
        return tree

    def _refs(self, tree: Any) -> Any:
        if isinstance(tree, torch.Tensor):
            return self._window(tree)
        if isinstance(tree, (list, tuple)):
            return [self._refs(item) for item in tree]
        return tree

    # -- wishes ----------------------------------------------------------------------------------------------------

    def keep(self, value: Any) -> None:
        """The content of the tensors in `value` is not to be made again."""
        for leaf in pytree.tree_leaves(value):
            if isinstance(leaf, FakeTensor):
                self.recording.kept.add(self.ref(leaf).buffer)

    def open_region(self) -> int:
        """The calls that follow, but for autograd's, are to run again; of regions in one another the first counts."""
        self._num_regions += 1
        self._open_regions.append(self._num_regions)
        return self._num_regions

    def close_region(self) -> None:
        """Ends the region that was opened last."""
        self._open_regions.pop()

    # -- calls -----------------------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            raise CaptureError(f"{func} is a higher-order operator and cannot be planned ({self.where().source})")
        if func.namespace in ("prim", "profiler"):
            return func(*args, **kwargs)  # autograd asks for a device where it cannot bear an exception
        signals_held.look()
        self._line.show(f"{len(self.recording.calls)} operators")
        self.refuse_misuse()
        refuse_collective(func)
        if func is ITEM:
            return self._item(args)
        if func is LIFT and not isinstance(args[0], FakeTensor):
            out = func(*args)
            self._append(func, args, kwargs, out)  # keeps the constant: every step makes its own copy of it
            return out
        if any(isinstance(arg, torch.Generator) for arg in (*args, *kwargs.values())):
            raise CaptureError(f"{func} draws from a torch.Generator of its own ({self.where().source})")
        args = tuple(self._stand_in(arg) for arg in args)
        kwargs = {key: self._stand_in(arg) for key, arg in kwargs.items()}
        refs = tuple(self._refs(arg) for arg in args)
        kwrefs = {key: self._refs(arg) for key, arg in kwargs.items()}
        if self.random is not None and may_draw(func):
            self.random.draw()
        with nullcontext() if _results_are_apart(func) else disable_fake_tensor_cache(self.fake_mode):
            out = func(*args, **kwargs)
        if layouts.knows(func):
            out = self._laid_out(out, layouts.of(func, positional(func, refs, kwrefs)))
        self._append(func, refs, kwrefs, out)
        if func is _ADD and isinstance(args[0], torch.Tensor):
            self.recording.calls[-1].may_add_in_place = _is_of_autograd() and not args[0]._is_view()
        return out

    def _laid_out(self, out: Any, strides: dict[int, tuple[int, ...]]) -> Any:
        """Results with the strides that they really have."""
        if isinstance(out, torch.Tensor):
            return self._laid_out([out], strides)[0]
        with self.fake_mode:
            return type(out)(
                torch.empty_strided(leaf.shape, strides[index], dtype=leaf.dtype, device=leaf.device)
                if index in strides
                else leaf
                for index, leaf in enumerate(out)
            )

    def _append(self, func: torch._ops.OpOverload, refs: tuple[Any, ...], kwrefs: dict[str, Any], out: Any) -> None:
        results: list[Ref | None] = []
        for leaf in _flat(out) if func._schema.returns else ():
            if isinstance(leaf, torch.Tensor):
                window = self._window(leaf)
                results.append(window)
                if id(leaf) not in self._root_fakes:
                    self.recording.tensors[window.buffer] += 1
                    gone = partial(_note_end, self.recording, window.buffer)
                    self.made.append((weakref.ref(leaf, gone), len(self.recording.calls)))
            elif leaf is None or func is _GIVES_LENGTHS:
                results.append(None)
            else:
                raise CaptureError(f"{func} gives a {type(leaf).__name__}, not a tensor ({self.where().source})")
        changed = changed_since(self._switches)
        if changed:
            raise CaptureError(f"the step sets {changed}: set it outside the function ({self.where().source})")
        grad_mode = torch.is_grad_enabled() and _core.op_row(func._schema.name).sees_grad_mode
        node = torch._C._current_autograd_node()
        region = self._open_regions[0] if self._open_regions and node is None else 0
        where = self.where()
        self.recording.calls.append(Call(func, refs, kwrefs, results, where, grad_mode, node is not None, region))
        device = next((result.device for result in results if result is not None), CPU)
        formula = formula_without_data(node, device) if node is not None else loss_without_data(self.recording.calls)
        if formula is not None:
            self.recording.formulas.setdefault(formula, where.source)

    def _item(self, args: tuple[Any, ...]) -> Any:
        constant = getattr(args[0], "constant", None)
        if constant is not None:
            with _disable_current_modes():
                return constant.item()
        if not self._answers:
            raise CaptureError(f"the step reads a tensor's value with .item() or bool() ({self.where().source})")
        self.recording.calls.append(Call(ITEM, (self.ref(args[0]),), {}, [], self.where()))
        return self._answers.pop(0)

    # -- who asked -------------------------------------------------------------------------------------------------

    def where(self) -> Where:
        """Who asks for the call that is being made."""
        node = torch._C._current_autograd_node()
        if node is not None:  # in backward: whoever made the forward call
            found = self._forward_where.get(node._sequence_nr())
            if found is not None:
                return found
        where = Where(user_line(), self.module_stack[-1] if self.module_stack else "")
        if node is None and torch.is_grad_enabled():
            # Its node has the last number that was given out; calls that follow without a node have the same.
            self._forward_where.setdefault(torch.autograd._get_sequence_nr() - 1, where)
        return where


def _results_are_apart(func: torch._ops.OpOverload) -> bool:
    """Whether no two results are one tensor, which PyTorch's cache of fake results would forget.

    What can be made part by part has memory of its own. Without the cache a norm takes 10 ms to capture.
    """
    return len(func._schema.returns) < 2 or bool(_core.op_row(func._schema.name).axes)


def _is_of_autograd() -> bool:
    """Whether autograd itself makes a call, not a `torch.autograd.Function`, and nothing is differentiated again."""
    node = torch._C._current_autograd_node()
    is_own = node is not None and not isinstance(node, torch.autograd.function.BackwardCFunction)
    return is_own and not torch.is_grad_enabled()


def _flat(tree: Any) -> Iterator[Any]:
    if isinstance(tree, (list, tuple)):
        for item in tree:
            yield from _flat(item)
    else:
        yield tree


@contextmanager
def module_paths(recorder: Recorder, model: torch.nn.Module) -> Iterator[None]:
    """While open, calls are recorded with the path of the module whose `forward` makes them, and with its region."""
    paths = {module: path for path, module in model.named_modules()}

    def enter(module: torch.nn.Module, _args: Any) -> None:
        recorder.module_stack.append(paths.get(module, type(module).__name__))
        if is_recomputed(module):
            recorder.open_region()

    def leave(module: torch.nn.Module, _args: Any, _out: Any) -> None:
        recorder.module_stack.pop()
        if is_recomputed(module):
            recorder.close_region()

    handles = (
        torch.nn.modules.module.register_module_forward_pre_hook(on_this_thread(enter)),
        torch.nn.modules.module.register_module_forward_hook(on_this_thread(leave), always_call=True),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
