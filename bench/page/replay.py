"""Eager loops from one arena, beside PyTorch's allocators."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from bench.lib.markdown import table
from bench.page.amounts import MIB, more, span
from bench.page.results import Results

MODELS = {
    "alexnet": "AlexNet, 32 x 224 px",
    "googlenet": "GoogLeNet, 8 x 224 px",
    "resnet50": "ResNet-50, 8 x 224 px",
    "inception_resnet_v2": "Inception-ResNet-v2, 2 x 299 px",
    "bert_base": "BERT-base, 4 x 128",
    "gpt2": "GPT-2, 2 x 256",
    "t5_base": "T5-base, 2 x 128",
    "lstm_seq2seq": "LSTM seq2seq, 16 x 50",
}
COLUMNS = (
    "model", "requests", "training: arena", "pool", "arena / pool", "inference: arena", "pool", "arena / pool"
)  # fmt: skip
Row = dict[str, Any]


def values(results: Results) -> dict[str, str]:
    return {
        **results.written("replay_table", _small),
        **results.written("replay_table_full", lambda figures: _memory(figures["memory"]), "memory_"),
    }


def _small(figures: dict[str, Sequence[Row]]) -> dict[str, str]:
    times = [row for row in figures["time"] if row["sizes"] == "all"]
    return {**_time(times), **_steps(figures["step"]), **_capacity(figures["capacity"])}


def _memory(rows: Sequence[Row]) -> dict[str, str]:
    by_loop = {(row["model"], row["loop"]): row for row in rows}
    cells = []
    for model, name in MODELS.items():
        loops = [by_loop[model, loop] for loop in ("training", "inference")]
        amounts = [cell for row in loops for cell in _amounts(row["arena_bytes"], row["pool_bytes"])]
        cells.append((name, loops[0]["requests"], *amounts))
    return {
        "table": table(COLUMNS, cells),
        "proven": f"{sum(row['proven'] for row in rows)} of {len(rows)}",
        "best_fit": _best_fit(rows),
    }


def _amounts(arena: int, pool: int) -> tuple[str, str, str]:
    return f"{arena / MIB:.0f}", f"{pool / MIB:.0f}", f"{arena / pool:.2f}"


def _best_fit(rows: Sequence[Row]) -> str:
    """Where Sekiyama's heuristic needs more than the arena."""
    above = [(row, row["best_fit_bytes"] / row["arena_bytes"] - 1) for row in rows]
    named = [
        f"{MODELS[row['model']].partition(',')[0]}'s {row['loop']} ({more(share)})"
        for row, share in above
        if share > 0.0005
    ]
    return ", ".join(named) or "none"


def _time(rows: Sequence[Row]) -> dict[str, str]:
    return {
        "time_ratio": span(row["replayed"] / row["ordinary"] for row in rows),
        "time_arena": span((row["replayed"] for row in rows), 0),
        "time_pytorch": span((row["ordinary"] for row in rows), 0),
        "time_pool": span((row["pool"] for row in rows), 0),
    }


def _steps(rows: Sequence[Row]) -> dict[str, str]:
    ratios = [row["replayed_ms"] / row["plain_ms"] for row in rows]
    return {"step_ratio": span(ratios), "step_mean": f"{statistics.geometric_mean(ratios):.2f}"}


def _capacity(rows: Sequence[Row]) -> dict[str, str]:
    return {
        "batch": span((row["pool_batch"] for row in rows), 0),
        "batches": span((row["arena_batch"] for row in rows), 0),
        "samples": span(row["replayed_samples"] / row["plain_samples"] for row in rows),
    }
