"""Grown graphs: pure functions of what they are made from, and ordered close to a bound."""

import pytest

from bench.order import grown_graphs
from bench.order import scale as order_scale
from bench.zoo import graphs as zoo_graphs
from bench.zoo.graphs import Form


@pytest.mark.parametrize("shape", grown_graphs.SHAPES)
def test_grown_graphs_are_ordered_close_to_a_bound(shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    forms = [Form("fused", "dropped")]
    parts = [step.graph for step in zoo_graphs.steps(["alexnet", "googlenet"], forms, size="small") if step.batch == 1]
    one, same, other = (grown_graphs.grow(shape, parts, 2000, seed) for seed in (0, 0, 1))
    assert one.fingerprint == same.fingerprint != other.fingerprint
    largest = max(part.num_ops for part in parts)
    assert 2000 <= one.num_ops < 2000 + 2 * largest
    weights = sum(part.resident_bytes for part in parts)
    if shape == "unrolled":
        assert one.resident_bytes < 1.1 * weights, "each part has its weights once"
    else:
        assert one.resident_bytes > 1.5 * weights, "each copy has weights of its own"

    rows = order_scale.print_table([shape], parts, [1000, 2000], seed=0)
    assert [row.ops >= ops for row, ops in zip(rows, (1000, 2000), strict=True)] == [True, True]
    for row in rows:
        assert 0 < row.bound_bytes <= row.peak_bytes <= min(row.program_bytes, row.arena_bytes)
        assert row.peak_bytes <= 1.01 * row.bound_bytes
        assert 2**20 < row.memory_bytes < 2**30
    assert len(capsys.readouterr().out.splitlines()) == 4
