"""What is put back when a step runs out of memory, so that it can be tried again as if nothing had been."""

from __future__ import annotations

import torch
from torch import nn

from .adapt_again import running_statistics, version_of
from .adapt_memory import storage_bytes
from .python_random import PythonRandom

Changing = set[tuple[int, str]]  # buffers by their table and name


class Rollback:
    """Random state, buffers and gradients of a model, as they are now.

    Running statistics are copied, and those of the other buffers that are known to be changed in place; `None` for all.
    """

    def __init__(self, model: nn.Module, *, gradients: bool, changing: Changing | None) -> None:
        self._python = PythonRandom()
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda._initialized else []
        copied = {(id(table), name) for table, name in running_statistics(model)} | (changing or set())
        self._buffers = [
            (table, name, buffer, version_of(buffer), buffer.detach().clone() if copy else None)
            for part in model.modules()
            for table in (part._buffers,)
            for name, buffer in table.items()
            if buffer is not None
            for copy in (changing is None or (id(table), name) in copied,)
        ]
        self._gradients = (
            [(p, None if p.grad is None else (p.grad, p.grad.detach().clone())) for p in model.parameters()]
            if gradients
            else []
        )

    def changed(self) -> Changing:
        """Buffers that were changed in place since, by now."""
        return {(id(table), name) for table, name, buffer, version, _ in self._buffers if version_of(buffer) != version}

    def copied_bytes(self) -> int:
        """Of the copies of buffers."""
        return storage_bytes(copy for *_, copy in self._buffers if copy is not None)

    def restore(self) -> None:
        """Puts everything back."""
        self._python.restore()
        torch.set_rng_state(self._cpu)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        for table, name, buffer, _, copy in self._buffers:
            table[name] = buffer
            if copy is not None:
                buffer.data.copy_(copy)
        for parameter, gradient in self._gradients:
            if gradient is None:
                parameter.grad = None
            else:
                parameter.grad, content = gradient
                parameter.grad.data.copy_(content)
