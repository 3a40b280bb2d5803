"""Own edits among the changes of an answer, for copies that are kept with changes="with own".

The reported answer is then compared with the one that has own edits. Own rows have negative ids
there until they are acknowledged, and then those that the store gave them. So a row that comes back
from the store is the row that was reported, and nothing more is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from client_sdk.copies._file import sqlite, tables
from client_sdk.copies._file.catalog import Record
from client_sdk.copies._file.checksums import HEAD, Checksums, StoredRow, signed
from client_sdk.copies._file.records import Reported, Version
from client_sdk.copies._overlay import confirmed
from client_sdk.copies._overlay.overlaid import Moment, Overlay, overlay_at
from client_sdk.copies._overlay.source import overlaid
from client_sdk.copies._query.answers import visible

_VIEW = "temp._psoup_with_own"


@dataclass(frozen=True, slots=True)
class OwnAnswer:
    """The answer of a version with own edits: a view like a table of rows, its NOW, and the ids of
    own rows in it.
    """

    table: str
    now: int | None
    row_ids: frozenset[int]


@contextmanager
def with_own(
    connection: sqlite.Connection, record: Record, version: Version, now: int | None
) -> Iterator[OwnAnswer]:
    """Yield the answer of a version of a copy, with own edits."""
    next_record = replace(record, version=version)
    overlay = overlay_at(connection, next_record, Moment(now, now), rejected=False)
    if overlay is None:
        yield OwnAnswer(version.table, now, frozenset())
        return
    numbered = _numbered(connection, version, overlay)
    with overlaid(connection, version, visible(overlay.now), numbered) as source:
        _, *head = tables.HEAD_NAMES
        names = ", ".join(["row_id", *head, *tables.value_names(version.shape.stored)])
        connection.execute(f"CREATE TEMP VIEW _psoup_with_own AS SELECT {names} FROM {source.rows}")
        try:
            row_ids = frozenset(row[0] for row, _ in numbered.added)
            yield OwnAnswer(_VIEW, overlay.now, row_ids)
        finally:
            connection.execute(f"DROP VIEW {_VIEW}")


def _numbered(connection: sqlite.Connection, version: Version, overlay: Overlay) -> Overlay:
    """Return the overlay with the ids of the store, if it has taken rows, and with checksums."""
    rows = [row for row, _ in overlay.added]
    ids = confirmed.real_ids(connection, [row[0] for row in rows])
    summed = _summed([(ids.get(row[0], row[0]), *row[1:]) for row in rows], version)
    statuses = [status for _, status in overlay.added]
    return replace(overlay, added=list(zip(summed, statuses, strict=True)))


def _summed(rows: Sequence[StoredRow], version: Version) -> list[StoredRow]:
    sums = Checksums(version.shape.stored).of(rows)
    return [
        (*row[: HEAD - 1], signed(checksum), *row[HEAD:])
        for row, checksum in zip(rows, sums, strict=True)
    ]


def renumber(
    connection: sqlite.Connection, copy_id: int, reported: Reported, version: Version
) -> Reported | None:
    """Give own rows that were reported the ids that the store gave them, and return what is
    reported then. Return None if such a row is damaged.
    """
    table = tables.reported_table(copy_id)
    rows = tables.read(connection, f"SELECT * FROM {table} WHERE row_id < 0")
    ids = confirmed.real_ids(connection, [row[0] for row in rows])
    before = [row for row in rows if row[0] in ids]
    if not before:
        return reported
    if Checksums(version.shape.stored).wrong(before):
        return None
    after = _summed([(ids[row[0]], *row[1:]) for row in before], version)
    connection.executemany(f"DELETE FROM {table} WHERE row_id = ?", ((row[0],) for row in before))
    tables.put(connection, table, after)
    checksums = ([row[HEAD - 1] for row in rows] for rows in (before, after))
    removed, added = checksums
    return replace(reported, sums=reported.sums.minus(removed).plus(added))
