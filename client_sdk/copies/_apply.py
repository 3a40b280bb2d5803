"""Putting what came into the file: one transaction for each resume token and each end."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from client_sdk._exceptions import PsoupError
from client_sdk.copies import _shelf, _tables
from client_sdk.copies._checksum import Checksums, StoredRow, signed
from client_sdk.copies._file import CopyFile
from client_sdk.copies._receive import Inbox
from client_sdk.copies._records import Shape, Stage, Version
from client_sdk.copies._repair import Repair
from client_sdk.copies._shelf import Record
from psoup.v1 import psoup_pb2 as pb

Basis = tuple[bytes, bytes]


class Overtaken(PsoupError):
    """The copy is another than when this transfer began: someone else synced, kept or forgot."""

    code = "ABORTED"


class Mismatch(PsoupError):
    """What came does not come to the count and digest that were told. The copy is as it was."""

    code = "DATA_LOSS"


def stage(
    file: CopyFile, copy_id: int, basis: Basis, inbox: Inbox, resume: bytes, repair: Repair
) -> Basis:
    """Keeps what came, with the token that goes on from there. Gives the new basis.

    Raises Overtaken.
    """
    with file.writing() as connection:
        record = _expected(connection, copy_id, basis)
        staged = _begun(connection, record, inbox, repair)
        _put(connection, record, inbox)
        following = replace(staged, resume=resume)
        _shelf.put_versions(connection, copy_id, record.version, record.following, following)
        return replace(record, stage=following).basis


def finish(
    file: CopyFile,
    copy_id: int,
    basis: Basis,
    inbox: Inbox,
    end: pb.SyncEnd,
    repair: Repair,
    hidden: bool,
) -> Basis:
    """Makes a version of it: the one that is seen or, where `hidden`, the one that follows.

    Raises Overtaken or Mismatch.
    """
    with file.writing() as connection:
        record = _expected(connection, copy_id, basis)
        staged = _begun(connection, record, inbox, repair)
        if not staged.begun:
            raise Mismatch(f"{record.name}: a transfer ended that had not begun")
        before = None if staged.shape else record.base
        shape = staged.shape or _shape(record)
        version = Version.from_wire(end, shape, before, record.declaration.base_rows)
        _check_staged(connection, copy_id, shape)
        if staged.shape is not None:
            _put(connection, record, inbox)
            table = _tables.name_of(_tables.STAGED, copy_id)
        else:
            table = _changed(connection, record, inbox, repair, hidden)
        _tables.expire(connection, table, version.now)
        if not _tables.is_sound(connection, table, version):
            raise Mismatch(f"{record.name}: count and digest are not those that were told")
        kind = _tables.NEXT if hidden else _tables.ROWS
        if table != _tables.name_of(kind, copy_id):
            _tables.rename(connection, table, _tables.name_of(kind, copy_id))
        _tidy(connection, copy_id, hidden)
        seen, following = (record.version, version) if hidden else (version, None)
        _shelf.put_versions(connection, copy_id, seen, following, None)
        if not hidden:
            _shelf.put_shown(connection, copy_id, None)
        return version.token, b""


def promote(file: CopyFile, copy_ids: Sequence[int]) -> None:
    """The versions that follow are seen, all at once."""
    with file.writing() as connection:
        for copy_id in copy_ids:
            record = _shelf.by_id(connection, copy_id)
            if record is None or record.following is None:
                continue
            rows, following = (
                _tables.name_of(kind, copy_id) for kind in (_tables.ROWS, _tables.NEXT)
            )
            _tables.rename(connection, following, rows)
            _shelf.put_versions(connection, copy_id, record.following, None, record.stage)
            _shelf.put_shown(connection, copy_id, None)


def drop_stage(connection: sqlite3.Connection, record: Record) -> None:
    _clear(connection, record.copy_id)
    _shelf.put_versions(connection, record.copy_id, record.version, record.following, None)


# ---- the steps


def _expected(connection: sqlite3.Connection, copy_id: int, basis: Basis) -> Record:
    record = _shelf.by_id(connection, copy_id)
    if record is None:
        raise Overtaken("the copy was forgotten, or kept anew, while it was synced")
    if record.basis != basis:
        raise Overtaken(f"{record.name} was synced by someone else meanwhile")
    return record


def _shape(record: Record) -> Shape:
    if record.base is None:
        raise Overtaken(f"{record.name}: changes came for a copy that is not there")
    return record.base.shape


def _begun(connection: sqlite3.Connection, record: Record, inbox: Inbox, repair: Repair) -> Stage:
    """The stage that what came belongs to; a new one where it begins."""
    begin, stage = inbox.begin, record.stage
    if begin is None:
        return stage or Stage(b"", False, None, "", repair.mark)
    whole = begin.mode == pb.SYNC_MODE_WHOLE
    if begin.continued:
        if stage is None or not stage.begun or (stage.shape is not None) != whole:
            raise Mismatch(f"{record.name}: a transfer was continued that is not staged")
        return stage
    _clear(connection, record.copy_id)
    shape = Shape.from_wire(begin) if whole else None
    columns = (shape or _shape(record)).columns
    _tables.create(connection, _tables.name_of(_tables.STAGED, record.copy_id), columns)
    return Stage(b"", True, shape, reason_name(begin.reason), repair.mark)


def reason_name(reason: pb.SyncReason) -> str:
    name = pb.SyncReason.Name(reason).removeprefix("SYNC_REASON_")
    return "" if name == "UNSPECIFIED" else name


def _put(connection: sqlite3.Connection, record: Record, inbox: Inbox) -> None:
    copy_id = record.copy_id
    if not (inbox.rows or inbox.removed or inbox.endings):
        return
    _tables.put(connection, _tables.name_of(_tables.STAGED, copy_id), inbox.rows)
    _tables.put(
        connection, _tables.name_of(_tables.STAGED, copy_id), _ended(connection, record, inbox)
    )
    connection.executemany(
        "INSERT OR IGNORE INTO _psoup_removed VALUES (?, ?)",
        ((copy_id, row_id) for row_id in inbox.removed),
    )


def _ended(connection: sqlite3.Connection, record: Record, inbox: Inbox) -> list[StoredRow]:
    """Rows of the copy that end sooner, as they are then."""
    untils = dict(inbox.endings)
    if not untils:
        return []
    found: list[StoredRow] = []
    sums = Checksums(_shape(record).columns)
    for row in _tables.rows_of(connection, record.base_table, list(untils)):
        row_id, begin, _, key, _, *values = row
        ended = (row_id, begin, untils[row_id], key, 0, *values)
        found.append((*ended[:4], signed(sums.of([ended])[0]), *values))
    return found


def _check_staged(connection: sqlite3.Connection, copy_id: int, shape: Shape) -> None:
    """What an earlier call left is as it was left."""
    if _tables.damaged(connection, _tables.name_of(_tables.STAGED, copy_id), shape.columns):
        raise Mismatch("rows that were staged are damaged")


def _changed(
    connection: sqlite3.Connection, record: Record, inbox: Inbox, repair: Repair, hidden: bool
) -> str:
    """The copy with all changes, in a table of its own where it is not to be seen."""
    table = record.base_table
    if hidden and record.following is None:
        table = _tables.name_of(_tables.NEXT, record.copy_id)
        _tables.create(connection, table, _shape(record).columns)
        _tables.pour(connection, record.base_table, table)
    gone = "SELECT row_id FROM _psoup_removed WHERE copy_id = ?"
    connection.execute(f"DELETE FROM {table} WHERE row_id IN ({gone})", (record.copy_id,))
    _tables.remove(connection, table, inbox.removed)
    _tables.remove(connection, table, repair.damaged)
    _tables.pour(connection, _tables.name_of(_tables.STAGED, record.copy_id), table)
    _tables.put(connection, table, _ended(connection, record, inbox))
    _tables.put(connection, table, inbox.rows)
    return table


def _clear(connection: sqlite3.Connection, copy_id: int) -> None:
    connection.execute(f"DROP TABLE IF EXISTS {_tables.name_of(_tables.STAGED, copy_id)}")
    connection.execute("DELETE FROM _psoup_removed WHERE copy_id = ?", (copy_id,))


def _tidy(connection: sqlite3.Connection, copy_id: int, hidden: bool) -> None:
    _clear(connection, copy_id)
    if not hidden:
        connection.execute(f"DROP TABLE IF EXISTS {_tables.name_of(_tables.NEXT, copy_id)}")
