"""HTML in small pieces. What a graph names is text from anywhere: it becomes part of a page through `text` alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

_UNSHOWN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(words: str) -> str:
    """Without controls, marks that turn the direction of what follows, and halves of characters."""
    return _UNSHOWN.sub("\ufffd", words)


def text(words: str) -> str:
    """As HTML, in an element or in quotes."""
    return escape(clean(words), quote=True)


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Cells are HTML; the first of each row is its header. `numbers` are the columns that hold some."""
    kind = [' class="number"' if column in numbers else "" for column in range(len(columns))]
    heads = "".join(f'<th scope="col"{kind[i]}>{text(name)}</th>' for i, name in enumerate(columns))
    lines = []
    for first, *rest in rows:
        cells = "".join(f"<td{kind[i]}>{cell}</td>" for i, cell in enumerate(rest, 1))
        lines.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}"><table>'
        f"<caption>{text(caption)}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def paragraphs(lines: Iterable[str], kind: str = "note") -> str:
    """Of plain text."""
    return "".join(f'<p class="{kind}">{text(line)}</p>' for line in lines)
