"""What PyTorch calls for each graph of `torch.compile(..., backend="lowtide")`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TensorifyScalarRestartAnalysis
from torch._functorch import config as functorch_config

from .._base.fallback import Fallback
from .._base.sources import user_line
from .._step.fallback import reason_of
from .copies import copy_of
from .draws import draw_in_order
from .eager_formulas import eager_formulas
from .halves import split
from .options import read_options
from .other_formulas import refuse_other_formulas
from .recording import Joint
from .region import Region
from .streams import refuse_streams
from .together import Together

_KEY = "lowtide"  # in the metadata of graphs: which region they are of
_together: weakref.WeakValueDictionary[int, Together] = weakref.WeakValueDictionary()
_made = 0  # regions so far


def lowtide(
    graph: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compiles a graph: a region whose forward and backward passes run planned, with the numbers of eager."""
    if mode is not None:
        raise ValueError(f'mode: backend="lowtide" has none, got {mode!r}')
    together = _together_of(options)
    name = f"the graph of {_function_of(graph)}"
    if together.options.engine == "inductor":
        from .inductor import compiled_by_inductor  # Inductor takes a while to load

        return compiled_by_inductor(graph, example_inputs, together.options, name)
    compiler = _Compiler(together, name)
    try:
        refuse_streams(graph)
        # As in eager, what autocast does is over when backward() is called.
        with functorch_config.patch(backward_pass_autocast="off"), eager_formulas():
            compiled: Callable[..., Any] = compiler.aot(graph, example_inputs)
    except TensorifyScalarRestartAnalysis:
        raise
    except Exception as error:
        fallback = Fallback(compiler.name, together.options.on_unsupported, compiler.budgets)
        if fallback.refuses:
            raise fallback.refusal(reason_of(error)) from error
        fallback.say(f": {reason_of(error)}")
        eager: Callable[..., Any] = graph.forward
        return eager
    return compiled


def _together_of(options: Mapping[str, Any] | None) -> Together:
    """The regions of the call of `torch.compile` that these options come from: its graphs have the same object."""
    known = _together.get(id(options))
    if known is not None and known.given is options:
        return known
    together = Together(read_options(options), options)
    if options is not None:
        _together[id(options)] = together
    return together


class _Compiler:
    """The functions that AOTAutograd calls for one graph; it may make several of it."""

    def __init__(self, together: Together, name: str) -> None:
        self.together = together
        self.name = name
        self.budgets = ["memory_budget"] if together.options.memory_budget is not None else []
        self._regions: dict[int, Region] = {}
        self.aot = aot_autograd(
            fw_compiler=self._forward,
            bw_compiler=self._backward,
            inference_compiler=self._inference,
            partition_fn=self._partition,
            keep_inference_input_mutations=True,
        )

    def _new_region(self) -> Region:
        global _made
        _made += 1
        region = Region(self.name, self.together)
        self._regions[_made] = region
        return region

    def _partition(
        self,
        joint: fx.GraphModule,
        inputs: Any,
        *,
        num_fwd_outputs: int,
        static_lifetime_input_indices: list[int] | None = None,
        **_: Any,
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        refuse_other_formulas(joint)
        draw_in_order(joint)
        copied = copy_of(joint)
        halves = split(joint, inputs, num_fwd_outputs, static_lifetime_input_indices)
        region = self._new_region()
        region.halves = halves
        region.joint = Joint(copied, num_fwd_outputs, halves.first_names)
        halves.forward.meta[_KEY] = halves.backward.meta[_KEY] = _made  # a number: AOTAutograd copies the module
        return halves.forward, halves.backward

    def _forward(self, graph: fx.GraphModule, _: Any) -> Callable[..., Any]:
        region = self._regions[graph.meta[_KEY]]
        region.forward_graph = graph
        return _boxed(region.forward)

    def _backward(self, graph: fx.GraphModule, _: Any) -> Callable[..., Any]:
        region = self._regions[graph.meta[_KEY]]
        region.backward_graph = graph
        return _boxed(region.backward)

    def _inference(self, graph: fx.GraphModule, _: Any) -> Callable[..., Any]:
        draw_in_order(graph)
        region = self._new_region()
        copied = copy_of(graph)
        names = frozenset(node.name for node in copied.graph.nodes)
        outputs = next(iter(copied.graph.find_nodes(op="output"))).args[0]
        region.joint = Joint(copied, len(outputs), names)
        region.forward_graph = graph
        return _boxed(region.forward)


def _boxed(function: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """A function that empties the list of its arguments."""

    def call(args: list[Any]) -> Any:
        return function(args)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def _function_of(graph: fx.GraphModule) -> str:
    """The line of the user's that its first call comes from."""
    for node in graph.graph.nodes:
        trace = node.meta.get("stack_trace") if node.op not in ("placeholder", "output") else None
        lines = [line.strip() for line in trace.splitlines() if line.strip().startswith("File ")] if trace else []
        if lines:
            file, line, *rest = lines[0].split(", ")
            where = f"{file[6:-1]}:{line.removeprefix('line ')}"
            return f"{rest[0].removeprefix('in ')} ({where})" if rest else where
    return user_line()
