"""The zoo's steps in order: captured parameter by parameter, and planned close to a proven bound."""

from collections import Counter
from pathlib import Path

import pytest

from bench import zoo
from bench.order import zoo as zoo_order
from bench.zoo import graphs as zoo_graphs
from bench.zoo.graphs import ADAMS, GRADIENTS, Form


def test_every_implementation_of_adam_updates_parameter_by_parameter() -> None:
    """Else no gradient could die before all are there."""
    parameters = len(list(zoo.build("vit_base").model.parameters()))
    for optimizer, update in {"adam": "addcdiv_", "fused": "_fused_adam_", "foreach": "_foreach_addcdiv_"}.items():
        step = next(zoo_graphs.steps(["vit_base"], [Form(optimizer)], size="small"))
        names = Counter(step.graph.op_name(op).split(".")[1] for op in range(step.graph.num_ops))
        assert names[update] == parameters, optimizer


def test_zoo_is_ordered_to_a_proof(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forms = [Form(optimizer, gradients) for gradients in GRADIENTS for optimizer in ADAMS]
    models = ["alexnet", "vit_base"]
    rows = zoo_order.print_tables(zoo_graphs.steps(models, forms, size="small", cache=tmp_path))
    assert len(rows) == 2 * 2 * len(forms) == len(list(tmp_path.iterdir()))
    for row in rows:
        assert 0 < row.plan.bound_bytes <= row.plan.peak_bytes <= row.order.peak_bytes
        assert row.order.peak_bytes <= row.step.graph.program_peak_bytes
        assert all(plan.peak_bytes <= 1.001 * plan.bound_bytes for plan in (row.order, row.plan))
    assert any(row.order.peak_bytes < row.step.graph.program_peak_bytes for row in rows)
    assert any(row.plan.peak_bytes < row.order.peak_bytes for row in rows)
    resident = {
        (row.step.model, row.step.batch, row.step.form.gradients): row.step.graph.resident_bytes for row in rows
    }
    assert all(
        resident[model, batch, "dropped"] < size
        for (model, batch, gradients), size in resident.items()
        if gradients == "kept"
    )
    text = capsys.readouterr().out
    assert (
        "Adam: foreach, gradients: dropped" in text
        and "24 steps; the order of 24 proven best, with reuse that of 24" in text
    )

    again = zoo_graphs.steps(models, forms, size="small", cache=tmp_path)
    assert [step.graph.fingerprint for step in again] == [row.step.graph.fingerprint for row in rows]
