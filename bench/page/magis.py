"""The steps of MAGIS: what each planner makes of four limits, the speed of the search, and what its rules are worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from bench.lib.markdown import table
from bench.page.results import Results

OURS, WHOLE = "Lowtide", "Lowtide, whole"
DEFAULT_SECONDS = 180.0
NAMES = {
    "resnet50": "ResNet-50",
    "resnet50_plain": "ResNet-50 without norms",
    "bert_base": "BERT",
    "vit_base": "ViT",
    "unet": "U-Net",
    "unet_plus_plus": "U-Net++",
    "gpt_neo_1.3b": "GPT-Neo-1.3B",
    "btlm_3b": "BTLM-3B",
    "gpt_268": "small GPT-2",
    "bert_large": "BERT-large",
}
Row = dict[str, Any]


def values(results: Results) -> dict[str, str]:
    """Of an A100, and with names that begin with `other_`, of an RTX 3090."""
    return {
        **results.written("fission_magis", _figures),
        **results.written("fission_magis_3090", _compared, "other_"),
        "seconds": f"{results['fission_magis'].options.get('seconds', DEFAULT_SECONDS):g}",
    }


def _figures(figures: dict[str, list[Row]]) -> dict[str, str]:
    speed, ablations = (figures[key] for key in ("speed", "ablations"))
    return {
        **_compared(figures),
        "speeds": table(
            ("step", "ops", "states a second", "order as good", "as if parts mixed", "times as fast"),
            list(map(_speed_cells, speed)),
        ),
        "ablations": table(
            ("search", "memory", "states a second"),
            [(row["search"], _share(row["memory"]), f"{row['states_per_second']:.0f}") for row in ablations],
        ),
    }


def _compared(figures: dict[str, list[Row]]) -> dict[str, str]:
    rows = figures["rows"]
    limits = list(dict.fromkeys((row["limit_of"], row["limit"]) for row in rows))
    columns = ("step", "planner", *(f"{_low(of)} at {of} {limit:g}" for of, limit in limits))
    compared = [row for row in rows if row["planner"] not in (OURS, WHOLE) and row[_low(row["limit_of"])] is not None]
    return {
        "table": table(columns, _cells(rows)),
        "limits": str(len(compared)),
        "reached": str(sum(_is_reached(row, rows) for row in compared)),
    }


def _cells(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """A line for each step and planner."""
    for (step, _, planner), found in groupby(rows, itemgetter("step", "device", "planner")):
        yield (NAMES[step], planner, *(_share(row[_low(row["limit_of"])]) for row in found))


def _speed_cells(row: Row) -> tuple[str, ...]:
    shares = (f"{row[key] / row['walked']:.1%}" for key in ("as_good", "as_good_as_mixed"))
    return (
        NAMES[row["step"]],
        row["device"],
        row["ops"],
        f"{row['states_per_second']:.0f}",
        *shares,
        f"{row['faster']:.0f}",
    )


def _low(of: str) -> str:
    """What is to be low under a limit of the other."""
    return "memory" if of == "time" else "time"


def _is_reached(row: Row, rows: Sequence[Row]) -> bool:
    """Whether ours has as little."""
    low = _low(row["limit_of"])
    same = ("step", "device", "limit_of", "limit")
    ours = next(each for each in rows if each["planner"] == OURS and all(each[key] == row[key] for key in same))[low]
    return ours is not None and bool(ours <= row[low])


def _share(share: float | None) -> str:
    return "none" if share is None else f"{share:.3f}"
