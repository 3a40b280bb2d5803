"""Verification of a copy's rows, and the cheapest repair of their damage.

Every row has a checksum made by the store, and every answer a count and a digest. A sync checks the
rows it receives, and compares count and digest of the copy with those of the store. Only reading
all rows shows whether each still matches its checksum. They are read when that is due: on doubt, a
day after the last time, and when a program asks for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from client_sdk.copies._file import catalog, sqlite, tables
from client_sdk.copies._file.catalog import Record
from client_sdk.copies._file.file import CopyFile, check_pages
from client_sdk.copies._file.records import Version
from psoup.v1 import psoup_pb2 as pb

# Every row is read at least this often.
_VERIFY_MICROS = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of reading every row of a copy.

    `damaged` of the `rows` don't match their checksums. `complete` is False if rows are missing, or
    there are rows that the store has not sent.
    """

    rows: int
    damaged: int
    complete: bool

    @property
    def sound(self) -> bool:
        """True if the copy is what the store has sent, row by row."""
        return self.complete and not self.damaged


def is_due(record: Record, now: int) -> bool:
    """Return whether every row of the copy is to be read before the copy is synced.

    A verification in the future was noted by a wrong clock, and does not count.
    """
    return record.verified is None or not 0 <= now - record.verified < _VERIFY_MICROS


def verify(connection: sqlite.Connection, version: Version) -> tuple[Verified, Repair]:
    """Read every row of a version, and return the result and the repair that it needs.

    If the ids are right, damaged rows are sent again. If they are not, the store compares. If most
    rows are damaged, or the table is gone, the whole answer is sent.
    """
    if not tables.exists(connection, version.table):
        return Verified(0, 0, False), WHOLE
    damaged = tables.damaged(connection, version.table, version.shape.stored)
    complete = tables.sums_of(connection, version.table, version.shape) == version.sums
    verified = Verified(tables.count_of(connection, version.table), len(damaged), complete)
    # The store has no negative ids, so it can't send such a row again.
    sendable = all(row_id >= 0 for row_id in damaged)
    if complete and sendable:
        return verified, _resend(damaged, version.row_count)
    return verified, _compare(connection, version, damaged)


def compare(connection: sqlite.Connection, version: Version) -> Repair:
    """Read every row, and return a repair in which the store compares the sound rows with its
    own.
    """
    if not tables.exists(connection, version.table):
        return WHOLE
    damaged = tables.damaged(connection, version.table, version.shape.stored)
    return _compare(connection, version, damaged)


def verify_copies(file: CopyFile, only: Sequence[str] | None, now: int) -> dict[str, Verified]:
    """Verify the visible versions of the copies of a file, of all or of `only` these names.

    A copy that is not sound is marked as doubtful, so that the next sync repairs it. Copies that
    have not been synced are left out. Raises UnknownCopy, and FileDamaged if SQLite's own check
    fails.
    """
    with file.reading() as connection:
        check_pages(connection, file.name)
        all_records = catalog.records(connection)
        records = all_records if only is None else [catalog.find(connection, name) for name in only]
        results = [
            (record, verify(connection, record.version)[0])
            for record in records
            if record.version is not None
        ]
    # A second transaction, so that other processes can write while all rows are read.
    with file.writing() as connection:
        for record, verified in results:
            if not verified.sound:
                catalog.put_verified(connection, record.copy_id, None)
            elif record.following is None:
                # A following version was not read, and this note would cover it too.
                catalog.put_verified(connection, record.copy_id, now)
    return {record.name: verified for record, verified in results}


@dataclass(frozen=True, slots=True)
class Repair:
    """What a sync requests besides what is new.

    `damaged` rows are removed from the copy unless they are sent again. `have` are the ids of all
    other rows, if the store is to find the differences. `whole` requests everything.
    """

    damaged: Sequence[int] = ()
    have: Sequence[int] | None = None
    whole: bool = False

    @property
    def needed(self) -> bool:
        return self.whole or self.have is not None or bool(self.damaged)

    @property
    def mark(self) -> str:
        """A text that is equal for equal repairs; empty if none is needed."""
        if not self.needed:
            return ""
        content = f"{self.whole} {self.damaged} {self.have}".encode()
        return hashlib.blake2b(content, digest_size=8).hexdigest()

    def ask(self, item: pb.SyncItem) -> None:
        if self.whole:
            item.whole = True
        elif self.have is not None:
            item.have.CopyFrom(_to_runs(self.have))
        elif self.damaged:
            item.resend.CopyFrom(_to_runs(self.damaged))


NO_REPAIR = Repair()
WHOLE = Repair(whole=True)


def _compare(connection: sqlite.Connection, version: Version, damaged: Sequence[int]) -> Repair:
    ids = tables.ids_of(connection, version.table)
    broken = {*damaged, *(row_id for row_id in ids if row_id < 0)}
    have = [row_id for row_id in ids if row_id not in broken]
    # If most rows have to be sent anyway, sending the ids of the others is not worth it.
    if len(have) * 2 < len(ids):
        return WHOLE
    return Repair(tuple(sorted(broken)), tuple(have))


def _resend(damaged: Sequence[int], count: int) -> Repair:
    return WHOLE if len(damaged) * 2 > max(count, 2) else Repair(tuple(damaged))


def _to_runs(ids: Sequence[int]) -> pb.Ids:
    """Return ascending ids, from 0 upwards, as the wire has them: skip, take, skip, take, …"""
    runs: list[int] = []
    # `place` is the first id after the last run.
    place = 0
    for row_id in ids:
        if runs and row_id == place:
            runs[-1] += 1
        else:
            runs += [row_id - place, 1]
        place = row_id + 1
    return pb.Ids(runs=runs)
