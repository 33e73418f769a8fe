"""What Lowtide relies on of PyTorch that PyTorch may change: private names, by what uses them, with their forms.

A minor version of PyTorch that lacks one of them, or has something else by its name, is not planned with: that ends in
eager with a warning that names it. That a function still does what it did cannot be told from here: see `trial.py`.
`tests/python/test_internals.py` holds these tables against every use in the package. `src/torch/internals.h` says the
same of the extension.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from importlib import import_module
from typing import Any

import torch

# What compiled and captured steps and replays use. A value is named by its type.
_RUNTIME = """
    class     torch._C.TensorBase
    class     torch._library.custom_ops.CustomOpDef
    class     torch._ops.OpOverload
    class     torch._ops.OpOverloadPacket
    class     torch._subclasses.fake_tensor.FakeTensor
    class     torch._subclasses.fake_tensor.FakeTensorMode
    class     torch.utils._device.DeviceContext
    class     torch.utils._python_dispatch.TorchDispatchMode
    function  torch.Tensor._make_wrapper_subclass
    function  torch._C._autograd._top_saved_tensors_default_hooks
    function  torch._C._autograd._unsafe_set_version_counter
    function  torch._C._current_autograd_node
    function  torch._C._disabled_torch_function_impl
    function  torch._C._functorch.is_functorch_wrapped_tensor
    function  torch._C._functorch.maybe_current_level
    function  torch._C._get_function_stack_at
    function  torch._C._get_tracing_state
    function  torch._C._len_torch_dispatch_stack
    function  torch._C._len_torch_function_stack
    function  torch._C._swap_tensor_impl
    function  torch._functorch.pyfunctorch.temporarily_clear_interpreter_stack
    function  torch._guards.active_fake_mode
    function  torch._subclasses.fake_tensor.disable_fake_tensor_cache
    function  torch.autograd._engine_run_backward
    function  torch.autograd._get_sequence_nr
    function  torch.library._scoped_library
    function  torch.nn.modules.module._has_any_global_hook
    function  torch.nn.init._no_grad_trunc_normal_
    function  torch.nn.utils.stateless._functional_call
    function  torch.ops.aten._local_scalar_dense
    function  torch.ops.aten._scaled_dot_product_attention_math
    function  torch.ops.aten._scaled_dot_product_efficient_attention
    function  torch.ops.aten._scaled_dot_product_flash_attention
    function  torch.ops.aten._scaled_dot_product_flash_attention_backward
    function  torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    function  torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    function  torch.overrides._pop_mode_temporarily
    function  torch.utils._python_dispatch._disable_current_modes
    function  torch.utils.checkpoint._checkpoint_without_reentrant_generator
    module    torch._functorch.eager_transforms
    module    torch._functorch.vmap
    module    torch.utils._pytree
    bool      torch._C._has_cuda
    WeakValueDictionary torch._library.custom_ops.OPDEFS
    int       torch.autograd.forward_ad._current_level
    bool      torch.cuda._initialized
    int       torch.nn.utils.parametrize._cache_enabled
    list      torch.optim.optimizer._foreach_supported_types
    OrderedDict torch.nn.modules.module._global_buffer_registration_hooks
    OrderedDict torch.nn.modules.module._global_module_registration_hooks
    OrderedDict torch.nn.modules.module._global_parameter_registration_hooks
    OrderedDict torch.optim.optimizer._global_optimizer_post_hooks
    OrderedDict torch.optim.optimizer._global_optimizer_pre_hooks
    list      torch.utils._foreach_utils._foreach_supported_types
"""
# In PyTorch's builds for CUDA.
_CUDA = """
    function  torch._C._cuda_getCurrentRawStream
    function  torch._C._cuda_getDevice
"""
# What lowtide.adapt uses besides.
_ADAPT = """
    class     torch._dynamo.eval_frame.OptimizedModule
    class     torch.nn.modules.batchnorm._NormBase
    function  torch.UntypedStorage._expired
    function  torch._C._autograd._saved_tensors_hooks_is_enabled
    function  torch._C._current_graph_task_id
    function  torch._C._data_address
    function  torch._C._functorch.peek_interpreter_stack
    function  torch._lazy_clone
    function  torch.overrides._get_current_function_mode_stack
    value     torch.autograd.Variable._execution_engine
"""
# What the backend of torch.compile uses besides.
_BACKEND = """
    class     torch._C.DispatchKey
    class     torch._dynamo.exc.TensorifyScalarRestartAnalysis
    function  torch._C._autograd._get_current_graph_task_keep_graph
    function  torch._dynamo.backends.common.aot_autograd
    function  torch._functorch.partitioners.default_partition
    function  torch.utils._python_dispatch._get_current_dispatch_mode_stack
    module    torch._functorch.config
"""
# And its engine for Inductor, whose modules take a while to load: `inductor_internals.py` fails without one of them.
_INDUCTOR = """
    class     torch._guards.TracingContext
    class     torch._inductor.custom_graph_pass.CustomPartitionerFn
    class     torch._inductor.exc.InductorError
    class     torch._inductor.graph.GraphLowering
    function  torch._functorch.partitioners._size_of
    function  torch._functorch.partitioners.min_cut_rematerialization_partition
    function  torch._guards.tracing
    function  torch._inductor.compile_fx.compile_fx
    function  torch._inductor.compile_fx.compile_fx_inner
    function  torch._inductor.fx_utils.count_flops_fx
    function  torch._inductor.fx_utils.get_node_storage
    module    torch._inductor.config
    value     torch._inductor.virtualized.V
"""
# Switches of the engine, in torch._C.
_SWITCHES = """
    _check_sparse_tensor_invariants _get_blas_preferred_backend _get_cpu_allow_fp16_reduced_precision_reduction
    _get_cublas_allow_bf16_reduced_precision_reduction _get_cublas_allow_fp16_accumulation
    _get_cublas_allow_fp16_reduced_precision_reduction _get_cudnn_allow_tf32 _get_cudnn_benchmark
    _get_cudnn_depthwise_kernel _get_cudnn_deterministic _get_cudnn_enabled _get_cudnn_sdp_enabled
    _get_deterministic_algorithms _get_deterministic_algorithms_warn_only
    _get_deterministic_fill_uninitialized_memory _get_fa3_sdp_enabled _get_flash_sdp_enabled
    _get_fp32_precision_getter _get_linalg_preferred_backend _get_math_sdp_allow_fp16_bf16_reduction
    _get_math_sdp_enabled _get_mem_efficient_sdp_enabled _get_mkldnn_deterministic _get_mkldnn_enabled
    _get_nnpack_enabled _get_overrideable_sdp_enabled _get_qengine _get_sdp_priority_order
    _get_sm_carveout_experimental _set_blas_preferred_backend _set_check_sparse_tensor_invariants
    _set_cpu_allow_fp16_reduced_precision_reduction _set_cublas_allow_bf16_reduced_precision_reduction
    _set_cublas_allow_fp16_accumulation _set_cublas_allow_fp16_reduced_precision_reduction _set_cudnn_allow_tf32
    _set_cudnn_benchmark _set_cudnn_depthwise_kernel _set_cudnn_deterministic _set_cudnn_enabled
    _set_deterministic_algorithms _set_deterministic_fill_uninitialized_memory _set_fp32_precision_setter
    _set_linalg_preferred_backend _set_math_sdp_allow_fp16_bf16_reduction _set_mkldnn_deterministic
    _set_mkldnn_enabled _set_nnpack_enabled _set_qengine _set_sdp_priority_order _set_sdp_use_cudnn _set_sdp_use_fa3
    _set_sdp_use_flash _set_sdp_use_math _set_sdp_use_mem_efficient _set_sdp_use_overrideable
    _set_sm_carveout_experimental
"""

# Arguments that are given by name, or that what stands in for the function takes.
_ARGUMENTS = {
    "torch._subclasses.fake_tensor.FakeTensorMode": ["allow_non_fake_inputs"],
    "torch.autograd._engine_run_backward": ["t_outputs"],
    "torch.nn.init._no_grad_trunc_normal_": ["tensor", "mean", "std", "a", "b"],
    "torch.nn.utils.stateless._functional_call": ["module", "parameters_and_buffers", "args", "kwargs"],
    "torch.utils.checkpoint._checkpoint_without_reentrant_generator": [
        "fn", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop",
    ],
    "torch._functorch.partitioners.default_partition": [
        "joint_module", "_joint_inputs", "num_fwd_outputs", "static_lifetime_input_indices",
    ],
}  # fmt: skip

# Of classes, for their objects. Where the class itself does not have one, an object may.
_ATTRIBUTES = {
    "torch.Tensor": """
        _backward_hooks _indices _is_view _nested_tensor_size _nnz _post_accumulate_grad_hooks _values _version
    """,
    "torch.UntypedStorage": "_cdata",
    "torch.amp.GradScaler": "_lazy_init_scale_growth_tracker",
    "torch.autograd.graph.Node": "_sequence_nr",
    "torch.nn.Module": "_compiled_call_impl",
}

# Of objects that are not made to be looked at, or that may be missing: whoever uses them does without.
OPTIONAL = [
    "_allowed_determinism_checks_to_fns", "_backend_fns", "_boxed_call", "_device", "_dispatch_cache",
    "_enable_checkpoint_early_stop", "_get_max_seqlen", "_init_fn", "_is_param", "_opt_called",
    "_optimizer_step_post_hooks", "_optimizer_step_pre_hooks", "_scale", "_schema", "_torchdynamo_orig_callable",
    "_untyped_storage", "_wrapped_by_lr_sched",
]  # fmt: skip


def _read(table: str) -> dict[str, str]:
    """Forms by name."""
    return {name: form for form, name in map(str.split, table.strip().splitlines())}


INTERNALS = {
    "runtime": _read(_RUNTIME) | {f"torch._C.{name}": "function" for name in _SWITCHES.split()},
    "cuda": _read(_CUDA),
    "adapt": _read(_ADAPT),
    "backend": _read(_BACKEND),
    "inductor": _read(_INDUCTOR),
}
"""By who uses them: names, with the form that each is expected to have."""

ATTRIBUTES = {owner: names.split() for owner, names in _ATTRIBUTES.items()}


@functools.cache
def why_unknown(*users: str) -> str:
    """What these rely on and PyTorch does not have, or has in another form: the first found; "" if all is there."""
    for user in users:
        if user == "cuda" and not torch._C._has_cuda:
            continue
        for name, form in INTERNALS[user].items():
            reason = _against(name, form)
            if reason:
                return f"{reason} in PyTorch {torch.__version__}, which lowtide relies on"
    for owner, names in ATTRIBUTES.items() if "runtime" in users else ():
        for name in names:
            if not hasattr(_find(owner), name):
                return f"there is no {owner}.{name} in PyTorch {torch.__version__}, which lowtide relies on"
    return ""


def _against(name: str, form: str) -> str:
    try:
        found = _find(name)
    except (ImportError, AttributeError):
        return f"there is no {name}"
    if not _has_form(found, form):
        return f"{name} is a {type(found).__name__} instead of a {form}"
    wanted = _ARGUMENTS.get(name, [])
    taken = inspect.signature(found).parameters if wanted else {}
    missing = [argument for argument in wanted if argument not in taken]
    return f"{name} takes no {missing[0]}" if missing else ""


def _find(name: str) -> Any:
    """An attribute of a module, of a class in one, or a module."""
    parts = name.split(".")
    found: Any = torch
    for end, part in enumerate(parts[1:], 2):
        path = ".".join(parts[:end])
        if path in sys.modules:  # which the module around it may not show
            found = sys.modules[path]
        elif isinstance(found, types.ModuleType) and not hasattr(found, part):
            found = import_module(path)
        else:
            found = getattr(found, part)
    return found


def _has_form(found: Any, form: str) -> bool:
    if form == "value":
        return True
    if form == "class":
        return isinstance(found, type)
    if form == "module":
        return isinstance(found, types.ModuleType)
    return callable(found) if form == "function" else type(found).__name__ == form
