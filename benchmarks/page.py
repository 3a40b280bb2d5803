"""docs/benchmarks/tables.md: each table is between two marks, and is replaced there.

<!-- measured: paper -->
…
<!-- end -->
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from benchmarks.report import markdown

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "benchmarks" / "tables.md"
IMAGES = DOCS / "images"


def put(path: Path, page: Path = PAGE) -> None:
    """Put the table of a report's JSON in its place, or at the end of the page."""
    report = json.loads(path.read_text())
    name = report["name"]
    block = f"<!-- measured: {name} -->\n\n{markdown(report)}\n\n<!-- end -->"
    place = re.compile(rf"<!-- measured: {re.escape(name)} -->.*?<!-- end -->", re.DOTALL)
    text = page.read_text()
    if place.search(text):
        text = place.sub(lambda _: block, text)
    else:
        text = f"{text.rstrip()}\n\n## {name}\n\n{block}\n"
    page.write_text(text)
