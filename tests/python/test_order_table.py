"""The table beside other methods: all of them plan the same steps."""

import pytest

from bench.order import table as order_table
from bench.zoo import graphs as zoo_graphs
from bench.zoo.graphs import GRADIENTS, Form


def test_table_compares_the_same_steps(capsys: pytest.CaptureFixture[str]) -> None:
    models = ["alexnet", "vit_base"]
    kept, dropped = (zoo_graphs.steps(models, [Form(gradients=gradients)], size="small") for gradients in GRADIENTS)
    rows = order_table.print_table(kept, dropped, [*order_table.FAST, *order_table.programs(seconds=0)])
    order_table.print_reductions(rows, order_table.OURS.name)
    by_step = {(row.method, row.model, row.batch): row for row in rows if isinstance(row, order_table.Memory)}
    for model, batch in {(row.model, row.batch) for row in rows}:
        live, reserved, expandable, heuristics, roam, order, ours = (
            by_step[method, model, batch]
            for method in (*order_table.PYTORCH, "LESCEA + LLFB", "ROAM", "Lowtide, order", "Lowtide")
        )
        assert len({row.resident for row in (live, reserved, expandable, heuristics, roam, order, ours)}) == 1
        assert live.planned < min(reserved.planned, expandable.planned)
        assert ours.planned < live.planned, "gradients die early"
        assert ours.planned <= order.planned <= min(heuristics.planned, roam.planned)
        assert reserved.fragmentation > 0 and ours.fragmentation < 0.02
    text = capsys.readouterr().out
    assert "| alexnet | 1 | MODeL | E403: model_program takes graphs of at most" in text
    assert "| PyTorch reserved | -" in text
