"""What the engine `inductor` uses of PyTorch that PyTorch may change, all in one place.

With a PyTorch that lacks one of these, importing this module fails with its name, and budgets are refused by that name.
"""

from torch._functorch.partitioners import _size_of as node_bytes
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext, tracing
from torch._inductor import config as inductor_config
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch._inductor.exc import InductorError
from torch._inductor.fx_utils import count_flops_fx, get_node_storage
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, optimization_hint

__all__ = [
    "CustomPartitionerFn",
    "GraphLowering",
    "InductorError",
    "TracingContext",
    "V",
    "compile_fx_inner",
    "count_flops_fx",
    "free_unbacked_symbols",
    "get_node_storage",
    "inductor_config",
    "min_cut_rematerialization_partition",
    "node_bytes",
    "optimization_hint",
    "tracing",
]
