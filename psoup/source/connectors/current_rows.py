"""The keys of a stream's current rows, which deletes of all that a table lost need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from client_sdk import Client, Stream

_PAGE_KEYS = 1000


def last_row_id(client: Client, stream: Stream) -> int | None:
    """Return the greatest row id of a stream's current rows; None if there are none."""
    (row,) = client.ask(f'SELECT max(row_id) AS last FROM "{stream.name}" UNBOUNDED')
    last: int | None = row["last"]
    return last


def pages_of_keys(client: Client, stream: Stream, last: int) -> Iterator[list[dict[str, Any]]]:
    """Yield the keys of a stream's current rows up to a row id, page by page."""
    names = ", ".join(f'"{name}"' for name in stream.key)
    text = f'SELECT {names} FROM "{stream.name}" WHERE row_id <= :last UNBOUNDED'
    with client.ask_stream(text, parameters={"last": last}) as answer:
        page = list[dict[str, Any]]()
        for batch in answer:
            for row in batch.to_pylist():
                page.append(row)
                if len(page) == _PAGE_KEYS:
                    yield page
                    page = []
        if page:
            yield page
