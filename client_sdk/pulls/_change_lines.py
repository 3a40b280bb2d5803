"""Changes of an answer as rows and as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from client_sdk._wire.values import Column, schema_of
from client_sdk.copies import ChangeBatch
from psoup.formats.plain import plain_values

# Names of the language don't begin with an underscore.
CHANGE_COLUMNS = (
    Column("_number", "BIGINT"),
    Column("_tag", "TEXT"),
    Column("_why", "TEXT"),
    Column("_at", "TIMESTAMP"),
)

Row = dict[str, Any]


def change_lines(batch: ChangeBatch, since: int) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the JSON of each change after the number `since`.

    A reset is one line with all rows.
    """
    if since >= batch.last:
        return
    if batch.reset:
        rows = list(_plain(list(batch.answer or ()), batch.columns))
        line = {**change_fields(batch.last, "reset", batch.reset), "rows": rows}
        yield batch.last, _encoded(line)
        return
    fresh = [change for change in batch if change.number > since]
    rows = list(_plain(change_rows(batch, since), (*CHANGE_COLUMNS, *batch.columns)))
    for change, row in zip(fresh, rows, strict=True):
        if change.tag == "u" and change.old is not None:
            row["_old"] = next(_plain([change.old], batch.columns))
        yield change.number, _encoded(row)


def change_rows(batch: ChangeBatch, since: int) -> list[Row]:
    """Return rows of the changes after the number `since`."""
    return [
        {
            **change_fields(change.number, change.tag, change.why, change.at),
            **(change.row or change.old or {}),
        }
        for change in batch
        if change.number > since
    ]


def change_fields(number: int, tag: str, why: str, at: datetime | None = None) -> Row:
    return {"_number": number, "_tag": tag, "_why": why, "_at": at}


def _plain(rows: Sequence[Row], columns: tuple[Column, ...]) -> Iterator[Row]:
    """Yield rows of plain values."""
    table = pa.Table.from_pylist(list(rows), schema=schema_of(columns)).combine_chunks()
    for batch in table.to_batches():
        values = [plain_values(array) for array, column in zip(batch.columns, columns, strict=True)]
        for row in zip(*values, strict=True):
            yield dict(zip((column.name for column in columns), row, strict=True))


def _encoded(value: Row) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
