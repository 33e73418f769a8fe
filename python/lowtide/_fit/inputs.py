"""The arguments of a step at any batch and length, without content."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from .._base.structure import as_arguments, flatten
from ..errors import CaptureError


class Size(NamedTuple):
    """What is asked about; none where the example does not say."""

    batch: int | None
    length: int | None = None

    def __str__(self) -> str:
        named = (("batch", self.batch), ("length", self.length))
        return ", ".join(f"{name} {number}" for name, number in named if number is not None)


class Inputs:
    """An example is the tuple of arguments, or a function that gives one for a batch, or for a batch and a length."""

    asked: Size
    why_no_batch = ""

    def __init__(
        self,
        example: tuple[Any, ...] | Callable[..., tuple[Any, ...]],
        batch: int | None,
        length: int | None,
        dimension: int,
        mode: FakeTensorMode | None,
    ) -> None:
        self._example = example if callable(example) else as_arguments(example)
        self._dimension = dimension
        self._mode = mode or FakeTensorMode(allow_non_fake_inputs=True)
        if callable(example):
            if batch is None:
                raise TypeError("an example that is a function of the batch needs a batch to ask for: batch=8")
            self.asked = Size(batch, length)
            return
        if length is not None:
            raise TypeError("a length needs an example that is a function of both: example=lambda batch, length: ...")
        self._leaves, self._structure = flatten(self._example)
        tensors = [leaf for leaf in self._leaves if isinstance(leaf, torch.Tensor) and leaf.dim()]
        sizes = {tensor.shape[dimension] if tensor.dim() > dimension else None for tensor in tensors}
        own = sizes.pop() if len(sizes) == 1 else None
        if own is None:
            self.why_no_batch = (
                f"the example's tensors have no common size in dimension {dimension}; "
                "give a function instead: example=lambda batch: ..."
            )
            if batch is not None:
                raise ValueError(self.why_no_batch)
        self.asked = Size(own if batch is None else batch)

    def at(self, size: Size) -> tuple[Any, ...]:
        """Fake tensors: of those in the example, only the form counts. `CaptureError` if a function gives none."""
        if callable(self._example):
            try:
                with self._mode:
                    arguments = self._example(*(number for number in size if number is not None))
            except Exception as error:
                raise CaptureError(f"the example fails: {type(error).__name__}: {error}") from error
            return as_arguments(arguments)
        resized = [self._resized(leaf, size.batch) if isinstance(leaf, torch.Tensor) else leaf for leaf in self._leaves]
        arguments = self._structure.unflatten(resized)
        assert isinstance(arguments, tuple)  # as the example is
        return arguments

    def _resized(self, tensor: torch.Tensor, batch: int | None) -> torch.Tensor:
        with self._mode:
            if batch is None or not tensor.dim() or tensor.shape[self._dimension] == batch:
                made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
            else:
                shape = list(tensor.shape)
                shape[self._dimension] = batch
                made = torch.empty(shape, dtype=tensor.dtype)
            return made.requires_grad_(tensor.requires_grad)
