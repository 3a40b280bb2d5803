"""Names a client chooses: tenant, owner, client key, publisher."""

from __future__ import annotations

from psoup.server.errors import BadRequest
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
