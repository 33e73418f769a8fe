"""Irregular networks: pure functions of what they are made from, and ordered to a proof."""

from collections import Counter

import pytest

from bench.order import irregular as irregular_orders
from bench.order import irregular_graphs


@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("family", irregular_graphs.FAMILIES)
def test_irregular_graphs_are_pure_functions_of_family_size_and_seed(family: str, training: bool) -> None:
    one, same, other = (irregular_graphs.make(family, 300, seed, training=training) for seed in (3, 3, 4))
    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert 300 <= one.num_ops < 400
    names = Counter(one.op_name(op) for op in range(one.num_ops))
    weights = names["depthwise"] + names["pointwise"] + names["batch_norm"]
    assert names["update"] == (weights if training else 0)
    assert names["accumulate"] > 0 or not training, "an output has several users"


def test_irregular_orders_run(capsys: pytest.CaptureFixture[str]) -> None:
    rows = irregular_orders.print_tables(list(irregular_graphs.FAMILIES), ops=100, seeds=2, detail=False)
    assert len(rows) == 16
    assert all(row.bound_bytes <= row.best_bytes <= row.program_bytes for row in rows)
    assert all(row.proven for row in rows)
    assert any(row.best_bytes < row.program_bytes for row in rows)
    assert "proven: 16 of 16" in capsys.readouterr().out
