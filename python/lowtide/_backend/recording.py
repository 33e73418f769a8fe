"""A region's graph, from AOTAutograd, run on fake tensors of this call's sizes under Lowtide's own recorder.

Sizes that are symbols in the graph are numbers here: a recording is for one set of them. The nodes of the forward pass
come first, then the region's turn, then all others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import CheckpointPolicy

from .._base.pause import TURN
from .._base.progress import ProgressLine
from .._base.schemas import positional
from .._base.structure import flatten
from .._capture.recorder import Call, Recorder, Ref, Where, written_buffers
from .._capture.tape import Root, Tape
from ..errors import CaptureError
from .halves import TANGENT

_aten = torch.ops.aten
_SIZES: dict[Any, Callable[..., Any]] = {
    _aten.sym_size.int: lambda tensor, dim: tensor.shape[dim],
    _aten.sym_stride.int: lambda tensor, dim: tensor.stride(dim),
    _aten.sym_numel.default: lambda tensor: tensor.numel(),
    _aten.sym_storage_offset.default: lambda tensor: tensor.storage_offset(),
}
_RERUN = (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)


@dataclass(frozen=True, slots=True)
class Layout:
    """The form of a tensor from outside."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    device: torch.device

    def fake(self) -> torch.Tensor:
        """A tensor of that form, under the fake mode that is open."""
        return torch.empty_strided(self.sizes, self.strides, dtype=self.dtype, device=self.device)

    def is_of(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor has this form."""
        return (tensor.dtype, tuple(tensor.shape), tensor.stride()) == (self.dtype, self.sizes, self.strides)


def layout_of(tensor: torch.Tensor) -> Layout:
    """The form of a tensor."""
    return Layout(tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.device)


class Joint:
    """A graph of forward and backward pass."""

    def __init__(self, module: fx.GraphModule, num_outputs: int, first_names: frozenset[str]) -> None:
        """The forward pass has so many outputs, and nodes of these names."""
        self.module = module
        self.num_outputs = num_outputs
        nodes = list(module.graph.nodes)
        holders = [node for node in nodes if node.op == "placeholder"]
        self.inputs = [node for node in holders if not str(node.target).startswith(TANGENT)]
        self.tangents = [node for node in holders if str(node.target).startswith(TANGENT)]
        self.late: set[fx.Node] = set()  # what needs a tangent
        for node in nodes:
            if node in self.tangents or not self.late.isdisjoint(node.all_input_nodes):
                self.late.add(node)
        computed = [node for node in nodes if node.op in ("call_function", "get_attr", "call_module", "call_method")]
        first = self._first(computed, first_names)
        self.first = [node for node in computed if node in first]
        self.second = [node for node in computed if node not in first]
        output = next(node for node in nodes if node.op == "output")
        self.outputs = list(output.args[0])

    def _first(self, computed: Sequence[fx.Node], names: frozenset[str]) -> set[fx.Node]:
        """What the forward pass computes, random draws and writes to memory from outside included."""
        begun = next((place for place, node in enumerate(computed) if node in self.late), len(computed))
        wanted = {node for node in computed if node.name in names and node not in self.late}
        wanted |= {node for node in computed[:begun] if _is_random(node)}
        for node in reversed(computed):
            if node in wanted:
                wanted.update(other for other in node.all_input_nodes if other.op != "placeholder")
        return wanted


@dataclass(slots=True)
class Recorded:
    """A tape of a region, and what becomes of its results."""

    tape: Tape
    outputs: list[Ref | Any]  # of the graph, in its order: where it is, or what it is if it is no tensor
    values: dict[str, Any]  # numbers that nodes have given, by name
    tangents: list[Layout]
    placeholders: dict[str, int]  # inputs by the names of their nodes


def record(joint: Joint, given: Sequence[Layout | Any], tangents: Sequence[Layout]) -> Recorded:
    """Runs the graph on fake tensors. `given` are its inputs: their form, or their value if they are no tensors."""
    fake_mode = FakeTensorMode()
    recorder = _Recorder(fake_mode)
    roots: dict[int, list[Root]] = {}
    env: dict[fx.Node, Any] = {}
    holders = [*joint.inputs, *joint.tangents]
    names = [_name_of(node) for node in holders]
    for index, (node, form) in enumerate(zip(holders, [*given, *tangents], strict=True)):
        if not isinstance(form, Layout):
            env[node] = form
            continue
        with fake_mode:
            env[node] = form.fake()
        role = "gradient" if node in joint.late else "parameter" if _is_parameter(node) else "input"
        recorder.add_fake_root(env[node], names[index], role)
        roots[recorder.ref(env[node]).buffer] = [Root("input", index)]
    num = joint.num_outputs
    with fake_mode, recorder, torch.no_grad(), _shown(len(joint.first) + len(joint.second)) as shown:
        for node in joint.first:
            shown()
            env[node] = recorder.run(node, env, joint.module)
        left = [recorder.ref(leaf) for leaf in _tensors(joint.outputs[:num], env)]
        written = _written(recorder)
        given_back = [recorder.ref(leaf) for leaf in _tensors(joint.inputs, env)]
        left += [ref for ref in given_back if ref.buffer in written]
        taken = [recorder.ref(env[node]) for node in joint.tangents]
        recorder.recording.calls.append(Call(TURN, (left, taken), {}, [], Where("turn", "")))
        begin = len(recorder.recording.calls)
        for node in joint.second:
            shown()
            env[node] = recorder.run(node, env, joint.module)
        for call in recorder.recording.calls[begin:]:
            call.backward = True
    if recorder.recording.formulas:
        formula, source = next(iter(recorder.recording.formulas.items()))
        raise CaptureError(f"{formula} has another formula in PyTorch's graph than in eager ({source})")
    outputs = [env[node] if isinstance(node, fx.Node) else node for node in joint.outputs]
    refs = [recorder.ref(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in outputs]
    for buffer, known in enumerate(recorder.recording.buffers):
        if known.root is not None and buffer not in roots:
            roots[buffer] = [Root("constant", known.root)]
    leaves = [ref for ref in refs if isinstance(ref, Ref)]
    tape = Tape(recorder.recording, roots, [], leaves, flatten(((), None))[1], {}, {}, True, True)
    values = {node.name: value for node, value in env.items() if isinstance(value, (int, float, bool))}
    recorder.let_go()
    placeholders = {node.name: index for index, node in enumerate(joint.inputs)}
    return Recorded(tape, refs, values, list(tangents), placeholders)


@contextmanager
def _shown(count: int) -> Iterator[Callable[[], None]]:
    """A line of progress; what it gives is called for each of so many nodes."""
    line = ProgressLine("recording")
    done = 0

    def next_one() -> None:
        nonlocal done
        done += 1
        line.show(f"call {done} of {count}")

    try:
        yield next_one
    finally:
        line.clear()


def tangent_layouts(joint: Joint, given: Sequence[Any]) -> list[Layout]:
    """The forms of tangents, where those of inputs are known: as AOTAutograd will give them."""
    metas = [node.meta["val"] for node in joint.tangents]
    symbols = _symbols(joint, given) if any(map(_is_symbolic, metas)) else {}
    layouts = []
    for meta in metas:
        sizes = tuple(_number(size, symbols) for size in meta.shape)
        strides = tuple(_number(stride, symbols) for stride in meta.stride())
        layouts.append(Layout(meta.dtype, sizes, strides, meta.device))
    return layouts


def _is_symbolic(meta: torch.Tensor) -> bool:
    return not all(isinstance(number, int) for number in (*meta.shape, *meta.stride()))


def _symbols(joint: Joint, given: Sequence[Any]) -> dict[Any, int]:
    metas = [node.meta["val"] for node in joint.inputs]
    numbers = [n for meta in metas for n in (meta.shape if isinstance(meta, torch.Tensor) else [meta])]
    env = next(n.node.shape_env for n in numbers if isinstance(n, torch.SymInt))
    like = [
        torch.empty_strided(form.sizes, form.strides, device="meta") if isinstance(form, Layout) else form
        for form in given
    ]
    found: dict[Any, int] = env.bind_symbols(metas, like)
    return found


def _number(number: int | torch.SymInt, symbols: dict[Any, int]) -> int:
    return number if isinstance(number, int) else int(number.node.expr.xreplace(symbols))


class _Recorder(Recorder):  # type: ignore[no-untyped-call]
    """Knows the node whose calls it records."""

    def __init__(self, fake_mode: FakeTensorMode) -> None:
        super().__init__(fake_mode)
        self._at = Where("", "")

    def where(self) -> Where:
        return self._at

    def run(self, node: fx.Node, env: dict[fx.Node, Any], module: fx.GraphModule) -> Any:
        """What the node gives; its calls are on the tape."""
        self._at = Where(_line_of(node), _module_of(node))
        if node.op == "get_attr":
            return operator.attrgetter(str(node.target))(module)
        if node.op != "call_function":
            raise CaptureError(f"{node.op} {node.target} in PyTorch's graph")
        args, kwargs = fx.map_arg((node.args, node.kwargs), env.__getitem__)
        target: Any = _SIZES.get(node.target, node.target)
        begin = len(self.recording.calls)
        out = target(*args, **kwargs)
        for call in self.recording.calls[begin:]:
            call.region = _region_of(node)
        return out


def _region_of(node: fx.Node) -> int:
    """The checkpoint that a node of the forward pass is in; 0: none."""
    return int(node.meta.get("ac_graph_id", 0)) + 1 if node.meta.get("recompute") in _RERUN else 0


def _is_random(node: fx.Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


def _written(recorder: Recorder) -> set[int]:
    """The buffers that calls so far write."""
    found: set[int] = set()
    for call in recorder.recording.calls:
        found.update(written_buffers(call.target, positional(call.target, call.args, call.kwargs)))
    return found


def _tensors(nodes: Sequence[Any], env: dict[fx.Node, Any]) -> Iterator[torch.Tensor]:
    for node in nodes:
        leaf = env.get(node)
        if isinstance(leaf, torch.Tensor):
            yield leaf


def _is_parameter(node: fx.Node) -> bool:
    return "Param" in type(node.meta.get("desc")).__name__


def _name_of(node: fx.Node) -> str:
    desc = node.meta.get("desc")
    target = getattr(desc, "target", None)
    return str(target) if target else str(node.target)


def _line_of(node: fx.Node) -> str:
    """Where the user's code asks for it: the last line of its trace."""
    trace = node.meta.get("stack_trace")
    lines = [line.strip() for line in trace.splitlines() if line.strip().startswith("File ")] if trace else []
    if not lines:
        return str(node.name)
    file, line = lines[-1].split(", ")[:2]
    return f"{file[6:-1]}:{line.removeprefix('line ')}"


def _module_of(node: fx.Node) -> str:
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    return str(list(stack.values())[-1][0]) if stack else ""
