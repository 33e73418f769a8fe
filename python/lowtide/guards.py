"""Guards: everything outside the tape that the tape depends on, read at each call.

Two calls with equal guards run the same captured step. A changed guard is not an error: the step is captured again.
"""

from __future__ import annotations

import enum
import weakref
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.backends.opt_einsum
import torch.utils._device
from torch.autograd import forward_ad
from torch.nn.utils import parametrize

from .autocast_casts import region_around
from .engine_switches import SWITCH_NAMES, read_switches
from .sharing import Sharing
from .structure import Structure

_BY_VALUE = frozenset(
    {bool, int, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, range,
     type(Ellipsis)}
)  # fmt: skip


class Guards(NamedTuple):
    """What one capture holds for. `surroundings` is a key that `Surroundings` gave.

    `sharing` is empty for a capture that holds while no argument shares memory that the step writes.
    """

    arguments: tuple[Hashable, ...]
    structure: Structure
    modes: tuple[Hashable, ...]
    groups: tuple[tuple[tuple[int, ...], ...], ...]
    surroundings: Hashable
    sharing: Sharing = ()


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


def read_arguments(leaves: Sequence[Any], names: Mapping[int, str]) -> tuple[Hashable, ...]:
    """Shapes and dtypes of tensor arguments, values of plain ones, classes of all others.

    `names` gives the name of each of the model's own tensors and modules by id: such a leaf stands for itself.
    """
    described: list[Hashable] = []
    for leaf in leaves:
        if id(leaf) in names:
            described.append(names[id(leaf)])
        elif isinstance(leaf, torch.Tensor):
            described.append(_describe_tensor(leaf))
        else:
            described.append(plain_key(leaf) or (type(leaf), "any"))
    return tuple(described)


def _describe_tensor(leaf: torch.Tensor) -> Hashable:
    if leaf.is_nested:
        return (type(leaf), leaf.dtype, leaf.layout, leaf.requires_grad, leaf.device.type, "nested")
    if leaf.layout is not torch.strided:
        return (type(leaf), leaf.dtype, tuple(leaf.shape), leaf.layout, leaf.requires_grad, leaf.device.type)
    return (
        type(leaf), leaf.dtype, tuple(leaf.shape), leaf.stride(), leaf.requires_grad, leaf.device.type, leaf.is_conj(),
        leaf.is_neg(), leaf.is_inference(),
    )  # fmt: skip


# The module behind `torch.backends.opt_einsum`, whose own attributes are properties that take longer than all others.
_EINSUM: Mapping[str, Any] = vars(torch.backends.opt_einsum.m)  # type: ignore[attr-defined]


def read_modes() -> tuple[Hashable, ...]:
    """PyTorch's global switches that change what is dispatched or how it computes."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(),
        region_around(),
        torch._C._len_torch_function_stack(),
        torch._C._functorch.maybe_current_level(),
        torch.utils._device.CURRENT_DEVICE,
        _EINSUM["enabled"],
        _EINSUM["strategy"],
        *read_switches(),
    )


MODE_NAMES = (
    "grad mode",
    "inference mode",
    "autocast",
    "autocast dtype",
    "autocast cache",
    "autocast region",
    "torch function modes",
    "functorch level",
    "default device",
    "einsum paths",
    "einsum strategy",
    *SWITCH_NAMES,
)


def must_stay_eager() -> str:
    """What is around this call and must see the function itself at work, if anything is: a name for it, or ""."""
    if torch._C._len_torch_dispatch_stack() > 0:
        return "a dispatch mode"
    if torch._C._functorch.maybe_current_level() is not None:
        return "a function transform"
    if torch._C._len_torch_function_stack() > 0 and _foreign_function_mode():
        return "a torch function mode"
    if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
        return "saved tensor hooks"
    if torch._C._get_tracing_state() is not None:
        return "torch.jit.trace"
    if torch.is_anomaly_enabled():
        return "anomaly detection"
    if forward_ad._current_level >= 0:
        return "forward-mode differentiation"
    if parametrize._cache_enabled:
        return "parametrize.cached(), whose cache outlives the call"
    return ""


def _foreign_function_mode() -> bool:
    """The default device is a function mode too; on the CPU it changes nothing."""
    modes = [torch._C._get_function_stack_at(index) for index in range(torch._C._len_torch_function_stack())]
    return not all(isinstance(m, torch.utils._device.DeviceContext) and m.device.type == "cpu" for m in modes)


def read_optimizers(optimizers: Sequence[torch.optim.Optimizer]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Which parameters are in which group."""
    return tuple([tuple([tuple(map(id, group["params"])) for group in o.param_groups]) for o in optimizers])
