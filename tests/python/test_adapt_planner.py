"""`lowtide._core.BatchPlanner`: what Python sees of planning batch by batch."""

import pytest

from lowtide import _core


def observation(length: int, dropped: bool) -> _core.BlockObservation:
    block = _core.BlockObservation()
    block.dropped = dropped
    block.forward_peak = block.left = 10 * length
    block.result = 10 * length
    block.saved = 5 * length
    block.again_peak = 15 * length
    block.held_again = 5 * length
    block.before_again = 10 * length
    block.settled_peak = 20 * length
    block.time_ns = 1000
    return block


def test_learns_and_plans() -> None:
    planner = _core.BatchPlanner(1)
    assert not planner.plan([4, 10], 10**6).known
    for length in (10, 20, 30, 40):
        planner.observe([4, length], [observation(length, True)], [0], 0, 10 * length, 0)
    plan = planner.plan([4, 25], 10**6)
    assert plan.known and plan.dropped == [False]
    assert plan.likely_peak == pytest.approx(20 * 25, abs=2)
    assert planner.likely_peak([4, 25], [True]) == pytest.approx(20 * 25, abs=2)
    assert planner.least_peak([4, 25]) <= plan.safe_peak
    assert planner.plan([4, 100], 10**6).extrapolates


def test_refuses_what_does_not_match() -> None:
    planner = _core.BatchPlanner(2)
    with pytest.raises(ValueError, match="as many blocks"):
        planner.observe([1], [observation(1, True)], [0], 0, 0, 0)
    with pytest.raises(ValueError, match="one backward pass"):
        planner.observe([1], [observation(1, True)] * 2, [0, 0], 0, 0, 0)
    with pytest.raises(ValueError, match="nothing was observed"):
        planner.likely_peak([1], [True, True])
    planner.observe([1], [observation(1, True)] * 2, [1, 0], 0, 0, 0)
    with pytest.raises(ValueError, match="a choice for each"):
        planner.likely_peak([1], [True])
    with pytest.raises(ValueError, match="as many extents"):
        planner.plan([1, 2], 100)
