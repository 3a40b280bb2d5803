"""mkdocs.yml: the site has every page, loads nothing from the network, and can be built."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docs.markdown import ROOT, read

CONFIGURATION = read("mkdocs.yml")


def test_the_navigation_names_every_page_once() -> None:
    docs = ROOT / "docs"
    pages = sorted(str(path.relative_to(docs)) for path in docs.rglob("*.md"))
    navigation = CONFIGURATION.partition("\nnav:\n")[2]
    assert sorted(re.findall(r"\S+\.md$", navigation, re.MULTILINE)) == pages


def test_the_site_loads_nothing_from_the_network() -> None:
    assert "font: false" in CONFIGURATION
    assert not re.search(r"https?://|mermaid:|- offline", CONFIGURATION)


def test_the_site_can_be_built(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        pytest.skip("needs the extra `docs`; scripts/docs installs it")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-d", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    loads = re.compile(r'(?:src|<link[^>]* href)="(?:https?:)?//')
    assert not [page for page in tmp_path.rglob("*.html") if loads.search(page.read_text())]


def test_the_architecture_is_read_in_one_sitting() -> None:
    page = read("docs/architecture.md")
    assert len(page.split()) <= 2500
    assert len(re.findall(r"!\[[^\]]+\]\(images/life-of-an?-\w+\.svg\)", page)) == 4
    for heading in ("## Promises", "## Which file do I open for what?"):
        assert heading in page
