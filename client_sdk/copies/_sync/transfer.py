"""A transfer: the parts of a Sync, checked as they come and put into the file in transactions.

There is one transaction for each resume token, which stages what came, and one for each end.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from client_sdk._exceptions import PsoupError
from client_sdk.copies._changes.told import RESETS, Move, WrongRows, follow, note_ended, seen_at
from client_sdk.copies._file import catalog, tables
from client_sdk.copies._file.catalog import Record
from client_sdk.copies._file.checksums import NO_ROWS, StoredRow
from client_sdk.copies._file.clock import DeviceClock, Offset
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.records import Shape, Stage, Version
from client_sdk.copies._file.tables import Changes
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
    """Keep what came, with the token that goes on from there; return the new basis. Raises
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


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a transfer, and what it is to become: the version that is seen or, if
    `hidden`, the one that follows. `now` is the store's by the client's clock and its `offset`, in
    microseconds.
    """

    end: pb.SyncEnd
    repair: Repair
    hidden: bool
    offset: Offset | None
    now: int


def finish(file: CopyFile, copy_id: int, basis: Basis, inbox: Inbox, ending: Ending) -> Basis:
    """Make a version of what came, and tells what that changes.

    Count and digest must be those that were told. They follow from those before and what changed;
    of a whole answer, and of one that is repaired, they are computed from all rows. Raises
    Overtaken or Mismatch.
    """
    repair, hidden = ending.repair, ending.hidden
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
        reason = staged.reason or WHOLE_FOR_NO_REASON if before is None else _kept_reason(record)
        base_rows = record.declaration.base_rows
        version = Version.from_wire(
            ending.end, table, shape, before, base_rows, reason, ending.offset
        )
        sums = NO_ROWS if before is None else before.sums
        changes = Changes(connection, table, shape, sums)
        if before is not None:
            _change(connection, record, staged, inbox, repair, changes)
        changes.expire(version.now)
        all_read = before is None or repair.needed
        after = tables.sums_of(connection, table, shape) if all_read else changes.sums
        if after != version.sums or tables.count_of(connection, table) != version.row_count:
            raise Mismatch(f"{record.name}: count and digest are not those that were told")
        _note_ended(connection, record, inbox)
        if hidden:
            _put_versions(connection, record, record.version, version)
        else:
            _see(connection, record, version, ending.now, None if all_read else changes.touched)
        return version.token, b""


def _see(
    connection: sqlite3.Connection,
    record: Record,
    version: Version,
    now: int,
    touched: Collection[int] | None,
) -> None:
    """Make a version the one that is seen, and tells what changed: of the rows `touched` and by
    time, or with None of all. Raises Mismatch if rows are damaged.
    """
    try:
        follow(connection, record, Move(version, seen_at(version, now), touched))
    except WrongRows:
        raise Mismatch(f"{record.name}: rows are damaged") from None
    _put_versions(connection, record, replace(version, reason=""), None)


def promote(file: CopyFile, copy_ids: Sequence[int], clock: DeviceClock) -> None:
    """Make the versions that follow those that are seen, all at once. Raises Mismatch if rows
    of one are damaged.
    """
    with file.writing() as connection:
        for copy_id in copy_ids:
            record = catalog.by_id(connection, copy_id)
            if record is not None and record.following is not None:
                now = clock.now(record.following.offset)
                _see(connection, record, record.following, now, None)


def drop_stage(connection: sqlite3.Connection, record: Record) -> None:
    _put_versions(connection, record, record.version, record.following)


def forget_answer(connection: sqlite3.Connection, record: Record) -> None:
    """Make a copy one that has never been synced."""
    _put_versions(connection, record, None, None)
    connection.execute("DELETE FROM _psoup_computed WHERE copy_id = ?", (record.copy_id,))


def _put_versions(
    connection: sqlite3.Connection, record: Record, seen: Version | None, following: Version | None
) -> None:
    """Keep these versions and nothing staged, and drops the tables that are not in use.

    If another version is seen than before, its NOW begins again.
    """
    copy_id = record.copy_id
    catalog.put_versions(connection, copy_id, seen, following, None)
    if seen is not record.version:
        catalog.put_shown(connection, copy_id, None)
    connection.execute("DELETE FROM _psoup_removed WHERE copy_id = ?", (copy_id,))
    kept = [version.table for version in (seen, following) if version is not None]
    tables.drop_but(connection, copy_id, kept)


# ---- the steps

# Why a whole answer came, where the server did not say.
WHOLE_FOR_NO_REASON = "UNSPECIFIED"


def _kept_reason(record: Record) -> str:
    """Return the reason of a whole answer that is not seen yet, and is changed before it is."""
    return record.following.reason if record.following is not None else ""


def _note_ended(connection: sqlite3.Connection, record: Record, inbox: Inbox) -> None:
    if record.declaration.changes:
        note_ended(connection, record.copy_id, inbox.ended)


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
    """Return the stage that what came belongs to; a new one where it begins."""
    begin, stage = inbox.begin, record.stage
    if begin is None:
        return stage or Stage(b"", "", False, None, "", repair.mark)
    whole = begin.mode == pb.SYNC_MODE_WHOLE
    if begin.continued:
        if stage is None or not stage.begun or (stage.shape is not None) != whole:
            raise Mismatch(f"{record.name}: a transfer was continued that is not staged")
        return stage
    reason = reason_name(begin.reason)
    if stage is not None:
        drop_stage(connection, record)
        # The copy is still what the answer that was staged was to replace.
        reason = stage.reason if stage.reason in RESETS else reason
    shape = Shape.from_wire(begin) if whole else None
    return Stage(b"", "", True, shape, reason, repair.mark)


def reason_name(reason: pb.SyncReason) -> str:
    """Name a reason; a newer server may have some that are not known here."""
    if reason not in pb.SyncReason.values():
        return f"REASON_{reason}"
    name = pb.SyncReason.Name(reason).removeprefix("SYNC_REASON_")
    return "" if name == "UNSPECIFIED" else name


def _put(connection: sqlite3.Connection, record: Record, staged: Stage, inbox: Inbox) -> Stage:
    """Stage rows, and the ids of rows that are removed."""
    copy_id, shape = record.copy_id, staged.shape or _base(record).shape
    table = staged.table or tables.new(connection, copy_id, shape.stored)
    tables.put(connection, table, inbox.rows)
    connection.executemany(
        "INSERT OR IGNORE INTO _psoup_removed VALUES (?, ?)",
        ((copy_id, row_id) for row_id in inbox.removed),
    )
    _note_ended(connection, record, inbox)
    return replace(staged, table=table)


def _check_staged(connection: sqlite3.Connection, record: Record, staged: Stage) -> None:
    """Raise Mismatch if a row that was staged is not as it was left."""
    columns = (staged.shape or _base(record).shape).stored
    if staged.table and tables.damaged(connection, staged.table, columns):
        raise Mismatch(f"{record.name}: rows that were staged are damaged")


def _table_to_change(connection: sqlite3.Connection, record: Record, hidden: bool) -> str:
    """Return the copy's table; a copy of it if the changes are not to be seen yet."""
    base = _base(record)
    if not hidden or record.following is not None:
        return base.table
    table = tables.new(connection, record.copy_id, base.shape.stored)
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
    """Apply what was staged and what came since. Damaged rows go, unless they came again."""
    changes.remove_all("SELECT row_id FROM _psoup_removed WHERE copy_id = ?", record.copy_id)
    changes.remove([*inbox.removed, *repair.damaged])
    if staged.table:
        changes.put_all(staged.table)
    changes.put(inbox.rows)


@dataclass
class Inbox:
    """An inbox has what came since the last transaction: at most what is between two resume
    tokens. `ended` are ids of `removed`.
    """

    begin: pb.SyncBegin | None = None
    removed: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    rows: list[StoredRow] = field(default_factory=list)
