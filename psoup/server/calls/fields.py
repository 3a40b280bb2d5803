"""Fields that many requests have: names a client chooses, and texts of queries."""

from __future__ import annotations

from psoup.errors import BadRequest
from psoup.server.settings import Settings

MAIN = "main"


def default_name(name: str, field: str, settings: Settings) -> str:
    """An empty tenant or owner is `main`."""
    check_name(name, field, settings)
    return name or MAIN


def check_name(name: str, field: str, settings: Settings) -> None:
    size = len(name.encode())
    if size > settings.name_bytes:
        raise BadRequest(
            f"{field} has {size:,} bytes; at most {settings.name_bytes:,} are taken",
            reason="NAME_TOO_LONG",
            field=field,
            expected=f"at most {settings.name_bytes} bytes",
            got=f"{size} bytes",
        )


def check_text(text: str, settings: Settings) -> None:
    """Raises BadRequest for a query that is too long to be read."""
    size = len(text.encode())
    if size > settings.query_bytes:
        raise BadRequest(
            f"a text of {size:,} bytes; at most {settings.query_bytes:,} are taken",
            reason="TEXT_TOO_LONG",
            field="sql",
            expected=f"at most {settings.query_bytes} bytes",
            got=f"{size} bytes",
        )
