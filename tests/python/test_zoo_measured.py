"""What is measured of the zoo is measured of steps that are equal bit for bit."""

import pytest

from bench.step import zoo as zoo_measured


def test_planned_steps_need_less_and_change_no_bit(capsys: pytest.CaptureFixture[str]) -> None:
    rows = zoo_measured.print_table(["alexnet", "vit_base"])
    for row in rows:
        assert row.equal
        assert row.planned_bytes < row.eager_bytes
        beside = row.planned_bytes - row.arena_bytes
        assert 0 <= beside <= 4096 + 3 * 5056, "the loss and copies of the random state alone are not in the arena"
    assert "2 of 2 equal bit for bit" in capsys.readouterr().out
