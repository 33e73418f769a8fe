"""The benchmarks of `lowtide.fit`: the zoo is asked about quickly, and predictions are what steps take."""

import os

import pytest

from bench import zoo
from bench.fit import measured as fit_measured
from bench.fit import table as fit_table
from bench.step import zoo as zoo_measured

FULL = os.environ.get("LOWTIDE_ZOO") == "all"


def test_the_zoo_is_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    size, models = ("paper", zoo.names()) if FULL else ("small", ["alexnet", "roberta_base"])
    found = fit_table.print_table(models, "L4", size=size, largest_batch=False)
    for name, (report, _) in found.items():
        assert report.planned.total_bytes <= report.plain.live_bytes, name
    assert f"{len(models)} of {len(models)} in under 60 s" in capsys.readouterr().out


def test_predicted_peaks_are_near_measured_ones() -> None:
    workspaces, variables = ["resnet3d_18", "unet", "lstm_seq2seq"], ["gpt2"]
    models = [*zoo.names(), *zoo_measured.FULL] if FULL else [*workspaces, *variables]
    for name, sides in fit_measured.print_table(models).items():
        assert all(side.near for side in sides), name
