"""The engine `inductor`: Inductor compiles and runs the graphs, Lowtide decides what is saved between the passes.

Without a budget that is what Inductor saves by itself. With one, its passes are measured, and more than the budget is
said.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._dynamo.exc import TensorifyScalarRestartAnalysis
from torch._functorch import config as functorch_config
from torch._inductor.compile_fx import compile_fx

from .. import _core, _torch
from .._base.decisions import decided
from .._base.devices import CPU, why_not_planned
from .._base.fallback import Fallback
from .._base.sources import warn_user
from .._compile.memory_budget import SCALAR_BYTES
from .._step.fallback import is_for_the_caller, reason_of
from ..errors import CaptureError, InfeasibleError
from .options import Options

if TYPE_CHECKING:
    from .inductor_peak import Peak
    from .partitions import Partition

_MOST_OPEN = 8  # forward passes whose backward passes are waited for
_INSTEAD = "with Inductor's own partition"


def compiled_by_inductor(
    graph: fx.GraphModule, example_inputs: Sequence[Any], options: Options, name: str
) -> Callable[..., Any]:
    """A graph as Inductor compiles it, with what keeps the memory budget saved. None: as Inductor does by itself."""
    budget = options.memory_budget
    if budget is None:
        return _compiled(graph, example_inputs)
    fallback = Fallback(name, options.on_unsupported, ["memory_budget"], instead=_INSTEAD)
    try:
        chosen = _choose(graph, example_inputs, budget, name)
    except TensorifyScalarRestartAnalysis:
        raise
    except Exception as error:
        if isinstance(error, InfeasibleError) and options.on_unsupported != "eager":
            return _raising(error)  # when it is called: the compiler would wrap it
        if is_for_the_caller(error) and not isinstance(error, InfeasibleError):
            raise
        if fallback.refuses:
            raise fallback.refusal(reason_of(error)) from error
        fallback.say(f": {reason_of(error)}")
        return _compiled(graph, example_inputs)
    return _Watched(graph, example_inputs, chosen, name).forward


def _compiled(graph: fx.GraphModule, example_inputs: Sequence[Any], **how: Any) -> Callable[..., Any]:
    compiled: Callable[..., Any] = compile_fx(graph, list(example_inputs), **how)  # type: ignore[assignment]
    return compiled


def _raising(error: InfeasibleError) -> Callable[..., Any]:
    def refuse(*_: Any) -> Any:
        raise error.with_traceback(None)

    return refuse


# -- choosing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A partition within the budget: None is Inductor's own."""

    partition: Partition | None
    limit: int
    predicted: int


def _choose(graph: fx.GraphModule, example_inputs: Sequence[Any], budget: int | float, name: str) -> _Chosen:
    """The partition that computes least again among those whose predicted peak keeps the budget.

    Raises `InfeasibleError`.
    """
    try:
        from .inductor_front import Front
        from .inductor_internals import inductor_config
    except ImportError as error:
        raise CaptureError(f"this version of PyTorch lacks what the engine uses: {error}") from error
    if inductor_config.custom_partitioner_fn is not None:
        raise CaptureError("torch._inductor.config has a partitioner of its own")
    front = Front(graph, example_inputs)
    limit = budget if isinstance(budget, int) else int(budget * front.own.nbytes)
    found = front.within(limit)
    if found is None:
        raise _too_little(name, budget, limit, front.own, front.smallest)
    partition, peak = found
    decided("recompute", "chosen", name=str(partition or "Inductor's own"), function=name, peak_bytes=peak.nbytes)
    return _Chosen(partition, limit, peak.nbytes)


def _too_little(name: str, budget: int | float, limit: int, own: Peak, smallest: Peak) -> InfeasibleError:
    amount = _core.format_bytes
    share = "" if isinstance(budget, int) else f", {100 * budget:g} % of what Inductor needs by itself"
    return InfeasibleError(
        f"E301: the memory budget of {name} is {amount(limit)}{share}, but of its partitions the smallest needs "
        f"{amount(smallest.nbytes)} under Inductor, beside what is the caller's: {amount(smallest.held)} between its "
        f"passes and {amount(smallest.gradients)} of gradients; by itself Inductor needs {amount(own.nbytes)}",
        code="E301", bound_bytes=smallest.nbytes, step=0,
        culprits=[("saved tensors and outputs", smallest.held), ("gradients", smallest.gradients)],
    )  # fmt: skip


# -- running -----------------------------------------------------------------------------------------------------------


class _Watched:
    """A graph that Inductor has compiled: its passes are measured, and a budget that is not kept is said."""

    def __init__(self, graph: fx.GraphModule, example_inputs: Sequence[Any], chosen: _Chosen, name: str) -> None:
        from .inductor_internals import compile_fx_inner, inductor_config

        _torch.install_allocator()
        self._name, self._chosen = name, chosen
        self._device = _device_of(example_inputs)
        self._open: deque[tuple[_torch.Meter, int]] = deque(maxlen=_MOST_OPEN)  # and what the forward pass left
        self._excess = SCALAR_BYTES  # the most that was said

        def compile_half(half: fx.GraphModule, inputs: Sequence[Any], **how: Any) -> Any:
            made: Any = compile_fx_inner(half, inputs, **how)
            if how.get("is_backward") and hasattr(made, "current_callable"):
                run = made.current_callable
                made.current_callable = lambda args: self._backward(run, args)
            return made

        # What PyTorch keeps of whole graphs is not asked for: it would not be measured.
        with (
            functorch_config.patch(enable_autograd_cache=False),
            inductor_config.patch(custom_partitioner_fn=chosen.partition),
        ):
            self._run = _compiled(graph, example_inputs, inner_compile=compile_half)

    def forward(self, *args: Any) -> Any:
        """The forward pass."""
        meter = _torch.Meter(self._device)
        outputs = self._run(*args)
        left, peak = meter.mark()
        self._check(peak)
        if torch.is_grad_enabled():
            self._open.append((meter, left))
        return outputs

    def _backward(self, run: Callable[[list[Any]], Any], args: list[Any]) -> Any:
        """The backward pass of the last forward pass that had none, as autograd goes through them."""
        if not self._open:
            return run(args)
        meter, left = self._open.pop()
        level, _ = meter.mark()
        gradients = run(args)
        _, peak = meter.mark()
        meter.close()
        self._check(peak - max(0, level - left))  # less what others have allocated in between
        return gradients

    def _check(self, there: int) -> None:
        excess = there - self._chosen.limit
        if excess <= self._excess:
            return
        self._excess = excess
        amount = _core.format_bytes
        decided("run", "over budget", function=self._name, held_bytes=there, excess_bytes=excess)
        warn_user(
            f"lowtide: memory_budget is not kept: {self._name} had {amount(there)} beside what is the caller's, "
            f"{amount(excess)} more than the budget; {amount(self._chosen.predicted)} were predicted for the inputs "
            "that it was compiled with"
        )


def _device_of(given: Sequence[Any]) -> torch.device:
    """The one whose memory is counted."""
    devices = {tensor.device for tensor in given if isinstance(tensor, torch.Tensor)}
    return next((device for device in devices - {CPU} if not why_not_planned(device)), CPU)
