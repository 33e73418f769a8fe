"""Largest batches on a device that is not here."""

from __future__ import annotations

from typing import Any

from bench.lib.markdown import table
from bench.page.results import Results

MODELS = {
    "gpt2": "GPT-2, 1024 tokens",
    "resnet50": "ResNet-50, 224 pixels",
    "bert_base": "BERT-base, 512 tokens",
}
COLUMNS = ("model", "PyTorch", "planned", "planned, at most 10 % more time", "processor seconds to find out")


def values(results: Results) -> dict[str, str]:
    return results.written("fit_table", lambda rows: {"table": table(COLUMNS, map(_cells, rows))})


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    largest = [row[f"largest_{way}"] for way in ("plain", "planned", "budget")]
    return MODELS[row["model"]], *largest, f"{row['seconds']:.0f}"
