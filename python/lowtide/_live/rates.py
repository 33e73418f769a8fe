"""Hyper-parameters of an optimizer when its step was deferred, which live Python may change before it is made."""

from __future__ import annotations

from typing import Any

import torch


def hyper_parameters(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Of each group, as they are now."""
    return [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]


class RatesPutBack:
    """While open, an optimizer has the hyper-parameters that it had when its step was deferred.

    What live Python has set since then is there again afterwards, beside what the step itself sets.
    """

    def __init__(self, call: Any, rates: list[dict[str, Any]] | None) -> None:
        self._groups = call.optimizer.param_groups if rates is not None else []
        self._rates = rates or []

    def __enter__(self) -> None:
        self._since: list[dict[str, Any]] = []
        for group, rate in zip(self._groups, self._rates, strict=True):
            self._since.append({key: group[key] for key, before in rate.items() if group[key] is not before})
            group.update(rate)

    def __exit__(self, *_: object) -> None:
        for group, since in zip(self._groups, self._since, strict=True):
            group.update(since)
