"""A hook of mkdocs: files outside docs/ that pages link to are part of the site, and links to them are turned there.

On GitHub `[x](../bench/x.py)` of a page in docs/ is the file itself. The site has no such place. Here each file outside
that is linked becomes one of the site, Markdown as a page and all else as it is, and links are rewritten to it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = {"README.md": "readme.md", "bench/README.md": "bench.md"}  # from the root, and what they are called in the site
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)(#[^)\s]*)?\)")


def place_of(path: str) -> str:
    """Where a file of the repository, by its path from the root, is in the site."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path in PAGES:
        return PAGES[path]
    return path if path.endswith(".md") else f"files/{path}"


def origin_of(place: str) -> str:
    """Where a page of the site is in the repository."""
    if (ROOT / "docs" / place).exists():
        return f"docs/{place}"
    return next((path for path, name in PAGES.items() if name == place), place)


def linked_from(path: str) -> set[str]:
    """Paths from the root that a page links to."""
    text = (ROOT / path).read_text()
    targets = {match[2] for match in LINK.finditer(text) if "://" not in match[2]}
    targets |= set(re.findall(r'(?:src|srcset)="([^":]+)"', text))
    return {posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) for target in targets}


def on_files(files: Files, config: Any) -> Files:
    """Adds what is linked and outside, and what that links to if it is a page."""
    waiting = [origin_of(file.src_uri) for file in files.documentation_pages()]
    seen = set(waiting)
    while waiting:
        for path in sorted(linked_from(waiting.pop()) - seen):
            seen.add(path)
            if path.startswith("docs/") or not (ROOT / path).is_file():
                continue
            files.append(File.generated(config, place_of(path), abs_src_path=str(ROOT / path)))
            if path.endswith(".md"):
                waiting.append(path)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turns links to where their targets are in the site."""
    path = origin_of(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)

    def turned(target: str) -> str:
        found = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if not (ROOT / found).is_file():
            return target
        return posixpath.relpath(place_of(found), here or ".")

    def rewritten(match: re.Match[str]) -> str:
        opening, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        if (ROOT / posixpath.normpath(posixpath.join(posixpath.dirname(path), target))).is_dir():
            return f"{opening.lstrip('!')[1:-2]}"  # a folder has no page: its name alone
        return f"{opening}{turned(target)}{anchor})"

    # Both themes: the light picture also has a dark one.
    markdown = re.sub(
        r"(!\[[^\]]*\]\()([^)\s]*)-light\.svg\)", r"\1\2-light.svg#only-light)\n\1\2-dark.svg#only-dark)", markdown
    )
    markdown = re.sub(
        r'<picture>.*?src="docs/([\w/]+)-light\.svg" alt="([^"]*)".*?</picture>',
        r"![\2](docs/\1-light.svg#only-light)\n![\2](docs/\1-dark.svg#only-dark)",
        markdown,
        flags=re.DOTALL,
    )
    return LINK.sub(rewritten, markdown)
