"""The benchmark of budgets, at a small size."""

from __future__ import annotations

import os

from bench.lib import models
from bench.trade.budget_models import Subject
from bench.trade.budgets import measure

LAYERS = 4 if os.environ.get("LOWTIDE_FULL") else 2


def test_rows_keep_their_budgets_bit_for_bit(capsys):
    subject = Subject(lambda: models.bert(64, LAYERS), models.tokens, lambda model: model.bert.encoder.layer)
    ways = measure(subject, 3, False, (0.8, 0.7))
    assert all(way.equal for way in ways)
    assert all(way.peak <= way.budget for way in ways if way.budget)
    assert "| eager |" in capsys.readouterr().out
