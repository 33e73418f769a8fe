"""The table of large language models: peaks fall as time may grow, and none is below its bound."""

import sys

import pytest

from bench.trade import large as recompute_large


def test_peaks_fall_and_stay_above_their_bounds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["trade/large.py", "--size", "small"])
    recompute_large.main()
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0] for row in rows] == list(recompute_large.MODELS)
    for row in rows:
        pairs = [cell.removesuffix(")").split(" (") for cell in row[5:-1]]
        peaks = [float(peak) for peak, _ in pairs]
        assert peaks == sorted(peaks, reverse=True) and peaks[-1] < peaks[0] <= 100
        assert all(float(bound) <= peak for (_, bound), peak in zip(pairs, peaks, strict=True))
        assert peaks[-1] >= float(row[4])
