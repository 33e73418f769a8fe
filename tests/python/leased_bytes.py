"""No module of tests leaves bytes of an arena with somebody: whoever runs later would find less room."""

import gc
from collections.abc import Iterator

import pytest
import torch

from lowtide import _torch
from lowtide._base.devices import CPU, why_not_planned


def leased_bytes() -> int:
    devices = [CPU, *([torch.device("cuda", 0)] if torch.cuda.is_available() else [])]
    return sum(_torch.arena_leased_bytes(device) for device in devices if not why_not_planned(device))


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left_in_the_arena() -> Iterator[None]:
    yield
    if leased_bytes() > 0:
        gc.collect()
    assert leased_bytes() == 0
