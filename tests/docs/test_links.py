"""Every relative link in a Markdown file leads to a file, and every anchor to a heading of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.docs.markdown import ROOT, without_fences

FOLDERS = ("docs", "benchmarks", "examples")
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.md"), *(p for f in FOLDERS for p in (ROOT / f).rglob("*.md"))]
    if "node_modules" not in path.parts
)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.*?) *$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_every_relative_link_resolves(page: str) -> None:
    broken = [link for link in _relative_links(page) if not _resolves(ROOT / page, link)]
    assert not broken


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_every_page_is_reached_from_the_index(page: str) -> None:
    assert ROOT / page in _reachable(ROOT / "docs" / "index.md")


def test_anchors_are_those_of_a_code_host() -> None:
    headings = "# Who may see what?\n## `a_b` and *c*\n## Twice\n## Twice\n## stems/&lt;id&gt;\n"
    assert _anchors_of(headings) == {
        *("who-may-see-what", "a_b-and-c", "twice", "twice-1", "stemsid"),
    }


def _relative_links(page: str) -> Iterator[str]:
    text = without_fences((ROOT / page).read_text(encoding="utf-8"))
    text = re.sub(r"`[^`\n]*`", "", text)
    for link in _LINK.findall(text):
        if not re.match(r"[a-z]+:", link):
            yield link


def _resolves(page: Path, link: str) -> bool:
    target, _, anchor = link.partition("#")
    path = (page.parent / target).resolve() if target else page
    if not path.exists():
        return False
    return not anchor or anchor in _anchors(path)


@cache
def _anchors(path: Path) -> frozenset[str]:
    return frozenset(_anchors_of(path.read_text(encoding="utf-8")))


def _anchors_of(text: str) -> set[str]:
    anchors: set[str] = set()
    repeats: dict[str, int] = {}
    for heading in _HEADING.findall(without_fences(text)):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        heading = heading.replace("&lt;", "<").replace("&gt;", ">")
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = repeats.get(anchor, 0)
        repeats[anchor] = number + 1
        anchors.add(f"{anchor}-{number}" if number else anchor)
    return anchors


@cache
def _reachable(start: Path) -> frozenset[Path]:
    visited: set[Path] = set()
    pending = [start]
    while pending:
        page = pending.pop()
        if page in visited or page.suffix != ".md" or not page.exists():
            continue
        visited.add(page)
        for link in _relative_links(str(page.relative_to(ROOT))):
            target = link.partition("#")[0]
            if target:
                pending.append((page.parent / target).resolve())
    return frozenset(visited)
