"""The answer up to which changes have been reported, and how the next one follows it.

Its rows are in a table of their own, so that reports do not depend on the copy: a copy that is
damaged, and repaired or sent whole, is compared with what was reported before. If that is damaged
itself, or an unrelated answer replaces another, the log begins again and says why.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from client_sdk.copies._changes import log
from client_sdk.copies._changes.own import OwnAnswer, renumber, with_own
from client_sdk.copies._changes.tagging import Passage, TaggedRow, Why
from client_sdk.copies._file import catalog, sqlite, tables
from client_sdk.copies._file.catalog import DAMAGED, REPLACED, Record
from client_sdk.copies._file.checksums import HEAD, Checksums, StoredRow
from client_sdk.copies._file.records import Reported, Version
from client_sdk.copies._query.answers import visible

# After a whole answer for one of these reasons there is nothing to compare.
RESETS = frozenset({REPLACED, "PERMISSION"})

_MARKED_ROWS = "temp._psoup_touched"
_CHECKSUM = HEAD - 1


@dataclass(frozen=True, slots=True)
class Move:
    """A step to a version, which becomes visible at `now`.

    Rows with the ids `touched` may have changed, and others only by time; with None any may have.
    `synced` is False if time alone makes the step. `skipped` says why refresh points in between
    were left out; empty if none was.
    """

    version: Version
    now: int | None
    touched: Collection[int] | None = None
    synced: bool = True
    skipped: Why | Literal[""] = ""

    @property
    def whole(self) -> bool:
        return bool(self.version.reason)


def visible_now(version: Version, now: int) -> int | None:
    """Return the NOW at which a new version is read, in microseconds; `now` is that of the
    device.
    """
    return max(now, version.now or 0) if version.shape.slides else version.now


class WrongRows(Exception):
    """Rows of the version that is to be reported don't match their checksums."""


def follow(connection: sqlite.Connection, record: Record, move: Move) -> None:
    """Report what the move changes, if changes of the copy are kept.

    Raises WrongRows; then nothing was reported.
    """
    if not record.declaration.changes:
        return
    if record.reported is None and not record.reported_lost:
        _begin(connection, record, move)
        return
    reason = _reset_by(connection, record, move)
    if not reason:
        assert record.reported is not None
        if move.skipped and (move.skipped != NO_COPY or move.now != record.reported.now):
            skipped = TaggedRow("skip", move.skipped, move.now, None, None)
            log.append(connection, record.copy_id, [skipped])
        reason = "" if _report(connection, record, record.reported, move) else DAMAGED
    if reason:
        _begin(connection, record, move)
        log.reset(connection, record.copy_id, reason)


def _report(connection: sqlite.Connection, record: Record, reported: Reported, move: Move) -> bool:
    """Report the changes, and return True. Return False if rows reported before are damaged."""
    if record.declaration.changes != WITH_OWN:
        return _Report(connection, record, reported, move).report()
    renumbered = renumber(connection, record.copy_id, reported, move.version)
    if renumbered is None:
        return False
    if renumbered != reported:
        catalog.put_reported(connection, record.copy_id, renumbered)
    with with_own(connection, record, move.version, move.now) as own_answer:
        return _Report(connection, record, renumbered, move, own_answer).report()


def _reset_by(connection: sqlite.Connection, record: Record, move: Move) -> str:
    """Return the reason why there is nothing to compare with; empty if there is."""
    reported, version = record.reported, move.version
    if record.reported_lost or version.reason in RESETS:
        return record.reported_lost or version.reason
    if reported is None or not tables.exists(connection, tables.reported_table(record.copy_id)):
        return DAMAGED
    if reported.shape.stored != version.shape.stored:
        return version.reason or DAMAGED
    # If any row may have changed, all reported rows are compared, so all must be right. Otherwise
    # the report reads marked rows only, and checks those itself.
    if move.touched is None and not _is_sound(connection, record.copy_id, reported):
        return DAMAGED
    return ""


def _is_sound(connection: sqlite.Connection, copy_id: int, reported: Reported) -> bool:
    table = tables.reported_table(copy_id)
    if tables.checksum_sums(connection, table) != reported.sums:
        return False
    return not tables.damaged(connection, table, reported.shape.stored)


def _begin(connection: sqlite.Connection, record: Record, move: Move) -> None:
    """Take the version as reported, whatever was reported before. Raises WrongRows."""
    copy_id, version, table = record.copy_id, move.version, tables.reported_table(record.copy_id)
    columns = version.shape.stored
    # The rows of a whole answer were checked as they were received.
    if not move.whole and tables.damaged(connection, version.table, columns):
        raise WrongRows
    connection.execute(f"DROP TABLE IF EXISTS {table}")
    tables.make(connection, table, columns)
    connection.execute(
        f"INSERT INTO {table} SELECT * FROM {version.table} WHERE {visible(move.now)}"
    )
    if version.shape.keyed:
        key = tables.value_names(columns)[-1]
        # The index is for `_twins`, which looks for other rows of a key.
        connection.execute(f"CREATE INDEX {table}_key ON {table} ({key})")
    sums = tables.checksum_sums(connection, table)
    assert sums is not None
    series = secrets.token_hex(8) if record.reported is None else record.reported.series
    catalog.put_reported(connection, copy_id, Reported(version.shape, move.now, sums, series))
    _forget_ended(connection, copy_id)


def _between(before: int | None, after: int | None) -> str:
    """Return a condition that is true for rows that enter or leave between two NOWs.

    Most rows take two comparisons.
    """
    if before is None or after is None:
        return f"({visible(before)}) <> ({visible(after)})"
    # Rows are visible in [visible_from, visible_until). So only rows that begin or end after `low`
    # and not after `high` can change.
    low, high = sorted((before, after))
    leaving = f"visible_until <= {high} AND visible_until > {low}"
    return f"({leaving}) OR (visible_from > {low} AND visible_from <= {high})"


class _Report:
    """The report of one move of one copy, to an answer with own edits if `own_answer` is one."""

    def __init__(
        self,
        connection: sqlite.Connection,
        record: Record,
        reported: Reported,
        move: Move,
        own_answer: OwnAnswer | None = None,
    ) -> None:
        self._connection = connection
        self._record = record
        self._reported = reported
        self._move = move
        self._mirror = tables.reported_table(record.copy_id)
        self._own = own_answer
        self._table = move.version.table if own_answer is None else own_answer.table
        self._now = move.now if own_answer is None else own_answer.now
        # Own edits may have changed any row.
        self._touched = move.touched if own_answer is None else None

    def report(self) -> bool:
        """Report the changes, and return True. Return False if rows reported before are damaged.

        Raises WrongRows.
        """
        # `old` and `new` hold only marked rows, before and after the move. Marked rows that are
        # equal in both are no changes; `Passage` leaves them out.
        waiting = self._mark()
        marked = f"row_id IN (SELECT row_id FROM {_MARKED_ROWS})"
        old = self._rows(f"SELECT * FROM {self._mirror} WHERE {marked}")
        select = f"SELECT * FROM {self._table} WHERE {marked} AND {visible(self._now)}"
        new = self._rows(select)
        sums = Checksums(self._reported.shape.stored)
        if sums.wrong(old):
            return False
        if sums.wrong(self._unchecked(new, waiting)):
            raise WrongRows
        if old or new:
            self._connection.execute(f"DELETE FROM {self._mirror} WHERE {marked}")
            self._connection.execute(f"INSERT INTO {self._mirror} {select}")
            # The mirror has the next answer by then, in which `_twins` counts the keys.
            self._append(old, new, waiting)
        # A sync moves the reported NOW at least. A read without changes writes nothing.
        if old or new or self._move.synced:
            self._put(old, new)
        return True

    def _mark(self) -> Collection[int]:
        """Mark the rows that may have changed, and return the ids of those that only time
        touched.
        """
        execute, now = self._connection.execute, self._now
        execute("CREATE TEMP TABLE IF NOT EXISTS _psoup_touched (row_id INTEGER PRIMARY KEY)")
        execute(f"DELETE FROM {_MARKED_ROWS}")
        # A row has changed if its pair of id and checksum is on one side only.
        visible_rows = f"SELECT row_id, checksum FROM {self._table} WHERE {visible(now)}"
        reported_rows = f"SELECT row_id, checksum FROM {self._mirror}"
        if self._touched is None:
            self._mark_all(f"SELECT row_id FROM ({reported_rows} EXCEPT {visible_rows})")
            self._mark_all(f"SELECT row_id FROM ({visible_rows} EXCEPT {reported_rows})")
            return ()
        self._connection.executemany(
            f"INSERT INTO {_MARKED_ROWS} VALUES (?)", ((row_id,) for row_id in self._touched)
        )
        if now == self._reported.now:
            return ()
        # Rows that left and are no longer there were touched, when they expired.
        self._mark_all(
            f"SELECT row_id FROM {self._table} WHERE {_between(self._reported.now, now)}"
        )
        marked = {row_id for (row_id,) in execute(f"SELECT row_id FROM {_MARKED_ROWS}")}
        return marked.difference(self._touched)

    def _mark_all(self, ids: str) -> None:
        self._connection.execute(f"INSERT OR IGNORE INTO {_MARKED_ROWS} {ids}")

    def _unchecked(self, new: list[StoredRow], waiting: Collection[int]) -> list[StoredRow]:
        """Return the rows that were in the file before. Those that a sync has just received were
        checked.
        """
        return new if self._touched is None else [row for row in new if row[0] in waiting]

    def _rows(self, select: str) -> list[StoredRow]:
        return tables.read(self._connection, select)

    def _append(self, old: list[StoredRow], new: list[StoredRow], waiting: Collection[int]) -> None:
        record, move = self._record, self._move
        passage = Passage(
            move.version.shape,
            self._now,
            move.version.now if move.synced else self._now,
            ended=self._ended(),
            waiting=waiting,
            twins=self._twins() if old and new else (),
            whole=move.whole,
            reports_left=record.declaration.changes != WITHOUT_LEFT,
            own_ids=None if self._own is None else self._own.row_ids,
            synced=move.synced,
        )
        log.append(self._connection, record.copy_id, passage.tags(old, new))

    def _ended(self) -> set[int]:
        rows = self._connection.execute(
            "SELECT row_id FROM _psoup_ended WHERE copy_id = ?", (self._record.copy_id,)
        )
        return {row_id for (row_id,) in rows}

    def _twins(self) -> set[int]:
        """Return the stream keys that several rows of the present answer have."""
        if not self._reported.shape.keyed:
            return set()
        key = tables.value_names(self._reported.shape.stored)[-1]
        marked = f"row_id IN (SELECT row_id FROM {_MARKED_ROWS})"
        of_marked = f"SELECT {key} FROM {self._mirror} WHERE {marked}"
        rows = self._connection.execute(
            f"SELECT {key} FROM {self._mirror} WHERE {key} IN ({of_marked}) "
            f"GROUP BY {key} HAVING count(*) > 1"
        )
        return {twin for (twin,) in rows}

    def _put(self, old: list[StoredRow], new: list[StoredRow]) -> None:
        sums = self._reported.sums.minus(_checksums(old)).plus(_checksums(new))
        reported = replace(self._reported, shape=self._move.version.shape, now=self._now, sums=sums)
        catalog.put_reported(self._connection, self._record.copy_id, reported)
        _forget_ended(self._connection, self._record.copy_id)


ALL_CHANGES, WITHOUT_LEFT, WITH_OWN = "all", "without left", "with own"
EVERY_POINT = "every point"
NO_COPY: Why = "no copy"


def _checksums(rows: Iterable[StoredRow]) -> list[int]:
    return [row[_CHECKSUM] for row in rows]


def note_ended(connection: sqlite.Connection, copy_id: int, ids: Iterable[int]) -> None:
    """Note that stream keys of these rows were updated or deleted, for the next report."""
    connection.executemany(
        "INSERT OR IGNORE INTO _psoup_ended VALUES (?, ?)", ((copy_id, row_id) for row_id in ids)
    )


def _forget_ended(connection: sqlite.Connection, copy_id: int) -> None:
    connection.execute("DELETE FROM _psoup_ended WHERE copy_id = ?", (copy_id,))
