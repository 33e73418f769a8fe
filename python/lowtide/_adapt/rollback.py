"""What is put back when a step runs out of memory, so that it can be tried again as if nothing had been."""

from __future__ import annotations

import torch
from torch import nn

from .._base.python_random import PythonRandom
from .buffers import Key, buffers_of, running_statistics
from .content import Content
from .forward import Forward
from .memory import storage_bytes
from .places import write_back
from .reach import Reach


class _Reached:
    """Whatever else a model can reach in Python, and its parameters."""

    def __init__(self, model: nn.Module) -> None:
        reach = Reach((model,), without=(Forward,), most=100_000)
        self._places = reach.places
        tensors = (*reach.tensors.values(), *reach.parameters.values())
        self._contents = [(tensor, Content(tensor)) for _, tensor in tensors]

    def restore(self) -> None:
        write_back(self._places)
        for tensor, content in self._contents:
            if not content.is_of(tensor) or (content.was_written() and not content.is_lost()):
                tensor.data = content.fresh().detach()


class Rollback:
    """Random state, buffers and gradients of a model, as they are now.

    Running statistics are copied, and those of the other buffers that are known to be changed in place; with `None` all
    of them, and whatever else the model can reach in Python is put back too.
    """

    def __init__(self, model: nn.Module, *, gradients: bool, changing: set[Key] | None) -> None:
        self._python = PythonRandom()
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda._initialized else []
        self._buffers = buffers_of(model)
        copied = {held.key for held in running_statistics(model.modules())} | (changing or set())
        self._copies = [
            (held.tensor, held.tensor.detach().clone())
            for held in self._buffers
            if changing is None or held.key in copied
        ]
        self._reached = _Reached(model) if changing is None else None
        self._gradients = (
            [(p, None if p.grad is None else (p.grad, p.grad.detach().clone())) for p in model.parameters()]
            if gradients
            else []
        )

    def changed(self) -> set[Key]:
        """Buffers that were changed in place since, by now."""
        return {held.key for held in self._buffers if held.was_changed()}

    def copied_bytes(self) -> int:
        """Of the copies of buffers."""
        return storage_bytes(copy for _, copy in self._copies)

    def restore(self) -> None:
        """Puts everything back."""
        self._python.restore()
        torch.set_rng_state(self._cpu)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        if self._reached is not None:
            self._reached.restore()
        for held in self._buffers:
            held.table[held.name] = held.tensor
        for buffer, copy in self._copies:
            buffer.data.copy_(copy)
        for parameter, gradient in self._gradients:
            if gradient is None:
                parameter.grad = None
            else:
                parameter.grad, content = gradient
                parameter.grad.data.copy_(content)
