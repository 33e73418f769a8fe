"""One file of HTML with all that it needs: it loads nothing, and its own script alone may run."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

from . import sections
from .contents import Contents
from .document import text
from .packed import packed

_FOLDER = Path(__file__).parent
_SCRIPTS = ("data.js", "charts.js", "live.js", "map.js", "main.js")


@cache
def _read(*names: str) -> str:
    return "\n".join((_FOLDER / name).read_text(encoding="utf-8") for name in names)


def _hash(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def style() -> str:
    """Of all pages."""
    return _read("page.css")


def policy() -> str:
    """What a page may do: show itself in its own style, and run its own script. It may load nothing."""
    allowed = f"style-src 'sha256-{_hash(style())}'; script-src 'sha256-{_hash(_read(*_SCRIPTS))}'"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def fill(template: str, pieces: dict[str, str]) -> str:
    """Puts all pieces in their places at once, so that no text in one can name the place of another."""
    return re.sub(r"\{\{(\w+)\}\}", lambda place: pieces[place[1]], template)


def page_of(contents: Contents) -> str:
    """All of it."""
    pieces = {
        "policy": policy(),
        "title": text(contents.title),
        "lead": sections.lead(contents),
        "figures": sections.figures(contents),
        "notes": sections.notes(contents),
        "peaks": sections.peaks(contents),
        "picture": sections.picture(contents),
        "map_note": sections.map_note(contents),
        "changes": sections.changed(contents),
        "front": sections.front(contents),
        "holders": sections.holders(contents),
        "origin": sections.origin(contents),
        "data": packed(contents),
        "style": style(),
        "script": _read(*_SCRIPTS),
    }
    return fill(_read("page.html"), pieces)


def excerpt_of(contents: Contents) -> str:
    """A part that needs neither script nor style of its own, for a cell of a notebook."""
    return (
        f"<p><b>{text(contents.title)}</b><br>{sections.lead(contents)}</p>"
        f"{sections.picture(contents)}{sections.figures(contents)}{sections.peaks(contents)}"
    )
