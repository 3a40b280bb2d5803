"""What the file knows of streams from the last contact: enough to check rows, and to compute."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from typing import Any

from client_sdk._wire.models import Stream
from client_sdk._wire.values import Column
from client_sdk.copies._sealed import seal, unseal

_MICROSECOND = timedelta(microseconds=1)


def remember(connection: sqlite3.Connection, stream: Stream) -> None:
    """In place of what was known of it."""
    sealed = seal(stream_content(stream))
    connection.execute("INSERT OR REPLACE INTO _psoup_streams VALUES (?, ?)", (stream.name, sealed))


def remembered(connection: sqlite3.Connection, name: str) -> Stream | None:
    """None where nothing is known, or it can't be read any more. Counts are of no meaning.

    The store does not tell names apart by case either.
    """
    rows = connection.execute("SELECT stream FROM _psoup_streams WHERE name = ?", (name.lower(),))
    content = unseal((rows.fetchone() or [None])[0])
    return None if content is None else stream_from(content)


def stream_content(stream: Stream) -> dict[str, Any]:
    return {
        "name": stream.name,
        "id": stream.id,
        "columns": [[column.name, column.type] for column in stream.columns],
        "ordered_by": stream.ordered_by,
        "retain": None if stream.retain is None else stream.retain // _MICROSECOND,
        "ahead": stream.ahead // _MICROSECOND,
        "sql": stream.sql,
        "key": list(stream.key),
    }


def stream_from(content: dict[str, Any]) -> Stream:
    retain = content["retain"]
    return Stream(
        name=content["name"],
        id=content["id"],
        columns=tuple(Column(*pair) for pair in content["columns"]),
        ordered_by=content["ordered_by"],
        retain=None if retain is None else retain * _MICROSECOND,
        ahead=content["ahead"] * _MICROSECOND,
        row_count=0,
        now=None,
        sql=content["sql"],
        registration_count=0,
        key=tuple(content["key"]),
    )
