"""The recipes of docs/backend.md run, planned."""

from __future__ import annotations

import gc
import re
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from lowtide._backend import entry

PAGE = Path(__file__).parents[2] / "docs/backend.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
NEEDS = ("torch", "transformers", "accelerate", "pytorch_lightning")


@pytest.mark.parametrize("place", range(4))
def test_recipe(place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip(NEEDS[place])
    pytest.importorskip("accelerate") if NEEDS[place] == "transformers" else None
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    torch._dynamo.reset()
    made: list[Any] = []
    initialize = entry.Region.__init__

    def note(region: Any, *args: Any) -> None:
        initialize(region, *args)
        made.append(region)

    monkeypatch.setattr(entry.Region, "__init__", note)
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(BLOCKS[0], names)
    if place:
        torch._dynamo.reset()
        made.clear()
        exec(BLOCKS[place], names)
    assert made and sum(region.planned_passes for region in made) >= 4
    assert sum(region.eager_passes for region in made) == 0
    # Later tests look at all tensors there are.
    weight = weakref.ref(next(names["model"].parameters()))
    made.clear()
    torch._dynamo.reset()
    names.clear()
    gc.collect()
    assert weight() is None


def test_there_are_no_other_recipes():
    assert len(BLOCKS) == len(NEEDS)
