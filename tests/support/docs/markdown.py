"""What a page says, for tests that hold it to it: fenced blocks and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

_FENCE = re.compile(r"^```(\S+)?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: ```language words."""

    language: str
    words: str
    text: str


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> Iterator[Block]:
    for fence in _FENCE.finditer(text):
        if fence[1] == language:
            yield Block(language, fence[2].strip(), fence[3])


def without_fences(text: str) -> str:
    """Return the text without its fenced blocks."""
    return _FENCE.sub("", text)


def tables(text: str) -> Iterator[list[list[str]]]:
    """Yield each table as its rows of cells, the header first, without the line under it."""
    rows: list[list[str]] = []
    for line in [*without_fences(text).splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            yield [rows[0], *rows[2:]]
            rows = []


def table(text: str, *header: str) -> list[list[str]]:
    """Return the rows of all tables with this header."""
    matching = [rows[1:] for rows in tables(text) if rows[0] == list(header)]
    assert matching, f"no table | {' | '.join(header)} |"
    return [row for rows in matching for row in rows]


def code(cell: str) -> str:
    """Return the first `code` of a cell."""
    match = re.search(r"`([^`]+)`", cell)
    assert match, f"no code in {cell!r}"
    return match[1]
