"""A small step, planned and eager: what a changed PyTorch does to planned steps is seen here before users see it.

Two layers, dropout and Adam, three times: captured, run from its plan, and again. It leaves random states, modes and
switches as they are, and is told to nobody.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from .._base.decisions import untold
from .._base.memory_errors import is_out_of_memory
from ..errors import CaptureError

_STEPS = 3
_SEED = 27
_DTYPE = torch.float32


def trial(compile: Callable[..., Any], device: torch.device) -> str | None:
    """What is wrong with planned steps on the device; "" if nothing is. None if it cannot be told now."""
    devices = [device] if device.type == "cuda" else []
    with ExitStack() as left_alone:
        left_alone.enter_context(torch.random.fork_rng(devices=devices))
        left_alone.enter_context(torch.inference_mode(False))
        left_alone.enter_context(torch.enable_grad())
        for kind in {"cpu", device.type}:
            left_alone.enter_context(torch.autocast(kind, enabled=False))
        left_alone.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        left_alone.enter_context(untold())
        try:
            eager = _train(device, None)
            planned = _train(device, compile)
        except Exception as error:
            if is_out_of_memory(error):
                return None
            said = str(error).strip().partition("\n")[0]
            return f"a trial step fails: {'' if isinstance(error, CaptureError) else f'{type(error).__name__}: '}{said}"
    if planned is None or eager is None:
        return None
    different = [what for what, values in eager.items() if not torch.equal(values, planned[what])]
    return f"a trial step has another {different[0]} than in eager PyTorch" if different else ""


def _train(device: torch.device, compile: Callable[..., Any] | None) -> dict[str, torch.Tensor] | None:
    """What some steps leave. None if they were to be planned and were not, because another step is being captured."""
    generators = [torch.default_generator]
    if device.type == "cuda":
        generators.append(torch.cuda.default_generators[device.index or 0])
    for generator in generators:
        generator.manual_seed(_SEED)
    here: dict[str, Any] = {"device": device, "dtype": _DTYPE}
    model = nn.Sequential(nn.Linear(6, 8, **here), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 4, **here))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(x).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    made: Any = step if compile is None else compile(step, model=model, optimizer=optimizer, on_unsupported="raise")
    try:
        losses = [made(torch.randn(5, 6, **here)) for _ in range(_STEPS)]
        if compile is not None and made.stats()["calls"] < _STEPS:
            return None
        left = {f"loss in call {number}": loss.clone() for number, loss in enumerate(losses, 1)}
        for name, parameter in model.named_parameters():
            left[f"value of {name}"] = parameter.detach().clone()
            state = optimizer.state[parameter]
            left |= {f"{kind} of {name} in Adam": value.clone() for kind, value in state.items()}
        left["random state"] = torch.cat([generator.get_state() for generator in generators])
        return left
    finally:
        if compile is not None:
            made.close()
