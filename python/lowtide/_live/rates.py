"""Hyper-parameters of an optimizer when its step was deferred, which live Python may change before it is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def hyper_parameters(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Of each group, as they are now."""
    return [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]


class RatesPutBack:
    """While open, optimizers have the hyper-parameters that they had when their steps were deferred.

    What live Python has set since then is there again afterwards, beside what the steps themselves set.
    """

    def __init__(self, steps: Sequence[tuple[Any, list[dict[str, Any]]]]) -> None:
        self._rates = [pair for call, rates in steps for pair in zip(call.optimizer.param_groups, rates, strict=True)]

    def __enter__(self) -> None:
        self._since: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for group, rate in self._rates:
            self._since.append((group, {key: group[key] for key, before in rate.items() if group[key] is not before}))
            group.update(rate)

    def __exit__(self, *_: object) -> None:
        for group, since in reversed(self._since):
            group.update(since)
