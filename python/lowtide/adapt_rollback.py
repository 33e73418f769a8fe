"""What is put back when a step runs out of memory, so that it can be tried again as if nothing had been."""

from __future__ import annotations

import random

import torch
from torch import nn


class Rollback:
    """Random state, running statistics and gradients of a model, as they are now."""

    def __init__(self, model: nn.Module, *, gradients: bool) -> None:
        self._python = random.getstate()
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda._initialized else []
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()] if model.training else []
        self._gradients = (
            [(p, None if p.grad is None else (p.grad, p.grad.detach().clone())) for p in model.parameters()]
            if gradients
            else []
        )

    def restore(self) -> None:
        """Puts everything back."""
        random.setstate(self._python)
        torch.set_rng_state(self._cpu)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        for buffer, content in self._buffers:
            buffer.data.copy_(content)
        for parameter, gradient in self._gradients:
            if gradient is None:
                parameter.grad = None
            else:
                parameter.grad, content = gradient
                parameter.grad.data.copy_(content)
