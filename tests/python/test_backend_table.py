"""The benchmark of the backend of `torch.compile`, at a small size."""

from __future__ import annotations

import os

import pytest

from bench.backend.table import measure
from bench.lib import models
from bench.trade.budget_models import Subject

FULL = bool(os.environ.get("LOWTIDE_FULL"))


def test_rows_keep_their_budgets_bit_for_bit(capsys: pytest.CaptureFixture[str]):
    layers = 4 if FULL else 1
    subject = Subject(lambda: models.bert(64, layers), models.tokens, lambda model: model.bert.encoder.layer)
    rows = measure(subject, 2, (0.8,), (1.0,) if FULL else ())
    ours = [row for row in rows if not row["way"].startswith("Inductor")]
    compiled = ["aot_eager", "lowtide", "lowtide, again", "lowtide, 80%", "lowtide, 80%, again"]
    assert [row["way"] for row in ours][2:] == compiled
    assert all(row["equal"] for row in ours)
    assert all(row["transient_bytes"] <= row["budget_bytes"] for row in ours if row["budget_bytes"])
    assert "| aot_eager |" in capsys.readouterr().out
