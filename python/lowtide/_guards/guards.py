"""Guards: what a deferred call depends on beside its code, as keys that are equal where calls do the same."""

from __future__ import annotations

import enum
import weakref
from collections.abc import Hashable, Sequence
from typing import Any

import torch
import torch.backends.opt_einsum
from torch.autograd import forward_ad
from torch.nn.utils import parametrize
from torch.utils._device import DeviceContext

_BY_VALUE = frozenset(
    {bool, int, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, range,
     type(Ellipsis)}
)  # fmt: skip


def plain_key(value: Any) -> Hashable | None:
    """A key that is equal for equal values that can never change, or None if `value` is not such a value.

    Types are told apart (1, 1.0 and True), and so are floats with other bits (0.0 and -0.0).
    """
    kind = type(value)
    if kind in _BY_VALUE:
        return (kind, value)
    if kind is float:
        return (kind, value.hex())
    if kind is complex:
        return (kind, value.real.hex(), value.imag.hex())
    if kind in weakref.ProxyTypes:
        return None  # what it stands for may be gone, or change
    if isinstance(value, enum.Enum):
        return (kind, value.name, repr(value.value))
    if kind is slice:
        return _keys_of(kind, (value.start, value.stop, value.step))
    if isinstance(value, tuple):
        return _keys_of(kind, value)
    if kind is frozenset:
        keys = [plain_key(item) for item in value]
        return None if None in keys else (kind, frozenset(keys))
    if kind.__module__ == "numpy" and hasattr(value, "tobytes") and not hasattr(value, "__array_finalize__"):
        return (kind, value.tobytes())  # a scalar
    return None


def _keys_of(kind: type, items: tuple[Any, ...]) -> Hashable | None:
    keys = tuple([plain_key(item) for item in items])
    return None if None in keys else (kind, keys)


def describe_tensor(leaf: torch.Tensor) -> Hashable:
    """What a capture holds for, of a tensor."""
    if leaf.is_nested:
        return (type(leaf), leaf.dtype, leaf.layout, leaf.requires_grad, leaf.device.type, "nested")
    if leaf.layout is not torch.strided:
        return (type(leaf), leaf.dtype, tuple(leaf.shape), leaf.layout, leaf.requires_grad, leaf.device.type)
    return (
        type(leaf), leaf.dtype, tuple(leaf.shape), leaf.stride(), leaf.requires_grad, leaf.device.type, leaf.is_conj(),
        leaf.is_neg(), leaf.is_inference(),
    )  # fmt: skip


SAVED_TENSOR_HOOKS = "saved tensor hooks"


def must_stay_eager(*, for_nan: bool = False) -> str:
    """What is around this call and must see the function itself at work, if anything is: a name for it, or "".

    `for_nan`: anomaly detection only if it looks for NaN.
    """
    if torch._C._len_torch_dispatch_stack() > 0:
        return "a dispatch mode"
    if torch._C._functorch.maybe_current_level() is not None:
        return "a function transform"
    if torch._C._len_torch_function_stack() > 0 and _foreign_function_mode():
        return "a torch function mode"
    if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
        return SAVED_TENSOR_HOOKS
    if torch._C._get_tracing_state() is not None:
        return "torch.jit.trace"
    if torch.is_anomaly_enabled() and (torch.is_anomaly_check_nan_enabled() or not for_nan):
        return "anomaly detection"
    if forward_ad._current_level >= 0:
        return "forward-mode differentiation"
    if torch.cuda._initialized and torch.cuda.is_current_stream_capturing():
        return "a CUDA graph that is being captured"
    if parametrize._cache_enabled:
        return "parametrize.cached(), whose cache outlives the call"
    return ""


def _foreign_function_mode() -> bool:
    """The default device is a function mode too, and one of a call's modes."""
    modes = [torch._C._get_function_stack_at(index) for index in range(torch._C._len_torch_function_stack())]
    return not all(
        getattr(m, "is_lowtides", False) or (isinstance(m, DeviceContext) and m.device.type in ("cpu", "cuda"))
        for m in modes
    )


def read_optimizers(optimizers: Sequence[torch.optim.Optimizer]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Which parameters are in which group."""
    return tuple([tuple([tuple(map(id, group["params"])) for group in o.param_groups]) for o in optimizers])
