"""A transfer: the parts of a Sync, checked as they come and put into the file in transactions.

There is one transaction for each resume token, which stages what came, and one for each end.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from client_sdk._exceptions import PsoupError, ServerError
from client_sdk._wire.values import Column, from_value, schema_of
from client_sdk.copies._file import catalog, tables
from client_sdk.copies._file.catalog import Record
from client_sdk.copies._file.checksums import NO_ROWS, Checksums, StoredRow, signed
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.records import Shape, Stage, Version
from client_sdk.copies._file.tables import Changes, stored
from client_sdk.copies._sync.verify import Repair
from psoup.v1 import psoup_pb2 as pb

Basis = tuple[bytes, bytes]


class Overtaken(PsoupError):
    """The copy is another than when this transfer began: someone else synced, kept or forgot it."""

    code = "ABORTED"


class Mismatch(PsoupError):
    """The rows do not come to the count and digest that were told. The copy is as it was."""

    code = "DATA_LOSS"


def stage(
    file: CopyFile, copy_id: int, basis: Basis, inbox: Inbox, resume: bytes, repair: Repair
) -> Basis:
    """Keeps what came, with the token that goes on from there; gives the new basis. Raises
    Overtaken.
    """
    with file.writing() as connection:
        record = _expected(connection, copy_id, basis)
        staged = _begun(connection, record, inbox, repair)
        if staged.begun:
            staged = _put(connection, record, staged, inbox)
        staged = replace(staged, resume=resume)
        catalog.put_versions(connection, copy_id, record.version, record.following, staged)
        return replace(record, stage=staged).basis


def finish(
    file: CopyFile,
    copy_id: int,
    basis: Basis,
    inbox: Inbox,
    end: pb.SyncEnd,
    repair: Repair,
    hidden: bool,
) -> Basis:
    """Makes a version of what came: the one that is seen or, where `hidden`, the one that follows.

    Count and digest must be those that were told. They follow from those before and what changed;
    of a whole answer, and of one that is repaired, they are computed from all rows. Raises
    Overtaken or Mismatch.
    """
    with file.writing() as connection:
        record = _expected(connection, copy_id, basis)
        staged = _begun(connection, record, inbox, repair)
        if not staged.begun:
            raise Mismatch(f"{record.name}: a transfer ended that had not begun")
        _check_staged(connection, record, staged)
        before = None if staged.shape is not None else _base(record)
        if before is None:
            table = _put(connection, record, staged, inbox).table
        else:
            table = _table_to_change(connection, record, hidden)
        shape = staged.shape or _base(record).shape
        version = Version.from_wire(end, table, shape, before, record.declaration.base_rows)
        sums = NO_ROWS if before is None else before.sums
        changes = Changes(connection, table, shape, sums)
        if before is not None:
            _change(connection, record, staged, inbox, repair, changes)
        changes.expire(version.now)
        all_read = before is None or repair.needed
        after = tables.sums_of(connection, table, shape) if all_read else changes.sums
        if after != version.sums or tables.count_of(connection, table) != version.row_count:
            raise Mismatch(f"{record.name}: count and digest are not those that were told")
        seen, following = (record.version, version) if hidden else (version, None)
        _put_versions(connection, record, seen, following)
        return version.token, b""


def promote(file: CopyFile, copy_ids: Sequence[int]) -> None:
    """Makes the versions that follow those that are seen, all at once."""
    with file.writing() as connection:
        for copy_id in copy_ids:
            record = catalog.by_id(connection, copy_id)
            if record is not None and record.following is not None:
                _put_versions(connection, record, record.following, None)


def drop_stage(connection: sqlite3.Connection, record: Record) -> None:
    _put_versions(connection, record, record.version, record.following)


def forget_answer(connection: sqlite3.Connection, record: Record) -> None:
    """Makes a copy one that has never been synced."""
    _put_versions(connection, record, None, None)
    connection.execute("DELETE FROM _psoup_computed WHERE copy_id = ?", (record.copy_id,))


def _put_versions(
    connection: sqlite3.Connection, record: Record, seen: Version | None, following: Version | None
) -> None:
    """Keeps these versions and nothing staged, and drops the tables that are not in use.

    Where another version is seen than before, its NOW begins anew.
    """
    copy_id = record.copy_id
    catalog.put_versions(connection, copy_id, seen, following, None)
    if seen is not record.version:
        catalog.put_shown(connection, copy_id, None)
    connection.execute("DELETE FROM _psoup_removed WHERE copy_id = ?", (copy_id,))
    kept = [version.table for version in (seen, following) if version is not None]
    tables.drop_but(connection, copy_id, kept)


# ---- the steps


def _expected(connection: sqlite3.Connection, copy_id: int, basis: Basis) -> Record:
    record = catalog.by_id(connection, copy_id)
    if record is None:
        raise Overtaken("the copy was forgotten, or kept anew, while it was synced")
    if record.basis != basis:
        raise Overtaken(f"{record.name} was synced by someone else meanwhile")
    return record


def _base(record: Record) -> Version:
    if record.base is None:
        raise Overtaken(f"{record.name}: changes came for a copy that is not there")
    return record.base


def _begun(connection: sqlite3.Connection, record: Record, inbox: Inbox, repair: Repair) -> Stage:
    """Gives the stage that what came belongs to; a new one where it begins."""
    begin, stage = inbox.begin, record.stage
    if begin is None:
        return stage or Stage(b"", "", False, None, "", repair.mark)
    whole = begin.mode == pb.SYNC_MODE_WHOLE
    if begin.continued:
        if stage is None or not stage.begun or (stage.shape is not None) != whole:
            raise Mismatch(f"{record.name}: a transfer was continued that is not staged")
        return stage
    if stage is not None:
        drop_stage(connection, record)
    shape = Shape.from_wire(begin) if whole else None
    return Stage(b"", "", True, shape, reason_name(begin.reason), repair.mark)


def reason_name(reason: pb.SyncReason) -> str:
    name = pb.SyncReason.Name(reason).removeprefix("SYNC_REASON_")
    return "" if name == "UNSPECIFIED" else name


def _put(connection: sqlite3.Connection, record: Record, staged: Stage, inbox: Inbox) -> Stage:
    """Stages rows, and the ids of rows that are removed."""
    copy_id, shape = record.copy_id, staged.shape or _base(record).shape
    table = staged.table or tables.new(connection, copy_id, shape.columns)
    tables.put(connection, table, inbox.rows)
    connection.executemany(
        "INSERT OR IGNORE INTO _psoup_removed VALUES (?, ?)",
        ((copy_id, row_id) for row_id in inbox.removed),
    )
    return replace(staged, table=table)


def _check_staged(connection: sqlite3.Connection, record: Record, staged: Stage) -> None:
    """Raises Mismatch where a row that was staged is not as it was left."""
    columns = (staged.shape or _base(record).shape).columns
    if staged.table and tables.damaged(connection, staged.table, columns):
        raise Mismatch(f"{record.name}: rows that were staged are damaged")


def _table_to_change(connection: sqlite3.Connection, record: Record, hidden: bool) -> str:
    """Gives the copy's table; a copy of it where the changes are not to be seen yet."""
    base = _base(record)
    if not hidden or record.following is not None:
        return base.table
    table = tables.new(connection, record.copy_id, base.shape.columns)
    tables.copy_rows(connection, base.table, table)
    return table


def _change(
    connection: sqlite3.Connection,
    record: Record,
    staged: Stage,
    inbox: Inbox,
    repair: Repair,
    changes: Changes,
) -> None:
    """Applies what was staged and what came since. Damaged rows go, unless they came again."""
    changes.remove_all("SELECT row_id FROM _psoup_removed WHERE copy_id = ?", record.copy_id)
    changes.remove([*inbox.removed, *repair.damaged])
    if staged.table:
        changes.put_all(staged.table)
    changes.put(inbox.rows)


# A call that failed with it may be made again.
GARBLED = "ABORTED"


@dataclass
class Inbox:
    """An inbox has what came since the last transaction: at most what is between two resume
    tokens.
    """

    begin: pb.SyncBegin | None = None
    removed: list[int] = field(default_factory=list)
    rows: list[StoredRow] = field(default_factory=list)


def typed_rows(rows: Sequence[pb.SyncRow], columns: Sequence[Column]) -> list[StoredRow]:
    """Makes rows of messages.

    Raises ServerError with the code GARBLED where a row is not what its checksum says.
    """
    values = [[from_value(value) for value in row.values] for row in rows]
    if any(len(row) != len(columns) for row in values):
        raise ServerError("a row came with other columns than were told", code=GARBLED)
    names = [column.name for column in columns]
    with _values_that_fit():
        made = [dict(zip(names, row, strict=True)) for row in values]
        batch = pa.RecordBatch.from_pylist(made, schema=schema_of(tuple(columns)))
    heads = [
        (
            row.row_id,
            row.visible_from if row.HasField("visible_from") else None,
            row.visible_until if row.HasField("visible_until") else None,
            row.sort_key,
            signed(row.checksum),
        )
        for row in rows
    ]
    return _checked(list(zip(*heads, strict=True)), batch, columns) if heads else []


def arrow_rows(content: bytes, columns: Sequence[Column]) -> list[StoredRow]:
    """Makes rows of an Arrow IPC stream. Raises ServerError as `typed_rows` does."""
    with _values_that_fit():
        table = pa.ipc.open_stream(content).read_all().combine_chunks()
        ids, begins, ends, checksums, keys = (table.column(name) for name in _HEAD)
        heads = [
            ids.to_pylist(),
            begins.cast(pa.int64()).to_pylist(),
            ends.cast(pa.int64()).to_pylist(),
            keys.to_pylist(),
            [signed(checksum) for checksum in checksums.to_pylist()],
        ]
        rows = table.select(range(len(_HEAD), table.num_columns))
        rows = rows.cast(schema_of(tuple(columns)))
    return _checked(heads, rows, columns)


_HEAD = ("_row_id", "_visible_from", "_visible_until", "_checksum", "_sort_key")


def _checked(
    heads: Sequence[Sequence[Any]], rows: Any, columns: Sequence[Column]
) -> list[StoredRow]:
    values = [
        stored(_one(array), column) for array, column in zip(rows.columns, columns, strict=True)
    ]
    made: list[StoredRow] = list(zip(*heads, *values, strict=True))
    wrong = Checksums(columns).wrong(made)
    if wrong:
        raise ServerError(f"row {wrong[0]} came with a wrong checksum", code=GARBLED)
    return made


def _one(array: Any) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


@contextlib.contextmanager
def _values_that_fit() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise ServerError(f"rows came that can't be read: {error}", code=GARBLED) from error


def ids_of(ids: pb.Ids) -> list[int]:
    found: list[int] = []
    place = 0
    for skip, take in zip(ids.runs[::2], ids.runs[1::2], strict=True):
        found.extend(range(place + skip, place + skip + take))
        place += skip + take
    return found
