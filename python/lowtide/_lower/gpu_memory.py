"""What a step takes on a GPU beside its tensors: requests inside operators, and workspaces of libraries.

cuBLAS has a workspace for each thread that calls it, a block of PyTorch's caching allocator that is never given back. A
training step has two such threads: its own, and autograd's, which runs the backward pass.
"""

from __future__ import annotations

import os
import re

import torch

from .._capture.recorder import Ref
from .gpu_temporaries import Inside, requested_inside
from .gpus import Device
from .lowering import Buffer, Lowered, Operator

KIB, MIB = 2**10, 2**20
_PRODUCTS = frozenset(f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "vdot"))
_CONVOLUTIONS = frozenset({"aten::convolution", "aten::convolution_backward"})


def blas_workspaces(device: Device) -> tuple[int, ...]:
    """Bytes of each request that the first product of a thread makes there."""
    if device.is_amd:
        return 128 * MIB, 76 * MIB  # of rocBLAS and of hipBLASLt
    chosen = re.findall(r":(\d+):(\d+)", os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
    if chosen:
        return (sum(int(size) * KIB * int(count) for size, count in chosen),)
    return (32 * MIB if device.capability >= (9, 0) else 2 * 4096 * KIB + 8 * 16 * KIB,)


def add_gpu_memory(lowered: Lowered, device: Device, *, at_first_use: bool) -> tuple[int, ...]:
    """Adds all that to the step; gives the workspaces. They are there from the beginning, unless `at_first_use`."""
    _leave_numbers_of_updates_on_host(lowered)
    for operator in lowered.operators:
        _add_inside(lowered, operator, requested_inside(operator, device))
    workspaces: list[int] = []
    for backward in (False, True):
        first = next((one for one in lowered.operators if one.backward is backward and _calls_blas(one)), None)
        for size in blas_workspaces(device) if first is not None else ():
            workspace = _new(lowered, size, "made" if at_first_use else "bound", "constant")
            workspaces.append(size)
            if first is not None and at_first_use:
                first.results.append(workspace)
                first.made.append(True)
    return tuple(workspaces)


def _add_inside(lowered: Lowered, operator: Operator, inside: Inside) -> None:
    results = list(zip(operator.results, operator.made, strict=True))
    if inside.last_result_first:
        results.reverse()
    before, between, after = (
        [(_new(lowered, size, "planned", "temporary"), True) for size in sizes] for sizes in inside[:3]
    )
    requests = [*before, *results[:1], *between, *results[1:], *after]
    operator.results, operator.made = [ref for ref, _ in requests], [new for _, new in requests]


def _leave_numbers_of_updates_on_host(lowered: Lowered) -> None:
    """An optimizer counts its steps on the host, unless a kernel reads the count together with parameters."""
    updates = [lowered.operators[index] for index in lowered.updates]
    windows = [[*operator.reads(), *operator.new_results()] for operator in updates]
    with_tensors = {ref.buffer for refs in windows if any(ref.sizes for ref in refs) for ref in refs}
    for buffer in {ref.buffer for refs in windows for ref in refs} - with_tensors:
        lowered.buffers[buffer].nbytes = 0
        lowered.absent.add(buffer)


def _calls_blas(operator: Operator) -> bool:
    name = operator.target._schema.name
    return name in _PRODUCTS or (name in _CONVOLUTIONS and not torch.backends.cudnn.enabled)


def _new(lowered: Lowered, size: int, kind: str, role: str) -> Ref:
    """A window on a buffer of its own."""
    lowered.buffers.append(Buffer(size, kind, role, "workspace" if role == "constant" else "inside an operator"))
    return Ref(len(lowered.buffers) - 1, torch.uint8, (size,), (1,), 0)
