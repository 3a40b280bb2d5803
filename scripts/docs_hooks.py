"""Adapts pages that are written for a code host to MkDocs: scripts/docs runs it.

- Links to files outside docs/ become the file's path: the site does not contain those files.
- Words after a fence's language, which tests read (```sql refused), are left out.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^(```\w+) [^\n]+$", re.MULTILINE)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the page's Markdown as MkDocs understands it."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))
    markdown = _LINK.sub(lambda link: _inside(folder, link), markdown)
    return _FENCE.sub(r"\1", markdown)


def _inside(folder: str, link: re.Match[str]) -> str:
    """Return the link as it is if it stays in docs/, else its text and the file's path."""
    text, target = link[1], link[2]
    if re.match(r"[a-z]+:", target):
        return link[0]
    path = posixpath.normpath(posixpath.join(folder, target))
    if path.startswith("docs/"):
        return link[0]
    return text if path in text else f"{text} (`{path}`)"
