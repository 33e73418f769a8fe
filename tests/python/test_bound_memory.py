"""What a program does with memory that it is bound to: parameters, state, the batch."""

import pytest
import torch
from torch import nn

import lowtide


def runtime_of(step):
    return step._current.current.program.runtime


def test_a_failed_run_says_whether_it_wrote_what_it_is_bound_to():
    first, second = nn.Embedding(8, 4), nn.Embedding(8, 4)
    model = nn.ModuleList([first, second])
    seen = torch.zeros(4)
    model.register_buffer("seen", seen)

    def function(early, late):
        made = first(early).sum(0)
        seen.add_(made)
        return (second(late).sum(0) + made).sum()

    step = lowtide.compile(function, model=model, on_unsupported="raise")
    good, bad = torch.tensor([1, 2]), torch.tensor([1, 20])
    with torch.no_grad():
        step(good, good)
        assert runtime_of(step).wrote_bound
        for early, late, wrote in ((bad, good, False), (good, bad, True), (bad, good, False)):
            before = seen.clone()
            with pytest.raises(IndexError):
                step(early, late)
            assert runtime_of(step).wrote_bound == wrote
            assert torch.equal(before, seen) == (not wrote)
    step.close()
