"""The table of large language models: peaks fall as time may grow, and none is below its bound."""

import json

import pytest

from bench.__main__ import main
from bench.trade import large as recompute_large


def test_peaks_fall_and_stay_above_their_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "trade_large", "--size", "small", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["figures"]
    assert [row["model"] for row in rows] == list(recompute_large.MODELS)
    for row in rows:
        peaks = [lowest["peak_bytes"] for lowest in row["lowest"]]
        assert peaks == sorted(peaks, reverse=True) and peaks[-1] < peaks[0] <= row["eager_bytes"]
        assert all(lowest["bound_bytes"] <= lowest["peak_bytes"] for lowest in row["lowest"])
        assert peaks[-1] >= row["resident_bytes"]
