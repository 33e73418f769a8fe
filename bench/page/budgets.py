"""Budgets: measured peaks and times of models trained within them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.lib.markdown import table
from bench.page.amounts import MIB, percent
from bench.page.results import Results

BERT, GPT2, VIT = "BERT 4 x 256, 8 x 128", "GPT2 4 x 256, 8 x 256", "ViT 6 x 256, 8 x 96 px"
NAMES = {
    "eager": "eager",
    "checkpoint each block": "`torch.utils.checkpoint` around each layer",
    "planned": "`lowtide.compile`",
    "as small as checkpoint": "`memory_budget` of what checkpointing needs",
}
Row = dict[str, Any]


def values(results: Results) -> dict[str, str]:
    return {
        **results.written("trade_budgets", _bert),
        "rounds": str(results["trade_budgets"].options["rounds"]),
        **results.written("trade_budgets_inductor", _beside_inductor, "inductor_"),
        "inductor_rounds": str(results["trade_budgets_inductor"].options["rounds"]),
    }


def _bert(figures: dict[str, Any]) -> dict[str, str]:
    rows = figures[BERT]["rows"]
    return {
        "table": table(("", "peak MiB", "of eager", "time / eager"), [_alone(row) for row in rows if _is_shown(row)]),
        "time_at_60": _time(rows, "60% of eager"),
        "time_at_40": _time(rows, "40% of eager"),
    }


def _beside_inductor(figures: dict[str, Any]) -> dict[str, str]:
    """GPT2 and ViT in one table, by the ways that both were trained in."""
    first, second = (figures[name]["rows"] for name in (GPT2, VIT))
    others = {row["way"]: row for row in second}
    rows = [
        (_name(row["way"]), *_share(row, first[0]), *_share(others[row["way"]], second[0]))
        for row in first
        if _is_shown(row) and row["way"] in others
    ]
    columns = ("", "GPT2: of eager's peak", "time / eager", "ViT: of eager's peak", "time / eager")
    return {"table": table(columns, rows)}


def _is_shown(row: Row) -> bool:
    return "longer" not in row["way"]  # budgets of time are not the subject


def _name(way: str) -> str:
    if way.startswith("Inductor"):
        return f"`torch.compile`, `activation_memory_budget` {way.rpartition(' ')[2]}"
    if way.endswith("of eager"):
        return f"`memory_budget` of {way.partition('%')[0]} % of eager"
    return NAMES[way]


def _alone(row: Row) -> tuple[str, ...]:
    if "refused_bytes" in row:
        return _name(row["way"]), f"refused, at least {row['refused_bytes'] / MIB:.1f}", "", ""
    peak, share = f"{row['peak_bytes'] / MIB:.1f}", percent(row["of_eager"], 0)
    return _name(row["way"]), peak, share, f"{row['time_of_eager']:.2f}"


def _share(row: Row, eager: Row) -> tuple[str, str]:
    if "refused_bytes" in row:
        return f"refused, at least {percent(row['refused_bytes'] / eager['peak_bytes'], 0)}", ""
    is_eager = row["way"] == "eager"
    share = f"{row['peak_bytes'] / MIB:.1f} MiB" if is_eager else percent(row["of_eager"], 0)
    return share, f"{row['time_of_eager']:.2f}"


def _time(rows: Sequence[Row], way: str) -> str:
    return next(f"{row['time_of_eager']:.2f}" for row in rows if row["way"] == way)
