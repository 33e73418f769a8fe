"""One file of HTML with all that it needs: it loads nothing, and its own script alone may run."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

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


class Section(NamedTuple):
    """A part of a page; `content` is HTML."""

    id: str
    title: str
    content: str


class AboutCharts(NamedTuple):
    """What is said around the charts; `peaks` and `map_note` are HTML."""

    peaks: str
    map_note: str
    live_title: str = "Bytes over the step"
    time_name: str = "operators' time"
    first_unit: str = "time"  # that the page begins with; or "step"


def page_with(
    contents: Contents, lead: str, before: Sequence[Section], charts: AboutCharts, after: Sequence[Section]
) -> str:
    """A page with both charts, and sections before and after them; `lead` is HTML."""
    links = [*before, Section("live", charts.live_title, ""), Section("map", "Addresses", ""), *after]
    said = charts._asdict() | {"picture": sections.picture(contents)}
    pieces = {
        "policy": policy(),
        "title": text(contents.title),
        "lead": lead,
        "links": "\n".join(f'<li><a href="#{id}">{text(title)}</a></li>' for id, title, _ in links),
        "before": _sections(before),
        "charts": fill(_read("charts.html"), said).rstrip(),
        "after": _sections(after),
        "origin": sections.origin(contents),
        "data": packed(contents),
        "style": style(),
        "script": _read(*_SCRIPTS),
    }
    return fill(_read("page.html"), pieces)


def _sections(all: Sequence[Section]) -> str:
    return "\n".join(
        f'<section id="{id}" aria-labelledby="{id}-title">\n'
        f'<h2 id="{id}-title">{text(title)}</h2>\n{content}\n</section>'
        for id, title, content in all
    )


def page_of(contents: Contents) -> str:
    """All of it."""
    return page_with(
        contents,
        sections.lead(contents),
        [Section("figures", "Figures", sections.figures(contents) + sections.notes(contents))],
        AboutCharts(sections.peaks(contents), sections.map_note(contents)),
        [
            Section("changes", "What the plan changes", sections.changed(contents)),
            Section("front", "Memory and time", sections.front(contents)),
            Section("holders", "Who holds the peak", sections.holders(contents)),
        ],
    )


def excerpt_of(contents: Contents) -> str:
    """A part that needs neither script nor style of its own, for a cell of a notebook."""
    return (
        f"<p><b>{text(contents.title)}</b><br>{sections.lead(contents)}</p>"
        f"{sections.picture(contents)}{sections.figures(contents)}{sections.peaks(contents)}"
    )
