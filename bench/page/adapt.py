"""Batches of any length: how much more `lowtide.adapt` gets done than others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.lib.markdown import table
from bench.page.amounts import MIB, more, percent, span
from bench.page.results import Results

TASKS = {
    "tc_bert": "pair classification, BERT",
    "qa_bert": "question answering, BERT",
    "tr_t5": "translation, T5",
    "lm_gpt2": "language model, GPT2",
    "mc_roberta": "multiple choice, RoBERTa",
    "od_r50": "detection, ResNet-50",
    "od_r101": "detection, ResNet-101",
}
SHARE = 0.6  # of the longest batch: the budget of the table
COLUMNS = (
    "task", "extents: min, median, p99, max", "over static", "over dropping everything", "over DTR's rule",
    "predicted peak off by", "sheltering took",
)  # fmt: skip
Row = dict[str, Any]


def values(results: Results) -> dict[str, str]:
    return {
        **results.written("adapt_table", _table),
        **results.written("adapt_planning", _planning, "planning_"),
        **results.written("adapt_flat", _flat, "flat_"),
    }


def _table(rows: Sequence[Row]) -> dict[str, str]:
    shown = [row for task in TASKS for row in rows if row["task"] == task and row["share"] == SHARE]
    return {
        "table": table(COLUMNS, map(_cells, shown)),
        "gains": f"{span((100 * row['gains']['static'] for row in shown), 1)} %",
        **{f"texts_{100 * share:.0f}": _times(rows, share, images=False) for share in (0.4, 0.6, 0.8)},
        "images_80": _times(rows, 0.8, images=True),
        "refused": " and ".join(percent(row["refused_share"], 0) for row in rows if "refused_share" in row),
    }


def _planning(rows: dict[str, Row]) -> dict[str, str]:
    core, call = rows["prediction and plan"], rows["from the call of the model to its plan"]
    return {
        "median": f"{core['median_us']:.0f}",
        "p99": f"{core['p99_us']:.0f}",
        "call": f"{call['median_us']:.0f}",
    }


def _cells(row: Row) -> tuple[str, ...]:
    extents = ", ".join(f"{row['extents'][name]:g}" for name in ("min", "median", "p99", "max"))
    static, everything, dtr = (more(row["gains"][name]) for name in ("static", "all", "dtr"))
    over = row["over_budget"]["dtr"]
    dtr += f", which was over the budget {over} times" if over else ""
    error, took = percent(row["prediction_error"], 3), f"{row['sheltering_iterations']:.1f}"
    return TASKS[row["task"]], extents, static, everything, dtr, error, took


def _times(rows: Sequence[Row], share: float, *, images: bool) -> str:
    """The least and the most that steps take, in steps of plain training."""
    return span(
        row["times"]["adapt"]
        for row in rows
        if row["share"] == share and "times" in row and row["task"].startswith("od") == images
    )


def _flat(rows: Sequence[Row]) -> dict[str, str]:
    """The first row is before any batch."""
    ends = (rows[1], rows[-1])
    return {
        "batches": f"{rows[-1]['batches']:,}",
        "tensors": span(row["tensor_bytes"] / MIB for row in rows[1:]),
        "process": " and ".join(
            f"{row['process_bytes'] / MIB:.0f} MiB after {row['batches']:,} batches" for row in ends
        ),
    }
