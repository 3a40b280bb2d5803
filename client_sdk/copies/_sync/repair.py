"""What is wrong with a copy, and the cheapest that puts it right."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from client_sdk.copies._file import tables
from client_sdk.copies._file.catalog import Record
from client_sdk.copies._file.records import Version
from client_sdk.copies._sync.verified import Sound
from psoup.v1 import psoup_pb2 as pb


@dataclass(frozen=True, slots=True)
class Repair:
    """`damaged` rows leave the copy unless they come again.

    `have` are the ids of all other rows, where the store is to find out what differs.
    """

    damaged: Sequence[int] = ()
    have: Sequence[int] | None = None
    whole: bool = False

    @property
    def needed(self) -> bool:
        return self.whole or self.have is not None or bool(self.damaged)

    @property
    def mark(self) -> str:
        """The same for the same repair; empty where there is none."""
        if not self.needed:
            return ""
        content = f"{self.whole} {self.damaged} {self.have}".encode()
        return hashlib.blake2b(content, digest_size=8).hexdigest()

    def ask(self, item: pb.SyncItem) -> None:
        if self.whole:
            item.whole = True
        elif self.have is not None:
            item.have.CopyFrom(to_ids(self.have))
        elif self.damaged:
            item.resend.CopyFrom(to_ids(self.damaged))


SOUND = Repair()
WHOLE = Repair(whole=True)


def examine(connection: sqlite3.Connection, record: Record, sound: Sound) -> Repair:
    """Reads every row, and looks at those that are not known to be sound.

    Where the ids are right, rows that are not are sent again. Where they are not, the store
    compares. Where most is damaged, or there is no telling, all is sent.
    """
    version = record.base
    if version is None:
        return SOUND
    if not tables.exists(connection, version.table):
        return WHOLE
    damaged = tables.damaged(connection, version.table, version.shape.columns, sound)
    sendable = all(row_id >= 0 for row_id in damaged)
    if sendable and tables.is_sound(connection, version.table, version):
        return _resend(damaged, version.row_count)
    return compare(connection, version, damaged)


def compare(connection: sqlite3.Connection, version: Version, damaged: Sequence[int]) -> Repair:
    """The store is told what is there, and finds out what differs."""
    ids = tables.ids_of(connection, version.table)
    broken = {*damaged, *(row_id for row_id in ids if row_id < 0)}
    have = [row_id for row_id in ids if row_id not in broken]
    if len(have) * 2 < len(ids):
        return WHOLE
    return Repair(tuple(sorted(broken)), tuple(have))


def _resend(damaged: Sequence[int], count: int) -> Repair:
    return WHOLE if len(damaged) * 2 > max(count, 2) else Repair(tuple(damaged))


def to_ids(ids: Sequence[int]) -> pb.Ids:
    """`ids` ascend, each once, from 0 upwards."""
    runs: list[int] = []
    place = 0
    for one in ids:
        if runs and one == place:
            runs[-1] += 1
        else:
            runs += [one - place, 1]
        place = one + 1
    return pb.Ids(runs=runs)
