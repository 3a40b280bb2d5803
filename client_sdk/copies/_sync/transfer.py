"""A transfer: the parts of a Sync, checked as they are received, and written in transactions.

There is one transaction for each resume token, which stages the rows so far, and one for each end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from client_sdk._exceptions import PsoupError
from client_sdk.copies._changes.reported import (
    NO_COPY,
    RESETS,
    Move,
    WrongRows,
    follow,
    note_ended,
    visible_now,
)
from client_sdk.copies._changes.tagging import Why
from client_sdk.copies._file import catalog, sqlite, tables
from client_sdk.copies._file.catalog import Record
from client_sdk.copies._file.checksums import NO_ROWS, StoredRow
from client_sdk.copies._file.clock import DeviceClock, Offset
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.records import Shape, Stage, Version
from client_sdk.copies._file.tables import Changes
from client_sdk.copies._overlay import confirmed
from client_sdk.copies._sync.verify import Repair
from psoup.v1 import psoup_pb2 as pb

Basis = tuple[bytes, bytes]

_SKIPPED: Mapping[int, Why | Literal[""]] = {
    pb.SKIPPED_POINTS_UNSPECIFIED: "",
    pb.SKIPPED_POINTS_RETENTION: "retention",
    pb.SKIPPED_POINTS_TOO_MANY: "too many",
    pb.SKIPPED_POINTS_NO_COPY: NO_COPY,
}


class Overtaken(PsoupError):
    """The copy has changed since this transfer began: another process synced, declared or forgot
    it.
    """

    code = "ABORTED"


class Mismatch(PsoupError):
    """The rows do not have the count and digest that the store sent. The copy is as it was."""

    code = "DATA_LOSS"


def stage(
    file: CopyFile, copy_id: int, basis: Basis, inbox: Inbox, resume: bytes, repair: Repair
) -> Basis:
    """Write the received parts, with the token to continue from, and return the new basis.

    Raises Overtaken.
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
    """The end of a transfer. It makes the visible version or, if `hidden`, the following one.

    `now` is the store's by the client's clock and its `offset`, in microseconds. Acknowledged own
    rows up to the id `covered` are in it; None if that is not known of any.
    """

    end: pb.SyncEnd
    repair: Repair
    hidden: bool
    offset: Offset | None
    now: int
    covered: int | None = None


def finish(file: CopyFile, copy_id: int, basis: Basis, inbox: Inbox, ending: Ending) -> Basis:
    """Make a version of the received parts, and report what it changes.

    Count and digest must be those that the store sent. They follow from those before and the
    changes; for a whole answer, and after a repair, they are computed from all rows. Raises
    Overtaken or Mismatch.
    """
    # Stages: choose the table to write to, apply the changes, compare with the store's sums, and
    # make the version visible or the following one. An exception rolls all of it back.
    repair, hidden = ending.repair, ending.hidden
    with file.writing() as connection:
        record = _expected(connection, copy_id, basis)
        staged = _begun(connection, record, inbox, repair)
        if not staged.begun:
            raise Mismatch(f"{record.name}: a transfer ended that had not begun")
        # Staged rows were checked as they came, but may have been damaged in the file since. The
        # digest below would not show it: it is made of the stored checksums.
        _check_staged(connection, record, staged)
        # A stage with a shape is a whole answer, which changes no earlier version.
        before = None if staged.shape is not None else _base(record)
        if before is None:
            table = _put(connection, record, staged, inbox).table
        else:
            table = _table_to_change(connection, record, hidden)
        shape = staged.shape or _base(record).shape
        reason = staged.reason or UNSPECIFIED_REASON if before is None else _kept_reason(record)
        base_rows = record.declaration.base_rows
        version = Version.from_wire(
            ending.end, table, shape, before, base_rows, reason, ending.offset
        )
        version = replace(version, covered=_covered(record, ending.covered))
        if shape.keyed and record.declaration.edits:
            tables.index_keys(connection, table, shape.stored)
        sums = NO_ROWS if before is None else before.sums
        changes = Changes(connection, table, shape, sums)
        if before is not None:
            _change(connection, record, staged, inbox, repair, changes)
        # The store does not count rows that have left by its NOW, so they go before the comparison.
        changes.expire(version.now)
        # After damage, the sums before are no base from which to compute those after.
        all_read = before is None or repair.needed
        after = tables.sums_of(connection, table, shape) if all_read else changes.sums
        # The rows are counted too, because `after` may be computed without reading the table.
        if after != version.sums or tables.count_of(connection, table) != version.row_count:
            raise Mismatch(f"{record.name}: count or digest differ from the store's")
        _note_ended(connection, record, inbox)
        if hidden:
            _put_versions(connection, record, record.version, version)
        else:
            # Changes of a following version were never reported, so then all rows are compared.
            compares_all = all_read or record.following is not None
            touched = None if compares_all else changes.touched
            skipped = _SKIPPED.get(ending.end.skipped_points, NO_COPY)
            _see(connection, record, version, ending.now, touched, skipped)
        return version.token, b""


def _see(
    connection: sqlite.Connection,
    record: Record,
    version: Version,
    now: int,
    touched: Collection[int] | None,
    skipped: Why | Literal[""] = "",
) -> None:
    """Make a version visible, and report what changed in the rows `touched` and by time.

    With None all rows are compared. Raises Mismatch if rows are damaged.
    """
    try:
        move = Move(version, visible_now(version, now), touched, skipped=skipped)
        follow(connection, record, move)
    except WrongRows:
        raise Mismatch(f"{record.name}: rows are damaged") from None
    # The reason has been reported with this move, and later moves must not repeat it.
    _put_versions(connection, record, replace(version, reason=""), None)
    confirmed.sweep(connection)


def _covered(record: Record, covered: int | None) -> int | None:
    """Return up to which own row a new version has what the store has taken.

    What an earlier version had, it has too.
    """
    before = None if record.base is None else record.base.covered
    return max((row_id for row_id in (before, covered) if row_id is not None), default=None)


def promote(file: CopyFile, copy_ids: Sequence[int], clock: DeviceClock) -> None:
    """Make the following versions visible, all at once. Raises Mismatch if rows of one are
    damaged.
    """
    with file.writing() as connection:
        for copy_id in copy_ids:
            record = catalog.by_id(connection, copy_id)
            if record is not None and record.following is not None:
                now = clock.now(record.following.offset)
                # The file does not say which rows the transfers touched, so all rows are compared.
                _see(connection, record, record.following, now, None)


def drop_stage(connection: sqlite.Connection, record: Record) -> None:
    _put_versions(connection, record, record.version, record.following)


def forget_answer(connection: sqlite.Connection, record: Record) -> None:
    """Make a copy one that has never been synced."""
    _put_versions(connection, record, None, None)
    forget_query(connection, record.copy_id)


def forget_query(connection: sqlite.Connection, copy_id: int) -> None:
    """Forget the query of a copy, and the own rows that were evaluated by it."""
    connection.execute("DELETE FROM _psoup_computed WHERE copy_id = ?", (copy_id,))
    connection.execute(f"DROP TABLE IF EXISTS {tables.overlay_table(copy_id)}")


def _put_versions(
    connection: sqlite.Connection,
    record: Record,
    visible: Version | None,
    following: Version | None,
) -> None:
    """Write these versions and nothing staged, and drop the tables that are not in use.

    If the visible version changes, its NOW begins again.
    """
    copy_id = record.copy_id
    catalog.put_versions(connection, copy_id, visible, following, None)
    if visible is not record.version:
        catalog.put_latest_now(connection, copy_id, None)
    connection.execute("DELETE FROM _psoup_removed WHERE copy_id = ?", (copy_id,))
    in_use = [version.table for version in (visible, following) if version is not None]
    tables.drop_other_tables(connection, copy_id, in_use)


# ---- the steps

# The reason of a whole answer if the server did not say one.
UNSPECIFIED_REASON = "UNSPECIFIED"


def _kept_reason(record: Record) -> str:
    """Return the reason of a whole answer that is not visible yet, and is changed before it is."""
    return record.following.reason if record.following is not None else ""


def _note_ended(connection: sqlite.Connection, record: Record, inbox: Inbox) -> None:
    if record.declaration.changes:
        note_ended(connection, record.copy_id, inbox.ended)


def _expected(connection: sqlite.Connection, copy_id: int, basis: Basis) -> Record:
    record = catalog.by_id(connection, copy_id)
    if record is None:
        raise Overtaken("the copy was forgotten, or declared again, during the sync")
    if record.basis != basis:
        raise Overtaken(f"{record.name} was synced by another process or thread")
    return record


def _base(record: Record) -> Version:
    if record.base is None:
        raise Overtaken(f"{record.name}: changes were received for a copy without an answer")
    return record.base


def _begun(connection: sqlite.Connection, record: Record, inbox: Inbox, repair: Repair) -> Stage:
    """Return the stage that the received parts belong to, a new one if they begin a transfer."""
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
        # The copy is still the answer that the staged one was to replace.
        reason = stage.reason if stage.reason in RESETS else reason
    shape = Shape.from_wire(begin) if whole else None
    return Stage(b"", "", True, shape, reason, repair.mark)


def reason_name(reason: pb.SyncReason) -> str:
    """Return the name of a reason; a newer server may have unknown ones."""
    if reason not in pb.SyncReason.values():
        return f"REASON_{reason}"
    name = pb.SyncReason.Name(reason).removeprefix("SYNC_REASON_")
    return "" if name == "UNSPECIFIED" else name


def _put(connection: sqlite.Connection, record: Record, staged: Stage, inbox: Inbox) -> Stage:
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


def _check_staged(connection: sqlite.Connection, record: Record, staged: Stage) -> None:
    """Raise Mismatch if a staged row was damaged in the file."""
    columns = (staged.shape or _base(record).shape).stored
    if staged.table and tables.damaged(connection, staged.table, columns):
        raise Mismatch(f"{record.name}: rows that were staged are damaged")


def _table_to_change(connection: sqlite.Connection, record: Record, hidden: bool) -> str:
    """Return the table of the copy, or a duplicate of it if the changes are not to be visible
    yet.
    """
    base = _base(record)
    # A following version already has a table of its own, which is not visible.
    if not hidden or record.following is not None:
        return base.table
    table = tables.new(connection, record.copy_id, base.shape.stored)
    tables.copy_rows(connection, base.table, table)
    return table


def _change(
    connection: sqlite.Connection,
    record: Record,
    staged: Stage,
    inbox: Inbox,
    repair: Repair,
    changes: Changes,
) -> None:
    """Apply what was staged and received. Damaged rows are removed, unless they were sent again."""
    # Removals come first, so that a damaged row that was sent again stays. Staged rows come before
    # those received since, which are newer.
    changes.remove_all("SELECT row_id FROM _psoup_removed WHERE copy_id = ?", record.copy_id)
    changes.remove([*inbox.removed, *repair.damaged])
    if staged.table:
        changes.put_all(staged.table)
    changes.put(inbox.rows)


@dataclass
class Inbox:
    """The parts received since the last transaction, at most those between two resume tokens.

    `ended` are ids of `removed`.
    """

    begin: pb.SyncBegin | None = None
    removed: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    rows: list[StoredRow] = field(default_factory=list)
