"""The table beside named planners of recompute: all start from the same step."""

import pytest

from bench.trade import front as recompute_front
from bench.zoo import graphs as zoo_graphs


def test_planners_trade_from_the_same_step(capsys: pytest.CaptureFixture[str]) -> None:
    models = recompute_front.QUICK
    steps = [step for step in zoo_graphs.steps(models, [recompute_front.FORM], size="small") if step.batch > 1]
    rows = recompute_front.print_table(steps)
    assert len(rows) == len(models) * len(recompute_front.planners())
    for model in models:
        found = [row for row in rows if row.step.model == model]
        assert len({row.base for row in found}) == 1 and len({row.step_ns for row in found}) == 1
        for row in found:
            costs, peaks = zip(*row.points, strict=True)
            assert costs[0] == 0
            assert list(costs) == sorted(set(costs)) and list(peaks) == sorted(set(peaks), reverse=True)
        assert found[0].planner == recompute_front.OURS and not found[0].ahead_of(found[0])
        assert min(row.points[-1][1] for row in found) < found[0].base, "something was traded"
    ours = {row.step.model: row for row in rows if row.planner == recompute_front.OURS}
    ahead = {row.step.model: 0 for row in rows}
    for row in rows:
        ahead[row.step.model] += len(row.ahead_of(ours[row.step.model]))
    dominated = list(ahead.values()).count(0)
    assert f"auto dominates on {dominated} of {len(models)}" in capsys.readouterr().out
    recompute_front.print_ahead(rows)
    assert len(capsys.readouterr().out.splitlines()) == sum(ahead.values())
