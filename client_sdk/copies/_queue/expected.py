"""Edits that expect a row: from which row of its key each was made.

The `_expected` of a queued row is an id of the store, -1 for none, or, less than that, the id of an
own row that was queued before it. When the store has taken that one, its id in the store takes the
place. An edit whose own row the store did not take is not sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from client_sdk._wire.models import Stream
from client_sdk._wire.rows import BATCH_COLUMNS, DELETE, EXPECTED, NO_ROW, OP
from client_sdk.copies._file import sqlite, tables
from client_sdk.copies._file.home import cached_stream, home_of
from client_sdk.copies._file.records import seal, unseal
from client_sdk.copies._overlay import own_rows
from client_sdk.copies._overlay.confirmed import is_covered
from client_sdk.copies._overlay.own_rows import Shown
from client_sdk.copies._queue.batches import Piece, decode_rows, encode_rows, rows_of

Row = dict[str, Any]
# A stream key by its values.
Key = tuple[Any, ...]
# The numbers of a batch and of a piece in it.
Place = tuple[int, int]
# The ids of the store and the stream that row ids are of.
Origin = tuple[str, int]

_BATCH_NAMES = frozenset(column.name for column in BATCH_COLUMNS)
# An id that no row has.
NOWHERE = 1 << 62
# How the record of an edit that expects own rows has them, for SQL to find it.
_HAS_OWN = '"own":[-'


@dataclass(frozen=True, slots=True)
class Seen:
    """What a piece was made from: by place, the row of its key that was shown, or None.

    `own` are the ids of own rows that it expects, and that the store has not taken yet. Other ids
    are of the store and stream `origin`.
    """

    base: Sequence[Row | None]
    own: Sequence[int]
    origin: Origin

    def sealed(self) -> str:
        places = [place for place, row in enumerate(self.base) if row is not None]
        rows = encode_rows([row for row in self.base if row is not None])
        shown = {"base": rows, "count": len(self.base), "places": places}
        return seal({**shown, "origin": list(self.origin), "own": list(self.own)})

    @classmethod
    def unsealed(cls, content: Any) -> Seen | None:
        """Return what was sealed; None if there is nothing, or it can't be read any more."""
        record = unseal(content)
        if record is None:
            return None
        base = _no_rows(record["count"])
        rows = decode_rows(bytes.fromhex(record["base"]))
        for place, row in zip(record["places"], rows, strict=True):
            base[place] = row
        store_id, stream_id = record["origin"]
        return cls(base, record["own"], (store_id, stream_id))


# ---- tables of edits


def ids_of(table: pa.Table) -> list[int | None]:
    """Return the `_expected` of each row."""
    if EXPECTED not in table.column_names:
        return [None] * table.num_rows
    ids: list[int | None] = table.column(EXPECTED).to_pylist()
    return ids


def with_ids(table: pa.Table, ids: Sequence[int | None]) -> pa.Table:
    """Return a table with these ids as `_expected`."""
    array = pa.array(ids, pa.int64())
    if EXPECTED not in table.column_names:
        return table.append_column(EXPECTED, array)
    return table.set_column(table.column_names.index(EXPECTED), EXPECTED, array)


def own_ids(ids: Sequence[int | None]) -> list[int]:
    """Return those of the ids that are own rows'."""
    return sorted({id_ for id_ in ids if id_ is not None and id_ < NO_ROW})


def is_delete(table: pa.Table) -> list[bool]:
    if OP not in table.column_names:
        return [False] * table.num_rows
    return [op == DELETE for op in table.column(OP).to_pylist()]


def keys_of(table: pa.Table, stream: Stream) -> list[Key]:
    """Return the stream key of each row. Equal keys are equal."""
    columns = [table.column(name).to_pylist() for name in stream.key]
    return [tuple(map(_canonical, key)) for key in zip(*columns, strict=True)]


def _canonical(value: Any) -> Any:
    """Return a value of which NaN equals NaN, as in stream keys; -0.0 equals 0.0 anyway."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


# ---- which row was shown


def as_seen(
    connection: sqlite.Connection, stream: Stream, table: pa.Table
) -> tuple[pa.Table, Seen]:
    """Return edits that expect the rows of their keys which the copies of a file show, and these
    rows.

    Rows that have an `_expected` keep it. Raises ValueError if no copy says what was shown.
    """
    copies = _copies(connection, stream)
    # Imported here, because the rest of the SDK works without numpy.
    from client_sdk.copies._overlay.evaluate import key_digests

    columns = [table.column(name).combine_chunks() for name in stream.key]
    digests = key_digests(columns).tolist()
    ids, shown = ids_of(table), _no_rows(table.num_rows)
    for place, digest in enumerate(digests):
        if ids[place] is None:
            ids[place], shown[place] = _shown(connection, copies, digest)
    return with_ids(table, ids), Seen(shown, own_ids(ids), origin_of(connection, stream))


def origin_of(connection: sqlite.Connection, stream: Stream) -> Origin:
    """Return the store and the stream that row ids are of."""
    home = home_of(connection)
    return "" if home is None else home.store_id, stream.id


def _no_rows(count: int) -> list[Row | None]:
    return [None] * count


def _copies(connection: sqlite.Connection, stream: Stream) -> list[Shown]:
    """Return the copies that show rows of a stream, own ones too, by their keys."""
    if not stream.key:
        raise ValueError(f"stream {stream.name} has no key: no row of it replaces another")
    copies = [
        copy
        for copy in own_rows.showing(connection, stream.name)
        if copy.record.version is not None and copy.record.version.shape.keyed
    ]
    if not copies:
        raise ValueError(
            f"no copy of {stream.name} says which row was seen: keep one with edits=True and sync "
            "it, or give each row its _expected"
        )
    return copies


def _shown(
    connection: sqlite.Connection, copies: Sequence[Shown], digest: int
) -> tuple[int, Row | None]:
    """Return the id and the values of the row of a key that the copies show; -1 without one."""
    own = _own(connection, copies, digest)
    if own is not None:
        return own
    rows = [row for copy in copies if (row := _stored(connection, copy, digest)) is not None]
    # Copies may be of different positions. The oldest row is the safe one: if another is current,
    # the edit is refused.
    return min(rows, key=lambda row: row[0]) if rows else (NO_ROW, None)


def _own(
    connection: sqlite.Connection, copies: Sequence[Shown], digest: int
) -> tuple[int, Row | None] | None:
    """Return the newest own row of a key that waits, that is doubtful, or that the store has taken
    and a copy still lacks."""
    overlay = tables.overlay_table(copies[0].record.copy_id)
    row = connection.execute(
        "SELECT own.row_id, kind, payload, row_count, first_row, acknowledged_at, first_row_id "
        f"FROM {overlay} AS own JOIN _psoup_queue AS queue "
        "ON own.row_id >= first_row AND own.row_id < first_row + row_count "
        "WHERE own.key = ? AND refused IS NULL "
        "ORDER BY own.row_id DESC LIMIT 1",
        (digest,),
    ).fetchone()
    if row is None:
        return None
    row_id, *content, first_row, acknowledged_at, first_row_id = row
    is_taken = acknowledged_at is not None
    if is_taken and all(is_covered(copy.record, first_row) for copy in copies):
        return None
    place = row_id - first_row
    table = rows_of(Piece(*content)).slice(place, 1)
    if is_delete(table)[0]:
        return NO_ROW, None
    [values] = table.to_pylist()
    base = {name: value for name, value in values.items() if name not in _BATCH_NAMES}
    return (first_row_id + place if is_taken else row_id), base


def _stored(
    connection: sqlite.Connection, copy: Shown, digest: int
) -> tuple[int, Row | None] | None:
    """Return the row of a key that a copy has from the store."""
    version = copy.record.version
    assert version is not None
    shape = version.shape
    # The digest of the key is in the last column.
    *names, key = tables.value_names(shape.stored)
    row = connection.execute(
        f"SELECT {', '.join(['row_id', *names])} FROM {version.table} WHERE {key} = ? "
        "ORDER BY row_id DESC LIMIT 1",
        (digest,),
    ).fetchone()
    if row is None:
        return None
    row_id, *stored = row
    values = zip(shape.columns, stored, strict=True)
    return row_id, {
        column.name: tables.restored([value], column)[0].as_py() for column, value in values
    }


# ---- own rows that get another id


def take(connection: sqlite.Connection, place: Place, first_row_id: int) -> None:
    """Let edits that were made from rows of a piece expect the ids that the store gave these."""
    row = connection.execute(
        "SELECT stream, first_row, row_count FROM _psoup_queue WHERE batch = ? AND piece = ?", place
    ).fetchone()
    stream = None if row is None else cached_stream(connection, row[0])
    if stream is not None:
        _, first_row, count = row
        origin = origin_of(connection, stream)
        settle(connection, first_row, count, lambda id_: id_ - first_row + first_row_id, origin)


def settle(
    connection: sqlite.Connection,
    first_row: int,
    count: int,
    moved: Callable[[int], int],
    origin: Origin | None = None,
) -> None:
    """Let edits that expect one of `count` own rows from `first_row` on expect the row `moved`
    returns for it. That is of the store and stream `origin`, unless it is None."""
    dependants = connection.execute(
        "SELECT batch, piece, stream, kind, payload, row_count, seen FROM _psoup_queue "
        "WHERE seen IS NOT NULL AND acknowledged_at IS NULL AND instr(seen, ?)",
        (_HAS_OWN,),
    ).fetchall()
    rows = range(first_row, first_row + count)
    for batch, number, stream, *content, sealed in dependants:
        seen = Seen.unsealed(sealed)
        if seen is None or not any(id_ in rows for id_ in seen.own):
            continue
        table = rows_of(Piece(*content))
        ids = ids_of(table)
        if origin is not None:
            ids, seen = _of_origin(ids, seen, origin)
        ids = [moved(id_) if id_ is not None and id_ in rows else id_ for id_ in ids]
        _rewrite(connection, (batch, number), stream, with_ids(table, ids), seen)


def _rewrite(
    connection: sqlite.Connection, place: Place, stream: str, table: pa.Table, seen: Seen
) -> None:
    """Put edits that expect other rows in the place of a piece's, which was not sent."""
    piece, noted = Piece.of_table(table), replace(seen, own=own_ids(ids_of(table)))
    connection.execute(
        "UPDATE _psoup_queue SET payload = ?, checksum = ?, seen = ? WHERE batch = ? AND piece = ?",
        (piece.payload, piece.checksum(stream), noted.sealed(), *place),
    )


def void(connection: sqlite.Connection, place: Place, stream: str, origin: Origin) -> bool:
    """Let a piece that was made from rows of another store, or of a stream that was dropped since,
    expect a row that does not exist: the ids mean nothing here. Return False if it was not."""
    row = connection.execute(
        "SELECT kind, payload, row_count, seen FROM _psoup_queue WHERE batch = ? AND piece = ?",
        place,
    ).fetchone()
    seen = None if row is None else Seen.unsealed(row[-1])
    if seen is None or seen.origin == origin:
        return False
    table = rows_of(Piece(*row[:-1]))
    ids, seen = _of_origin(ids_of(table), seen, origin)
    _rewrite(connection, place, stream, with_ids(table, ids), seen)
    return True


def _of_origin(ids: list[int | None], seen: Seen, origin: Origin) -> tuple[list[int | None], Seen]:
    """Return the ids without those of another store or stream, if the piece is from there."""
    if seen.origin == origin:
        return ids, seen
    here = [NOWHERE if id_ is not None and id_ > NO_ROW else id_ for id_ in ids]
    return here, replace(seen, origin=origin)


def unsettled(piece: Piece) -> int | None:
    """Return an own row that a piece expects, and that the store has not taken; None without."""
    own = own_ids(ids_of(rows_of(piece)))
    return own[0] if own else None


def batch_of(connection: sqlite.Connection, own_row: int) -> int | None:
    """Return the batch that an own row is in; None if it is gone."""
    row = connection.execute(
        "SELECT batch FROM _psoup_queue WHERE first_row <= ? AND ? < first_row + row_count",
        (own_row, own_row),
    ).fetchone()
    return None if row is None else int(row[0])
