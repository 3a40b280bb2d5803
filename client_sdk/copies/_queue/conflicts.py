"""Conflicts: edits that the store refused because another row of their key is current.

What waits for a key of a conflict is put aside with it, as BEHIND: it was made from a row that is
not in the store. `resolve` and `take_theirs` queue it again. Then it becomes a conflict by itself:
its editor has not seen what was decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from client_sdk._wire.rows import EXPECTED, Rows, to_table
from client_sdk.copies._file import sqlite
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.home import cached_stream
from client_sdk.copies._file.records import unseal
from client_sdk.copies._queue.aside import delete_piece, requeue_behind
from client_sdk.copies._queue.batches import (
    ARROW,
    Piece,
    Rejected,
    Room,
    decode_rows,
    require_room,
    rows_of,
)
from client_sdk.copies._queue.expected import (
    Key,
    Row,
    Seen,
    as_seen,
    ids_of,
    keys_of,
    origin_of,
    own_ids,
    with_ids,
)
from client_sdk.copies._queue.table import FIELDS, REFUSED, Place, insert_batch

CONFLICT = "CONFLICT_ROW"


@dataclass(frozen=True, slots=True)
class EditConflict(Rejected):
    """An edit that would have replaced a row that its editor has not seen.

    `mine` is the edit as it was queued, `base` the row that it was made from, as the copy showed
    it, and `theirs` the row that is there instead, with its `row_id` and `ts`. `base` is None if
    there was no row, or it is not known. `theirs` is None if the row was deleted, if you may not
    see it, or if it is large; `theirs_id` is its id, -1 if it was deleted, None if you may not see
    it.

    If the batch has several rows, all were refused because of the one at place `row`.
    """

    row: int
    mine: Row
    base: Row | None
    theirs: Row | None
    theirs_id: int | None


@dataclass(frozen=True, slots=True)
class _Aside:
    """A piece that was put aside, and why. `record` is its row in the queue."""

    record: Sequence[Any]
    seen: Seen | None
    why: Mapping[str, Any]

    @property
    def place(self) -> Place:
        return self.record[0], self.record[1]

    @property
    def stream(self) -> str:
        return str(self.record[2])

    @property
    def piece(self) -> Piece:
        return Piece(*self.record[3:6])

    @property
    def is_conflict(self) -> bool:
        return self.why.get("reason") == CONFLICT and "theirs" in self.why

    @property
    def theirs(self) -> Row | None:
        rows = list(decode_rows(bytes.fromhex(self.why["theirs"])))
        return rows[0] if rows else None

    @property
    def conflict(self) -> EditConflict:
        rejected, row = Rejected.from_row(self.record), self.why["row"]
        [mine] = rows_of(self.piece).slice(row, 1).to_pylist()
        mine.pop(EXPECTED, None)
        plain: dict[str, Any] = {
            field.name: getattr(rejected, field.name) for field in fields(Rejected)
        }
        return EditConflict(
            **plain,
            row=row,
            mine=mine,
            base=None if self.seen is None else self.seen.base[row],
            theirs=self.theirs,
            theirs_id=self.why["theirs_id"],
        )


def conflicts(file: CopyFile) -> list[EditConflict]:
    """Return all conflicts of a file, in the order of their batches."""
    with file.reading() as connection:
        return [aside.conflict for aside in _asides(connection) if aside.is_conflict]


def _asides(connection: sqlite.Connection) -> list[_Aside]:
    """Return the pieces of rows that were refused, in their order."""
    rows = connection.execute(
        f"SELECT seen, refused, {FIELDS} FROM _psoup_queue "
        f"WHERE {REFUSED} AND kind = ? ORDER BY batch, piece",
        (ARROW,),
    ).fetchall()
    return [
        _Aside(record, Seen.unsealed(seen), unseal(refused) or {})
        for seen, refused, *record in rows
    ]


def _conflict_of(connection: sqlite.Connection, batch: int) -> _Aside:
    """Return the conflict of a batch. Raises ValueError if it has none."""
    asides = {aside.place[0]: aside for aside in _asides(connection) if aside.is_conflict}
    if batch not in asides:
        numbers = ", ".join(map(str, asides)) or "none"
        raise ValueError(f"batch {batch} is no conflict; those that are: {numbers}")
    return asides[batch]


def resolve(connection: sqlite.Connection, batch: int, rows: Rows, room: Room) -> int:
    """Queue rows in the place of a conflict, then what waits behind it; return the number of the
    new batch.

    The edit of the key in conflict expects the row that is there, as the refusal showed it. Edits
    of other keys of the batch expect what they did, and rows with an `_expected` that. Raises
    ValueError, RowProblem, LimitExceeded.
    """
    aside = _conflict_of(connection, batch)
    stream = cached_stream(connection, aside.stream)
    if stream is None:
        raise ValueError(f"the columns of {aside.stream} are not known: learn it first")
    before, table = rows_of(aside.piece), to_table(rows, stream)
    old_keys, keys = keys_of(before, stream), keys_of(table, stream)
    ids: dict[Key, int | None] = dict(zip(old_keys, ids_of(before), strict=True))
    bases = dict(zip(old_keys, aside.seen.base, strict=True)) if aside.seen else {}
    key, theirs_id = old_keys[aside.why["row"]], aside.why["theirs_id"]
    if theirs_id is None and key in keys:
        # The refusal did not show the row. What a copy shows by now was seen.
        shown, seen = as_seen(connection, stream, table)
        theirs_id, bases[key] = ids_of(shown)[keys.index(key)], seen.base[keys.index(key)]
    else:
        bases[key] = aside.theirs
    ids[key] = theirs_id
    # A row with an `_expected` of its own keeps it.
    expected = [
        ids.get(key) if own is None else own for key, own in zip(keys, ids_of(table), strict=True)
    ]
    piece = Piece.of_table(with_ids(table, expected))
    require_room([piece], room)
    origin = origin_of(connection, stream)
    seen = Seen([bases.get(key) for key in keys], own_ids(expected), origin)
    number = insert_batch(connection, aside.stream, [piece], seen.sealed())
    _leave(connection, aside)
    return number


def take_theirs(connection: sqlite.Connection, batch: int) -> None:
    """Drop the edits of a conflict, and queue again what waits behind it. Raises ValueError."""
    _leave(connection, _conflict_of(connection, batch))


def _leave(connection: sqlite.Connection, aside: _Aside) -> None:
    """Delete a conflict, and queue again what waits behind it."""
    delete_piece(connection, aside.place)
    requeue_behind(connection, [aside.place])
