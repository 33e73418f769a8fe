"""The benchmark of budgets, at a small size."""

from __future__ import annotations

import os

from bench.lib import models
from bench.trade.budget_models import Subject
from bench.trade.budgets import measure

LAYERS = 4 if os.environ.get("LOWTIDE_FULL") else 2


def test_rows_keep_their_budgets_bit_for_bit(capsys):
    subject = Subject(lambda: models.bert(64, LAYERS), models.tokens, lambda model: model.bert.encoder.layer)
    rows = measure(subject, 3, False, (0.8, 0.7))["rows"]
    assert all(row["equal"] for row in rows)
    assert all(row["peak_bytes"] <= row["budget_bytes"] for row in rows if row["budget_bytes"])
    assert "| eager |" in capsys.readouterr().out
