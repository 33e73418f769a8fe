"""Beside other planners, on the models and batches of ROAM's evaluation."""

from __future__ import annotations

from collections.abc import Sequence

from bench.lib.markdown import table
from bench.order.reductions import Row, reduction
from bench.page.amounts import MIB
from bench.page.results import Results

ORDER, OURS = "Lowtide, order", "Lowtide"
OTHERS = {
    "PyTorch live": "PyTorch, bytes alive",
    "PyTorch reserved": "PyTorch, reserved by its allocator for CUDA (simulated)",
    "LESCEA + LLFB": "LESCEA and LLFB",
    "ROAM": "ROAM, as rebuilt here",
}
COLUMNS = ("Lowtide beside", "batch 1: order alone", "with reuse", "larger batch: order alone", "with reuse")
PROGRAMS = {
    "MODeL": "MODeL, any number of ops a step",
    "MODeL, one op a step": "MODeL, one op a step",
    "MODeL, joint": "MODeL, order and layout at once",
    ORDER: "Lowtide, order alone",
    OURS: "Lowtide, with reuse",
}


def values(results: Results) -> dict[str, str]:
    return {
        **results.written("order_table", _table),
        **results.written("order_table_adam", _programs, "adam_"),
        **results.written("order_table_sgd", _programs, "sgd_"),
        "limit": str(results["order_table_sgd"].options["seconds"]),
    }


def _table(rows: Sequence[Row]) -> dict[str, str]:
    cells = [
        (name, *(reduction(rows, ours, other, batch_one=one) for one in (True, False) for ours in (ORDER, OURS)))
        for other, name in OTHERS.items()
    ]
    return {
        "table": table(COLUMNS, cells),
        "total_one": _unsigned(reduction(rows, OURS, "PyTorch reserved", batch_one=True, total=True)),
        "total_larger": _unsigned(reduction(rows, OURS, "PyTorch reserved", batch_one=False, total=True)),
        "beside_heuristics": _unsigned(reduction(rows, ORDER, "LESCEA + LLFB", batch_one=True)),
        "roam_one": _unsigned(reduction(rows, "ROAM", "LESCEA + LLFB", batch_one=True)),
        "roam_larger": _unsigned(reduction(rows, "ROAM", "LESCEA + LLFB", batch_one=False)),
        "seconds": f"{max(row['seconds'] for row in rows if row['method'] in (ORDER, OURS)):.1f}",
    }


def _unsigned(change: str) -> str:
    return change.lstrip("+-")


def _programs(rows: Sequence[Row]) -> dict[str, str]:
    """The integer programs of MODeL, and ours, by batch."""
    by_method = {(row["method"], row["batch"]): row for row in rows}
    batches = sorted({row["batch"] for row in rows})
    cells = [(name, *(_arena(by_method[method, batch]) for batch in batches)) for method, name in PROGRAMS.items()]
    return {"programs": table(("arena MiB", *(f"batch {batch}" for batch in batches)), cells)}


def _arena(row: Row) -> str:
    return "too large" if "refused" in row else f"{row['planned'] / MIB:.1f} in {row['seconds']:.1f} s"
