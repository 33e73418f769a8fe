"""Predicted times: of the right size on any machine; how near they are, the benchmark says."""

import time
from statistics import median

import pytest
import torch

import lowtide
from bench.step import prediction as step_prediction
from lowtide import _torch


def is_of_the_right_size(row: step_prediction.Prediction) -> bool:
    settled = 0.5 < row.settled_of_program < 2 and 0.5 < row.settled_of_step < 2
    return settled and 0.3 < row.alone_of_program < 2.5 and 0 < row.outside < row.step and row.program < row.step


def test_predictions_are_of_the_right_size(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(4):  # a busy machine disturbs one attempt, not four
        rows = list(step_prediction.print_table(step_prediction.QUICK, rounds=2))
        if all(map(is_of_the_right_size, rows)):
            break
    else:
        raise AssertionError(rows)
    assert "within 10%" in capsys.readouterr().out


def test_time_of_an_operator_is_that_of_its_work() -> None:
    def nanos(size: int) -> int:
        a, b = torch.full((size, size), 0.5), torch.full((size, size), 0.5)
        return _torch.profile("aten::mm", "", [("constant", a), ("constant", b)], 5, False)[2]

    small, large = nanos(64), nanos(512)  # 512 times the operations
    assert 50 * small < large


def test_time_does_not_count_new_pages() -> None:
    """A planned step has none; for large results they can take longer than the operator does."""
    a = torch.full((2**23,), 0.5)
    result = torch.empty_like(a)
    ratios = []
    while len(ratios) < 5 and (not ratios or ratios[-1] > 2.5):  # a busy machine disturbs one attempt, not five
        nanos = _torch.profile("aten::neg", "", [("constant", a)], 5, False)[2]
        taken = []
        for _ in range(7):
            begin = time.perf_counter_ns()
            torch.neg(a, out=result)
            taken.append(time.perf_counter_ns() - begin)
        ratios.append(nanos / median(taken))
    assert ratios[-1] <= 2.5, ratios


def test_every_operator_takes_time(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path))
    model = torch.nn.Linear(4, 4)
    step = lowtide.compile(lambda x: model(x).relu().sum(), model=model, on_unsupported="raise")
    with torch.no_grad():
        step(torch.randn(2, 4))
    assert step.plan.time_ns >= step.graph.num_ops
    assert all(profile.time_ns >= 1 for profile in step._current.current.profiles)
    step.close()
