"""The page of a difference: its rows, and the pages of both versions side by side."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

from .._report.document import table, text
from .._report.page import fill, policy, style

_TEMPLATE = Path(__file__).parent / "page.html"


def page_of(lead: str, rows: Iterable[tuple[str, ...]], old: str, new: str) -> str:
    """One file that loads nothing. Rows have gain, before, now, kind, op, place and line; `old` and `new` are pages."""
    cells = []
    for *numbers, kind, op, place, line in rows:
        shown = f'<code class="line">{text(line)}</code>' if line else ""
        made = f'<code>{text(op)}</code> <span class="place">{text(place)}</span>{shown}'
        cells.append([*map(text, numbers), text(kind), made])
    pieces = {
        "policy": policy(),
        "style": style(),
        "lead": text(lead),
        "rows": table("Changes at the peak", ["gained", "before", "now", "what", "made by"], cells, (0, 1, 2)),
        "old": escape(old),
        "new": escape(new),
    }
    return fill(_TEMPLATE.read_text(encoding="utf-8"), pieces)
