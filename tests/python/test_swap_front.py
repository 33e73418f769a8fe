"""The table of recomputation and swap: both is no slower than recomputation alone, and no plan is below the bound.

LOWTIDE_FULL=1   activations alone too, and not only with optimizer state
"""

import json

import pytest

from bench.__main__ import main
from bench.trade import swap as trade_swap
from step_models import FULL


@pytest.mark.parametrize("state", [False, True] if FULL else [True])
def test_both_lies_between_recomputation_and_the_bound(capsys: pytest.CaptureFixture[str], state: bool) -> None:
    assert main(["run", "trade_swap", "--quick", "--json", *(["--state"] if state else [])]) == 0
    rows = json.loads(capsys.readouterr().out)["figures"]
    assert len(rows) == len(trade_swap.QUICK) * len(trade_swap.RATES) * len(trade_swap.SHARES)
    for row in rows:
        for kind in ("recompute_ns", "swap_ns", "both_ns"):
            assert row[kind] is None or row["bound_ns"] <= row[kind], row
        if row["recompute_ns"] is not None:
            assert row["both_ns"] is not None and row["both_ns"] <= row["recompute_ns"], row
    assert any(row["both_ns"] is not None and row["both_ns"] != row["recompute_ns"] for row in rows)
