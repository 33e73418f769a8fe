"""The tables of eager replay are made from what ran."""

import pytest

from bench.replay import table as replay_table


def test_arenas_are_the_smallest_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    rows = replay_table.print_memory(["alexnet"], replay_table.build)
    assert [row["proven"] for row in rows] == [True, True]
    assert all(row["arena_bytes"] <= row["pool_bytes"] for row in rows)
    assert "2 of 2 arenas are the smallest there are" in capsys.readouterr().out


def test_allocation_takes_less_time_than_pytorchs() -> None:
    rows = replay_table.print_time(["bert_base"], rounds=3)
    (whole,) = (nanos for nanos in rows if nanos.sizes == "all")
    assert whole.replayed <= 0.7 * whole.ordinary
    for nanos in rows:
        assert nanos.replayed <= 1.1 * nanos.ordinary, nanos.sizes


def test_a_batch_is_larger_where_more_fits() -> None:
    assert replay_table.largest_batch(lambda batch: batch <= 37, 8) == 37
    assert replay_table.largest_batch(lambda batch: batch <= 8, 8) == 8
    pool, arena = replay_table.needs("alexnet", 2)
    assert arena < pool


def test_steps_are_timed_on_both_sides() -> None:
    plain, replayed = replay_table.timed_apart("alexnet", (2, 2), steps=2)
    assert 0 < plain < 60
    assert 0 < replayed < 60
