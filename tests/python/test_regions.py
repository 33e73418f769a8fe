"""Random regions of captured steps in parts: legal ones run as the whole does, others are refused.

LOWTIDE_FULL=1   1,000 regions instead of some dozens
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from given_regions import Tried, in_regions
from lowtide import _torch
from lowtide._lower import part_cache, step_parts
from step_models import FULL, pair, run_both, same, small_batches

REGIONS = 170 if FULL else 6  # of each model, exact and not
TRIES = 30 if FULL else 15  # for the regions of one step


@pytest.fixture(autouse=True)
def few_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every further number of parts is profiled and compared as well."""
    monkeypatch.setattr(step_parts, "_WANTED", (2, 4))
    monkeypatch.setattr(part_cache, "_profiled_here", {})
    monkeypatch.setattr(part_cache, "_compared_here", {})
    _torch.install_allocator()


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "sums"])
@pytest.mark.parametrize("model", ["mlp", "cnn", "gpt2"])
def test_regions_run_as_the_whole_does(
    model: str, exact: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried: list[Tried] = []  # by program: the first step of a model has one of its own
    for seed in itertools.count():
        if sum(each.ran for each in tried) >= REGIONS:
            break
        with in_regions(monkeypatch, tmp_path, seed, exact=exact, tries=TRIES) as made:
            eager, planned = pair(model, small=True, layers=1)
            for index, batch in enumerate(small_batches(model, 3, batch=4)):
                expected, got = run_both(eager, planned, index, batch)
                if exact:
                    assert same(expected, got), seed
                    assert same(eager.state(), planned.state()), seed
                else:
                    torch.testing.assert_close(got, expected)
            planned.step.close()
        assert made, "no program was built"
        tried.extend(made)
    ran, operators, refused = (sum(column) for column in zip(*tried, strict=True))
    print(f"{model}: {ran} regions of {operators} operators ran in parts, {refused} others were refused")
    assert operators > ran, "no region has two operators"
    assert refused > 0
