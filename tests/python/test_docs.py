"""The documents: links and anchors lead somewhere, every page is in the site, and what is listed is complete."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "bench/**/*.md", "examples/**/*.md", ".github/**/*.md")
    for path in ROOT.glob(pattern)
)
NAMES = [str(path.relative_to(ROOT)) for path in PAGES]


def prose(text: str) -> str:
    """Without code, in which nothing is a link or a heading."""
    text = re.sub(r"^(```+).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda code: re.sub(r"[\[\]()]", "", code[0]), text)


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings, and the site too."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", prose(page.read_text()), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        count = sum(1 for other in found if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", other))
        found.add(f"{slug}-{count}" if slug in found else slug)
    return found


def links(page: Path) -> list[str]:
    text = prose(page.read_text())
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset|href)="([^"]+)"', text)
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


@pytest.mark.parametrize("name", NAMES)
def test_links_and_anchors_resolve(name: str) -> None:
    page = ROOT / name
    for target in links(page):
        path, _, anchor = unquote(target).partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists() and found.is_relative_to(ROOT), target
        assert not anchor or anchor in anchors(found), target


def test_links_are_found() -> None:
    assert len(links(ROOT / "README.md")) > 20
    assert {"e101-unknown_id", "memoryguarderror"} <= anchors(ROOT / "docs" / "errors.md")
    assert "what---json-prints" in anchors(ROOT / "docs" / "cli.md")


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    listed = re.findall(r": ([\w/]+\.md)$", navigation, re.MULTILINE)
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= set(listed)
    assert len(listed) == len(set(listed))
    outside = {"readme.md": "README.md", "bench.md": "bench/README.md"}  # as docs/tools/site_links.py has them
    assert all((ROOT / outside.get(name, name)).exists() for name in set(listed) - pages)


def test_the_python_api_is_up_to_date() -> None:
    made = subprocess.run(
        [sys.executable, "docs/tools/python_api.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr


def test_every_variable_is_documented() -> None:
    read = re.compile(r"""(?:environ(?:\.get)?|getenv|from_environment)[\[(]\s*["'](LOWTIDE_\w+)""")
    found = {
        name
        for top, pattern in (
            ("python", "*.py"),
            ("src", "*.cc"),
            ("cli", "*.cc"),
            ("tests", "*.py"),
            ("tests", "*.cc"),
            ("tests", "*.h"),
        )
        for file in (ROOT / top).rglob(pattern)
        for name in read.findall(file.read_text())
        if not name.startswith("LOWTIDE_TEST_")  # what tests set for themselves
    }
    documented = set(re.findall(r"^\| `(LOWTIDE_\w+)`", (ROOT / "docs" / "environment.md").read_text(), re.MULTILINE))
    assert found == documented


def test_every_build_option_is_documented() -> None:
    lists = [ROOT / "CMakeLists.txt", ROOT / "cmake" / "FindHighs.cmake", ROOT / "fuzz" / "CMakeLists.txt"]
    declared = re.compile(r"^\s*(?:option\((LOWTIDE_\w+)|set\((LOWTIDE_\w+) .*CACHE)", re.MULTILINE)
    found = {first or second for file in lists for first, second in declared.findall(file.read_text())}
    documented = set(re.findall(r"^\| `(LOWTIDE_\w+)`", (ROOT / "docs" / "cpp.md").read_text(), re.MULTILINE))
    assert found == documented


def test_cpp_of_the_documents_is_that_of_the_examples() -> None:
    shown = re.findall(r"^```cpp\n(.*?)^```$", (ROOT / "docs" / "cpp.md").read_text(), re.MULTILINE | re.DOTALL)
    assert sorted(shown) == sorted(path.read_text() for path in (ROOT / "examples" / "cpp").glob("*.cc"))


def test_options_of_plan_are_documented() -> None:
    """With the words that the program has for them."""
    page = (ROOT / "docs" / "cli.md").read_text().partition("\n## plan\n")[2].partition("\n## ")[0].replace("`", "")
    source = (ROOT / "cli" / "arguments.cc").read_text()
    for option in ("--alignment", "--effort", "--threads", "--time-limit", "--no-reuse"):
        says = re.search(rf'"{option}",[^"]*"([^"]+)"', source)
        assert says and f"| {option}" in page and says[1] in page, option


def test_the_picture_is_drawn() -> None:
    """From a chain, by hand: two results of 1 KiB, one after the other, the second made with the first alive."""
    import lowtide
    from bench.step import picture
    from lowtide._core import GraphBuilder

    builder = GraphBuilder()
    made = [builder.buffer(1024, resident=False, initial=False, role="activation", name=name) for name in "abc"]
    builder.op("first", [], [made[0]], time_ns=1_000_000)
    for before, after in pairwise(made):
        builder.op("next", [builder.value(before, "uint8", [1024])], [after], time_ns=1_000_000)
    graph = builder.build()
    plan = lowtide.plan(graph, order="program")
    curve = picture.curve_of(picture.timeline_of("eager", graph, picture.GraphFile(graph), plan), timed=True)
    assert (curve.alive, curve.begins, curve.end) == ([1024, 2048, 2048], [0, 1_000_000, 2_000_000], 3_000_000)
    assert curve.peak == graph.eager_bytes
    for theme in picture.THEMES:
        drawn = (ROOT / "docs" / "assets" / f"step-{theme}.svg").read_text()
        assert drawn.startswith("<svg") and drawn.count("<path") == 3
