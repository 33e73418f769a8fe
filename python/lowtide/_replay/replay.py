"""Eager code served from one arena: its iterations are watched, packed, and get the same addresses again."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike, fspath, register_at_fork
from types import TracebackType
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils._pytree import tree_leaves

from .. import _torch
from .._base.devices import CPU, numbered, why_not_planned
from .._base.sources import warn_user
from . import active as active_replay
from .profiles import Packed, Profiles
from .signature import Signature, signature_of
from .stats import ReplayStats


class Replay:
    """Serves the iterations of a loop from one arena; see `lowtide.replay`."""

    def __init__(self, profiles: int, spill: str) -> None:
        self._most_profiles = profiles
        self._spill = spill
        self._outer: Replay | None = None
        self._native: _torch.EagerIterations = _torch.eager_replay()
        self._device = CPU
        self._profiles = Profiles(profiles)
        self._is_open = False
        self._last = ReplayStats()

    # -- the loop --------------------------------------------------------------------------------------------------

    def __enter__(self) -> Replay:
        if self._is_open:
            raise RuntimeError("this replay is entered already; lowtide.replay() makes another one")
        cpu = _torch.eager_replay()
        if not cpu.start():
            outer = active_replay.current
            self._outer = outer if outer is not None and outer._is_mine() else None
            if self._outer is None:
                warn_user(
                    "another thread is in lowtide.replay(): this one's iterations use ordinary memory", UserWarning
                )
            return self
        try:
            cpu.spill_to(self._spill)
        except RuntimeError:
            cpu.stop()
            raise
        self._native, self._device, self._is_refused = cpu, CPU, False
        self._is_open = True
        active_replay.current = self
        self._thread = threading.get_ident()
        self._totals = dict.fromkeys(
            ("iterations", "replayed", "hits", "outside", "misses", "unplanned", "escaped", "departed"), 0
        )
        self._paused = 0
        self._steps_are_called = False
        self._ended_by: object = None
        self._signature: Signature | None = None
        self._is_recording = False
        self._served_by: Packed | None = None
        self._departed_at = ""
        self._any_module: Any = None
        self._on_step = register_optimizer_step_post_hook(self._after_optimizer)
        self._await_module()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_open:
            self._outer = None
            return
        is_mine = self._is_mine()
        try:
            if is_mine:
                self._end_iteration()
                self._last = self.stats()
        finally:
            self._close()
            if is_mine:
                self._native.stop()
            else:
                warn_user(
                    "lowtide.replay() is left on another thread than it was entered on, which goes on with what it "
                    "has; leave it where it was entered",
                    UserWarning,
                )

    def _close(self) -> None:
        """Looks at nothing any more."""
        self._on_step.remove()
        self._await_nothing()
        self._is_open = False
        self._ended_by = None
        active_replay.current = None
        self._profiles.close()
        self._profiles = Profiles(self._most_profiles)

    def _forked(self) -> None:
        """In a new process, which makes ordinary requests; the thread that packs is not in it."""
        self._profiles = Profiles(self._most_profiles)
        self._close()

    def step(self) -> None:
        """The iteration ends here. Where it is called once, optimizers' steps no longer end iterations."""
        if self._outer is not None:
            self._outer.step()
        elif self._is_mine():
            self._steps_are_called = True
            self._boundary(self)

    def begin(self, *inputs: Any) -> None:
        """An iteration begins here, with these inputs. For loops in which no module is called."""
        if self._outer is not None:
            self._outer.begin(*inputs)
        elif self._is_mine():
            self._await_nothing()
            self._begin_iteration(None, inputs)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Requests in this block are ordinary ones, and no part of the iteration."""
        replay = self._outer or self
        if not replay._is_mine():
            yield
            return
        replay._paused += 1
        replay._native.set_paused(True)
        was_awaiting = replay._any_module is not None
        replay._await_nothing()
        replay._on_step.remove()
        try:
            yield
        finally:
            replay._paused -= 1
            if replay._is_open and replay._paused == 0:
                replay._native.set_paused(False)
                replay._on_step = register_optimizer_step_post_hook(replay._after_optimizer)
            if replay._is_open and was_awaiting:
                replay._await_module()

    def settle(self) -> None:
        """Waits until everything that was recorded is packed: the next iteration has its profile."""
        (self._outer or self)._profiles.wait()

    def stats(self) -> ReplayStats:
        """What happened so far; the iteration under way is not counted."""
        if self._outer is not None:
            return self._outer.stats()
        if not self._is_open:
            return self._last
        largest = self._profiles.largest
        about: dict[str, Any] = {}
        if largest is not None:
            about = {
                "arena_bytes": largest.arena_bytes,
                "peak_bytes": largest.peak_bytes,
                "bound_bytes": largest.bound_bytes,
                "pooled_bytes": largest.pooled_bytes,
            }
            if largest.nanos is not None:
                about["ordinary_nanos_per_request"], about["nanos_per_request"] = largest.nanos
        on_device = self._device != CPU
        return ReplayStats(
            **self._totals,
            **about,
            device=str(self._device),
            other_threads=self._native.requests_elsewhere,
            other_streams=_torch.device_replay().requests_on_other_streams if on_device else 0,
            departed_at=self._departed_at,
            profiles=len(self._profiles),
            packing_seconds=self._profiles.seconds,
        )

    def profiles(self) -> list[Packed]:
        """What is known of iterations, variants of one signature apart, those used last at the end."""
        return (self._outer or self)._profiles.packed()

    # -- where iterations end and begin ----------------------------------------------------------------------------
    #
    # An iteration ends at the optimizer's step, or at step(). The next one begins with the first module that is called
    # then: gradients are freed by that time as a rule, and its inputs tell which profile to use. Requests in between
    # belong to the iteration before.

    def _is_mine(self) -> bool:
        return self._is_open and threading.get_ident() == self._thread

    def _after_optimizer(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        if not torch.compiler.is_compiling() and self._is_mine() and not self._steps_are_called:
            self._boundary(optimizer)

    def _boundary(self, ended_by: object) -> None:
        if self._is_capturing():
            return
        if self._any_module is not None and ended_by is self._ended_by:
            self._begin_iteration(None, ())  # no module was called: it begins where one ends
            return
        self._ended_by = ended_by
        self._await_module()

    def _await_module(self) -> None:
        if self._any_module is None:
            self._any_module = register_module_forward_pre_hook(self._before_module)

    def _await_nothing(self) -> None:
        if self._any_module is not None:
            self._any_module.remove()
            self._any_module = None

    def _before_module(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if not torch.compiler.is_compiling() and self._is_mine() and not self._is_capturing():
            self._await_nothing()
            self._begin_iteration(module, (args, _keywords_of_call()))

    def _is_capturing(self) -> bool:
        """Whether a CUDA graph is captured: nothing that a replay does at the ends of iterations may be in it."""
        return self._device != CPU and torch.cuda.is_current_stream_capturing()

    # -- where iterations run --------------------------------------------------------------------------------------

    def _follow_to_device(self, module: torch.nn.Module | None, inputs: object) -> None:
        """From the CPU to the device where the loop runs, before anything is recorded."""
        if self._device != CPU or self._is_refused or self._totals["iterations"] > 1:
            return
        device = _device_of(module, inputs, self._ended_by)
        if device is None or (device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
            return
        if refused := why_not_planned(device):
            self._is_refused = True
            warn_user(
                f"lowtide.replay serves no requests on {device}, which use ordinary memory: {refused}", UserWarning
            )
            return
        if self._spill:
            warn_user(f"lowtide.replay: spill has no effect on {device}", UserWarning)
        native = _torch.device_replay()
        native.take_over(device)
        self._native, self._device = native, device

    # -- one iteration ---------------------------------------------------------------------------------------------

    def _begin_iteration(self, module: torch.nn.Module | None, inputs: object) -> None:
        is_first = self._signature is None  # in which optimizers make their state
        ended, recording = self._signature, self._end_iteration()
        self._follow_to_device(module, inputs)
        signature = signature_of(self._ended_by, module, inputs, self._device)
        self._take_in_profiles()
        # Packed from here on, and used from the next iteration on: not from this one if packing happens to be quick.
        if ended is not None and recording is not None:
            self._profiles.pack(ended, recording)
        self._signature = signature
        profile = self._profiles.find(signature)
        self._is_recording = not is_first and self._profiles.wants(signature)
        if profile is not None:
            self._served_by = profile.variants[0]
            scripts = profile.scripts
        else:
            # On a device, what does not fit would come beside an arena that nobody uses.
            self._served_by = self._profiles.largest_of(signature, only_larger=self._device != CPU)
            scripts = [self._served_by.script] if self._served_by is not None else []
        self._native.begin(scripts, smaller=profile is None, record=self._is_recording)

    def _end_iteration(self) -> _torch.Recording | None:
        """Counts what it did, and gives what is worth packing."""
        outcome = self._native.finish()
        was_replayed = outcome.hits + outcome.outside + outcome.misses > 0
        self._totals["iterations"] += self._signature is not None
        self._totals["replayed"] += was_replayed
        for name in ("hits", "outside", "misses", "unplanned", "escaped"):
            self._totals[name] += getattr(outcome, name)
        if outcome.departed_at >= 0 and not outcome.blocked and self._served_by is not None:
            self._totals["departed"] += 1
            self._departed_at = self._served_by.op_at(outcome.departed_at)
        is_new = not was_replayed or (outcome.misses > 0 and not outcome.blocked)
        recording = self._native.take_recording() if is_new and self._is_recording else None
        self._is_recording = False
        return recording if recording is not None and len(recording) > 0 else None

    def _take_in_profiles(self) -> None:
        collected = self._profiles.collect()
        if not collected:
            return
        largest = self._profiles.largest
        try:
            self._native.set_arena(largest.arena_bytes if largest is not None else 0)
        except RuntimeError as error:
            warn_user(f"lowtide.replay has no arena for an iteration, which uses ordinary memory: {error}", UserWarning)
            self._profiles.forget(collected)
            return
        if self._device == CPU:
            for packed in collected:
                packed.measure_time()


def _forget_in_child() -> None:
    if active_replay.current is not None:
        active_replay.current._forked()


register_at_fork(after_in_child=_forget_in_child)


def _device_of(module: torch.nn.Module | None, inputs: object, ended_by: object) -> torch.device | None:
    """The device of parameters and inputs that is not the CPU; None if there is no such device."""
    groups = ended_by.param_groups if isinstance(ended_by, Optimizer) else ()
    trained: Iterable[Any] = (parameter for group in groups for parameter in group["params"])
    called: Iterable[Any] = module.parameters() if module is not None else ()
    for tensor in (*called, *tree_leaves(inputs), *trained):
        if isinstance(tensor, torch.Tensor) and tensor.device.type not in ("cpu", "meta"):
            return numbered(tensor.device)
    return None


def _keywords_of_call() -> dict[str, Any]:
    """Those of the module call that runs the caller, a hook: hooks on all modules are not given them."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame.f_back if frame is not None else None
    keywords = frame.f_locals.get("kwargs") if frame is not None else None
    return keywords if isinstance(keywords, dict) else {}


def replay(*, profiles: int = 16, spill: str | PathLike[str] | None = None) -> Replay:
    """Serves an ordinary eager loop from one arena: no capture, and the same numbers.

        with lowtide.replay() as replay:
            for batch in batches:
                optimizer.zero_grad()
                model(batch).loss.backward()
                optimizer.step()
        print(replay.stats())

    An iteration ends at the optimizer's step, or at `replay.step()`. One of each input signature is recorded: its
    requests are packed on another thread, and later iterations get the packed addresses. An address is served only if
    nobody is there; all else is ordinary memory, and so is what outlives an iteration.

    A loop on a GPU is served there, on the stream of its first iteration.

    At most so many `profiles` are kept. Where the first iterations may need more memory than there is, `spill` names a
    folder on a disk: until there is a profile, large tensors of the CPU are pages of a file there.
    """
    return Replay(profiles, fspath(spill) if spill is not None else "")
