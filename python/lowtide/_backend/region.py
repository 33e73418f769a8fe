"""A region: one graph of `torch.compile`, planned for each form of its inputs, or run as PyTorch would."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack

from .. import _core, _torch
from .._base.decisions import decided
from .._base.engine_switches import read_switches
from .._base.fallback import Fallback
from .._base.interrupts import signals_held
from .._base.sources import warn_user
from .._compile.plan_cache import PlanCache
from .._guards.guards import must_stay_eager
from .._lower.profiles import ProfileCache
from .._replay import active as active_replay
from .._step.fallback import is_for_the_caller, reason_of
from .._step.memory_guard import chosen_guard
from .._store.chosen import chosen_store
from ..errors import InfeasibleError
from .halves import Halves
from .recording import Joint, layout_of
from .sized import GaveUp, Planned, SizedRegion
from .together import Together

_planning = threading.RLock()  # plans share caches; passes run on any thread
_MOST_SIZES = 64


class Region:
    """One graph, with its two passes or, for inference, one."""

    def __init__(self, name: str, together: Together) -> None:
        _torch.install_allocator()
        self.name = name
        self.together = together
        budgets = ["memory_budget"] if together.options.memory_budget is not None else []
        self._fallback = Fallback(name, together.options.on_unsupported, budgets)
        self._cache = ProfileCache()
        self._plans = PlanCache(chosen_store())
        self._guard = chosen_guard()
        self._sizes: dict[Hashable, SizedRegion | str] = {}  # by form of inputs; why there is none
        self.joint: Joint | None = None
        self.halves: Halves | None = None
        self.forward_graph: fx.GraphModule | None = None
        self.backward_graph: Callable[..., Any] | None = None
        self._told_of_autocast = False
        self.planned_passes = self.eager_passes = self.misses = 0
        together.regions.add(self)

    def sizes(self) -> list[SizedRegion]:
        """The forms of inputs that it is planned for."""
        return [sized for sized in list(self._sizes.values()) if isinstance(sized, SizedRegion)]

    # -- forward -------------------------------------------------------------------------------------------------------

    def forward(self, args: list[Any]) -> Any:
        """The forward pass, as AOTAutograd calls it: outputs, then what is saved. `args` is emptied."""
        if _is_first_call_of_aot():
            with _disable_current_modes():
                return self.forward(args)
        inputs = list(args)
        args.clear()
        # Without looking for NaN it is PyTorch's compiler on another thread, or has nothing to say of a graph.
        around = must_stay_eager(for_nan=True)
        if around:
            return self._eager_forward(inputs, f" under {around}, which must see the graph itself at work")
        with active_replay.paused():
            try:
                sized, reason = self._sized(inputs)
                if sized is not None:
                    with _planning, signals_held:
                        sized.gradients.before_forward()
                        planned = self.together.ready(sized, self._plan)
                        program = sized.take(planned)
            except Exception as error:
                may_run = isinstance(error, InfeasibleError) and self.together.options.on_unsupported == "eager"
                if is_for_the_caller(error) and not may_run:
                    raise
                sized, reason = None, reason_of(error)
                self._sizes[_key(inputs)] = reason
            if sized is not None:
                given = sized.forward(planned, program, inputs)
                if given is not None:
                    self.planned_passes += 1
                    self._account(sized, planned, program)
                    return tuple(given) if self.halves is not None else tuple(given[: len(given) - 1])
                reason = "inputs share memory that it writes"
        return self._eager_forward(inputs, f": {reason}")

    def _sized(self, inputs: Sequence[Any]) -> tuple[SizedRegion | None, str]:
        key = _key(inputs)
        known = self._sizes.get(key)
        if known is None:
            with _planning, signals_held:
                known = self._sizes.get(key)
                if known is None:
                    assert self.joint is not None
                    if len(self._sizes) >= _MOST_SIZES:
                        return None, f"its inputs have more than {_MOST_SIZES} forms"
                    forms = [layout_of(given) if isinstance(given, torch.Tensor) else given for given in inputs]
                    known = SizedRegion(self.joint, self.halves, forms, self._cache, self._guard)
                    self._sizes[key] = known
                    reason = "first call" if len(self._sizes) == 1 else "another form of inputs"
                    decided("capture", "captured", function=self.name, number=len(self._sizes), reason=reason)
        return (None, known) if isinstance(known, str) else (known, "")

    def _plan(self, graph: _core.Graph, limit: int | None, alignment: int) -> _core.Plan:
        return self._plans.get_or_plan(graph, limit, None, alignment)

    def _eager_forward(self, inputs: list[Any], reason: str) -> Any:
        if self._fallback.refuses:
            raise self._fallback.refusal(f"{self.name} runs{reason}")
        self._fallback.say(reason)
        self.eager_passes += 1
        assert self.forward_graph is not None
        return self.forward_graph(*inputs)

    # -- backward ------------------------------------------------------------------------------------------------------

    def backward(self, args: list[Any]) -> Any:
        """The backward pass, as AOTAutograd calls it: gradients. `args` is emptied."""
        assert self.halves is not None and self.backward_graph is not None
        token = args[self.halves.token_argument]
        runtime = _torch.Program.claim_turned(token)
        if runtime is None:
            if self._was_planned(args):
                args.clear()
                raise GaveUp(
                    "lowtide: the backward pass of a compiled region finds nothing of its forward pass: it has run or "
                    "failed already, or what was saved was copied on the way here"
                )
            given = list(args)
            args.clear()
            return self.backward_graph(*given)
        found = next(((sized, pair) for sized in self.sizes() if (pair := sized.find(runtime))), None)
        assert found is not None
        sized, (planned, program) = found
        tangents = args[self.halves.tangent_arguments :]
        args.clear()
        again = torch._C._autograd._get_current_graph_task_keep_graph()
        if torch.is_autocast_enabled("cpu") and not self._told_of_autocast:
            self._told_of_autocast = True
            warn_user(
                f"lowtide: backward() is called under autocast: in {self.name} it runs as outside of it, and last bits "
                "may be other ones than eager's"
            )
        with active_replay.paused():
            gradients = sized.backward(planned, program, tangents, again=again)
        del tangents
        self.planned_passes += 1
        self._account(sized, planned, program)
        return tuple(gradients)

    def _was_planned(self, args: Sequence[Any]) -> bool:
        """Whether what was saved is that of a planned forward pass: its token has a mark that no copy loses."""
        assert self.halves is not None
        return bool(args[self.halves.token_argument].dim() == 2)

    # -- accounting ----------------------------------------------------------------------------------------------------

    def _account(self, sized: SizedRegion, planned: Planned, program: Any) -> None:
        self.misses += program.runtime.stats.misses
        self.together.check(planned, program)
        if program.runtime.missed_calls:
            with _planning:
                if sized.learn_from(planned, program):
                    planned.budget = -1  # planned again before the next forward pass


def _is_first_call_of_aot() -> bool:
    """Whether AOTAutograd, and nobody else, watches for custom operators that give back their arguments."""
    modes = _get_current_dispatch_mode_stack() if torch._C._len_torch_dispatch_stack() else []
    return bool(modes) and all(type(mode).__name__ == "_AnalyzeCustomOpInputOutputMode" for mode in modes)


def _key(inputs: Sequence[Any]) -> Hashable:
    """What a plan of a region holds for."""
    forms = [
        (given.dtype, given.shape, given.stride(), given.device)
        if isinstance(given, torch.Tensor)
        else (type(given), given)
        for given in inputs
    ]
    return read_switches(), torch.is_inference_mode_enabled(), tuple(forms)
