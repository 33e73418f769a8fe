"""`lowtide.explain_oom`: what is alive when memory has run out in eager code, who holds it, and what to do."""

from __future__ import annotations

import gc
import json
import linecache
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Any

import torch

from .. import _core
from .._base.sources import is_installed, is_library_file, user_line_of
from . import reserve as oom_reserve
from .device_memory import DeviceMemory, device_of, memory_on
from .live_memory import HeldByGraph, Memory, describe, held_by_graphs, memory_of
from .variables import Place, Seen, line_that_fills, places_in_frame, places_in_module

_SHOWN = 8
_WORTH_SAYING = 0.02  # of all bytes
_LARGE = 0.2


@dataclass(slots=True)
class Holder:
    """Somebody who holds memory. What several hold is counted for one of them."""

    name: str  # "losses[*] in train()", or a kind: "parameters"
    bytes: int
    graph_bytes: int  # of it: kept by the autograd graphs that made its tensors
    only_bytes: int  # of it: nobody else that was found holds these
    count: int  # tensors
    what: str  # of the largest tensor: dtype and shape
    source: str = ""  # the line that puts them there
    code: str = ""
    saved_by: dict[str, int] = field(default_factory=dict)  # bytes in graphs by the node that keeps them, largest first
    advice: str = ""


@dataclass(slots=True)
class OomReport:
    """What was alive. `print` shows it to people; `to_dict` and `to_json` have the same for programs."""

    error: str
    source: str  # the line of the user's at which memory ran out
    code: str
    total_bytes: int  # of all tensors that were found
    tensors: int
    holders: list[Holder]  # largest first
    advice: list[str]
    device: DeviceMemory | None = None  # the GPU that ran out, if it was one

    @property
    def unseen_bytes(self) -> int:
        """Allocated on that GPU, and in no tensor that was found."""
        return max(self.device.allocated_bytes - self.total_bytes, 0) if self.device is not None else 0

    def to_dict(self) -> dict[str, Any]:
        """Fields and holders as plain values."""
        return asdict(self)

    def to_json(self) -> str:
        """The same as a JSON object."""
        return json.dumps(self.to_dict())

    def __str__(self) -> str:
        lines = [f"error     {self.error}"] if self.error else []
        lines += [f"at        {self.source}: {self.code}"] if self.source else []
        lines += [f"device    {self.device}"] if self.device is not None else []
        lines.append(f"alive     {_core.format_bytes(self.total_bytes)} in {self.tensors} tensors")
        if self.device is not None and self.unseen_bytes > self.device.allocated_bytes * _WORTH_SAYING:
            unseen = _core.format_bytes(self.unseen_bytes)
            lines.append(f"beside    {unseen} in no tensor that was found: workspaces of libraries, arenas, rounding")
        shown = [holder for holder in self.holders if holder.bytes >= self.total_bytes * _WORTH_SAYING][:_SHOWN]
        for holder in shown:
            lines += ["", *self._lines_of(holder)]
        rest = self.total_bytes - sum(holder.bytes for holder in shown)
        if rest > 0:
            lines += ["", f"{_core.format_bytes(rest):>10}  {self._share(rest)}  all others"]
        lines += ["", "next", *(f"  {i}. {text}" for i, text in enumerate(self.advice, 1))]
        return "\n".join(lines)

    def _share(self, nbytes: int) -> str:
        return f"{100 * nbytes / max(self.total_bytes, 1):5.1f} %"

    def _lines_of(self, holder: Holder) -> Iterator[str]:
        yield f"{_core.format_bytes(holder.bytes):>10}  {self._share(holder.bytes)}  {holder.name}"
        tensors = holder.what if holder.count == 1 else f"{holder.count} tensors, the largest {holder.what}"
        if holder.graph_bytes:
            tensors += f"; {_core.format_bytes(holder.graph_bytes)} in the autograd graphs that made them"
        yield f"{'':13}{tensors}"
        if holder.source:
            yield f"{'':13}set at    {holder.source}: {holder.code}"
        if holder.saved_by:
            saved = [f"{name} {_core.format_bytes(size)}" for name, size in list(holder.saved_by.items())[:3]]
            yield f"{'':13}kept for  {', '.join(saved)}"
        if holder.source and holder.only_bytes < holder.bytes:
            yield f"{'':13}shared    {_core.format_bytes(holder.bytes - holder.only_bytes)} of it is held elsewhere too"


def explain_oom(error: BaseException | None = None) -> OomReport:
    """What is alive now, and which variables, graphs, parameters, gradients and states hold it.

    Made for an `except` block around eager code. It looks at the variables of the functions that the error went
    through and of those that are running, at what is global, and at the autograd graphs that tensors there hold. It
    computes nothing and needs no memory of the device.

        try:
            train(model, batches)
        except (RuntimeError, MemoryError) as error:
            if lowtide.is_out_of_memory(error):
                print(lowtide.explain_oom())
            raise
    """
    error = error if error is not None else sys.exc_info()[1]
    with oom_reserve.released():
        frames = _frames_of(error, sys._getframe(1))
        return _Census(error, frames).report()


def _frames_of(error: BaseException | None, caller: FrameType | None) -> list[FrameType]:
    """Those that the error went through, the innermost first, and those that still run."""
    frames: list[FrameType] = []
    trace = error.__traceback__ if error is not None else None
    while trace is not None:
        frames.insert(0, trace.tb_frame)
        trace = trace.tb_next
    while caller is not None:
        if caller not in frames:
            frames.append(caller)
        caller = caller.f_back
    return frames


def _user_modules() -> Iterator[tuple[dict[str, Any], str]]:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and not is_library_file(file) and not is_installed(file):
            yield vars(module), file


@dataclass(slots=True)
class _Found:
    """A place or a kind of tensors, with what it reaches."""

    name: str
    tensors: list[torch.Tensor]
    place: Place | None
    own: set[Memory]
    graph: HeldByGraph

    @property
    def reach(self) -> set[Memory]:
        return self.own | self.graph.saved.keys()


class _Census:
    def __init__(self, error: BaseException | None, frames: list[FrameType]) -> None:
        self.error = error
        self.device = device_of(error)
        self.device_memory = memory_on(self.device, error)
        self.frames = frames
        self.user_frames = [frame for frame in frames if not is_library_file(frame.f_code.co_filename)]
        self.files = list(dict.fromkeys(frame.f_code.co_filename for frame in self.user_frames))
        objects = gc.get_objects()
        alive = [one for one in objects if issubclass(type(one), torch.Tensor)]
        self.alive = [tensor for tensor in alive if self._memory(tensor) is not None]
        self.optimizers = [one for one in objects if issubclass(type(one), torch.optim.Optimizer)]

    def report(self) -> OomReport:
        kinds = self._kinds()
        taken = {id(tensor) for kind in kinds for tensor in kind.tensors}
        places = self._places(taken)
        reached = {memory for found in (*kinds, *places) for memory in found.reach}
        rest = [tensor for tensor in self.alive if self._memory(tensor) not in reached]
        everybody = [*kinds, *places, self._found("not held by any variable that was found", rest)]
        found_by = sorted(self._shared_out(everybody), key=lambda pair: -pair[0].bytes)
        holders = [holder for holder, _ in found_by]
        memories = {memory for found in everybody for memory in found.reach}
        total = sum(memory.nbytes for memory in memories)
        self._advise(found_by, total)
        source, code = self._where()
        error = f"{type(self.error).__name__}: {str(self.error).partition(chr(10))[0]}" if self.error else ""
        advice = [holder.advice for holder in holders if holder.advice]
        advice = [*advice, *self._advice_on_device(), *self._closing()]
        return OomReport(error, source, code, total, len(memories), holders, advice, self.device_memory)

    # -- who is there ----------------------------------------------------------------------------------------------

    def _memory(self, tensor: torch.Tensor) -> Memory | None:
        memory = memory_of(tensor)
        return memory if memory is not None and self._is_there(memory) else None

    def _is_there(self, memory: Memory) -> bool:
        """Where memory ran out, as far as that is known."""
        return self.device in ("", memory.device, memory.device.partition(":")[0])

    def _found(self, name: str, tensors: Iterable[torch.Tensor], place: Place | None = None) -> _Found:
        held = [tensor for tensor in tensors if self._memory(tensor) is not None]
        graph = held_by_graphs(held)
        graph.saved = {memory: node for memory, node in graph.saved.items() if self._is_there(memory)}
        own = {memory for tensor in held if (memory := self._memory(tensor)) is not None}
        return _Found(name, held, place, own, graph)

    def _kinds(self) -> list[_Found]:
        parameters = [tensor for tensor in self.alive if isinstance(tensor, torch.nn.Parameter)]
        gradients = [tensor.grad for tensor in self.alive if tensor.is_leaf and tensor.grad is not None]
        states = [
            value
            for optimizer in self.optimizers
            for state in optimizer.state.values()
            for value in (state.values() if isinstance(state, dict) else ())
            if isinstance(value, torch.Tensor)
        ]
        kinds = {"parameters": parameters, "gradients": gradients, "optimizer state": states}
        return [self._found(name, tensors) for name, tensors in kinds.items()]

    def _places(self, taken: set[int]) -> list[_Found]:
        """Of what several places lead to in the same way, the first is shown: the innermost function's."""
        library = [frame for frame in self.frames if frame not in self.user_frames]
        found: list[_Found] = []
        shown: set[tuple[int, ...]] = set()

        def take(places: Iterable[Place]) -> None:
            for place in places:
                tensors = [tensor for tensor in place.tensors if id(tensor) not in taken]
                key = tuple(id(tensor) for tensor in tensors)
                if tensors and key not in shown:
                    shown.add(key)
                    found.append(self._found(f"{place.path} in {place.scope}", tensors, place))

        # The frames of programs that run others have many variables that lead to the same half of the process.
        seen_by_installed: Seen = {}
        for frame in self.user_frames:
            take(places_in_frame(frame, seen_by_installed if is_installed(frame.f_code.co_filename) else None))
        for variables, file in _user_modules():
            take(places_in_module(variables, file))
        for frame in library:
            take(places_in_frame(frame, seen_by_installed))
        return found

    # -- who has what ----------------------------------------------------------------------------------------------

    def _shared_out(self, everybody: list[_Found]) -> Iterator[tuple[Holder, _Found]]:
        """Memory is counted for whoever has a tensor there; if only graphs keep it, for the one that keeps the most."""
        reaches = Counter(memory for found in everybody for memory in found.reach)
        counted: set[Memory] = set()
        own: list[set[Memory]] = []
        for found in everybody:
            own.append(found.own - counted)
            counted |= found.own
        order = sorted(range(len(everybody)), key=lambda i: -everybody[i].graph.nbytes)
        kept: list[set[Memory]] = [set() for _ in everybody]
        for i in order:
            kept[i] = everybody[i].graph.saved.keys() - counted
            counted |= kept[i]
        for i, found in enumerate(everybody):
            if own[i] or kept[i]:
                alone = sum(memory.nbytes for memory in own[i] | kept[i] if reaches[memory] == 1)
                yield self._holder(found, own[i], kept[i], alone), found

    def _holder(self, found: _Found, own: set[Memory], kept: set[Memory], alone: int) -> Holder:
        in_graphs = sum(memory.nbytes for memory in kept)
        saved: Counter[str] = Counter()
        for memory in kept:
            saved[found.graph.saved[memory]] += memory.nbytes
        largest = max(found.tensors, key=lambda tensor: tensor.nbytes)
        filled = line_that_fills(found.place, self.files) if found.place is not None else None
        source, code = filled if filled is not None else ("", "")
        nbytes = sum(memory.nbytes for memory in own) + in_graphs
        saved_by = dict(saved.most_common())
        return Holder(
            found.name, nbytes, in_graphs, alone, len(found.tensors), describe(largest), source, code, saved_by
        )

    # -- what to do ------------------------------------------------------------------------------------------------

    def _advise(self, found_by: list[tuple[Holder, _Found]], total: int) -> None:
        for holder, found in found_by:
            if holder.bytes < total * _WORTH_SAYING:
                continue
            amount = _core.format_bytes(holder.bytes)
            at = f" at {holder.source}" if holder.source else ""
            if holder.graph_bytes > holder.bytes // 2:
                holder.advice = self._advice_on_graph(holder, found, amount, at)
            elif holder.name == "gradients" and not self._is_in_backward_or_update():
                holder.advice = (
                    f"gradients of the step before are still there ({amount}): optimizer.zero_grad() right after "
                    "optimizer.step(), not after the next forward pass"
                )
            elif found.place is not None and holder.bytes >= total * _LARGE:
                holder.advice = self._advice_on_tensors(holder, found, amount, at)

    def _advice_on_graph(self, holder: Holder, found: _Found, amount: str, at: str) -> str:
        path = found.place.path if found.place is not None else "a tensor"
        graphs = sum(1 for tensor in found.tensors if tensor.grad_fn is not None)
        if found.place is not None and found.place.container and graphs > 1:
            return (
                f"{path.removesuffix('[*]')} keeps the autograd graphs of {graphs} tensors ({amount}): keep "
                f"tensor.detach() or tensor.item() instead{at}"
            )
        if found.graph.most_uses > 1:
            return (
                f"the graph of {path} goes back through {found.graph.most_uses} uses of the same parameter ({amount}): "
                f"if these are iterations, begin each with {path}.detach(){at}"
            )
        ours = "lowtide.adapt" if self.device else "memory_budget of lowtide.compile"  # which has not run on a GPU
        return (
            f"{path} keeps {amount} for its backward pass: call backward() and let go of it, use torch.no_grad() if "
            f"there is none, recompute (torch.utils.checkpoint, or {ours}), or a smaller batch"
        )

    def _advice_on_tensors(self, holder: Holder, found: _Found, amount: str, at: str) -> str:
        path = found.place.path if found.place is not None else ""
        largest = max(found.tensors, key=lambda tensor: tensor.nbytes)
        for other in self.alive:
            narrower = other.dtype.is_floating_point and other.element_size() < largest.element_size()
            if narrower and other.shape == largest.shape and largest.dtype.is_floating_point:
                return f"{path} is {holder.what} ({amount}){at}, beside {describe(other)}: is the copy needed?"
        if len(found.tensors) > 1:
            return f"{path} holds {len(found.tensors)} tensors ({amount}){at}: are all of them still needed?"
        return f"{path} is one tensor of {amount}{at}: work in chunks, of the batch or of the tokens, or del {path}"

    def _advice_on_device(self) -> Iterator[str]:
        memory = self.device_memory
        if memory is not None and memory.is_fragmented:
            size = _core.format_bytes
            yield (
                f"fragmentation: PyTorch has {size(memory.unallocated_bytes)} that are in no tensor, in pieces smaller "
                f"than the {size(memory.requested_bytes)} asked for: PYTORCH_ALLOC_CONF=expandable_segments:True, or "
                "lowtide.replay() around the loop"
            )

    def _closing(self) -> Iterator[str]:
        step = "step, model=model, optimizer=optimizer, example=(batch,)"
        if self.device:  # where no step is captured
            yield f'to see what a whole step takes, and the largest batch: print(lowtide.fit({step}, device="24GiB"))'
        else:
            yield f"to see the peak of a whole step, by line: print(lowtide.explain({step}))"
        if self.error is not None:
            yield "before another try, leave the except block: the error keeps the variables of its functions alive"

    def _is_in_backward_or_update(self) -> bool:
        names = {frame.f_code.co_name for frame in self.frames if frame not in self.user_frames}
        return not names.isdisjoint({"backward", "_engine_run_backward", "step"})

    def _where(self) -> tuple[str, str]:
        at = user_line_of(self.error)
        return ("", "") if at is None else (f"{at[0]}:{at[1]}", linecache.getline(*at).strip())
