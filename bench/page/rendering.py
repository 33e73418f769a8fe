"""Writes the pages that show results: whole ones, and marked parts of others.

A template (`*.md.in`) has `{{section.name}}` for what `values` of `bench/page/section.py` gives. A part of a page is
between `<!-- name -->` and `<!-- /name -->`.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from bench.lib.apart import ROOT
from bench.page.results import Results

TEMPLATES = Path(__file__).parent
WHOLE = {"docs/benchmarks.md": "benchmarks.md.in", "docs/zoo.md": "zoo.md.in"}  # page, template
PARTS = {
    "README.md": {"figures": "readme.md.in"},
    "bench/README.md": {"benchmarks": "catalog.md.in"},
    "docs/store.md": {"figures": "store.md.in"},
}
NAME = re.compile(r"\{\{(\w+)\.(\w+)\}\}")


def rendered(results: Results, root: Path = ROOT) -> dict[Path, str]:
    """Every page, as its results make it."""
    pages = {root / page: filled(template, results) for page, template in WHOLE.items()}
    for page, parts in PARTS.items():
        text = (root / page).read_text()
        for name, template in parts.items():
            text = _replaced(text, name, filled(template, results))
        pages[root / page] = text
    return pages


def filled(template: str, results: Results) -> str:
    """A template with what its names stand for."""
    text = (TEMPLATES / template).read_text()
    sections = {name[1]: importlib.import_module(f"bench.page.{name[1]}") for name in NAME.finditer(text)}
    values = {name: section.values(results) for name, section in sections.items()}
    return NAME.sub(lambda name: values[name[1]][name[2]], text)


def _replaced(text: str, name: str, part: str) -> str:
    before, begin, rest = text.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    if not end:
        raise ValueError(f"expected a part between <!-- {name} --> and <!-- /{name} -->")
    return f"{before}{begin}{part}{end}{after}"
