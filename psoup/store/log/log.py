"""The log: definitions, queries and data in one total order.

One commit is one file; a commit without events is the engine's trimming. Any number of servers
append, each at exactly the version after the last it has read. The first commit of each process
ends with its mark (`psoup.store.state.writers`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from psoup.store.delta import DeltaFolder, durable
from psoup.store.delta.durable import remove, sync_folder
from psoup.store.delta.files import DataFile, write_data_file
from psoup.store.delta.reading import DataFileGone, DataReader, reader
from psoup.store.epochs import Epoch
from psoup.store.errors import CorruptStore, FileGone, LogTrimmed
from psoup.store.layout import LOG
from psoup.store.log.event_table import WITH_PAYLOAD, from_table, to_table
from psoup.store.log.events import Entry, WriterStarted
from psoup.store.log.position import Position

log = logging.getLogger("psoup.store")

_MAX_ATTEMPTS = 3

# While this process appends, it lists the log this often, and for at most this share of the time.
PROOF_SECONDS = 1.0
_MAX_PROOF_SHARE = 0.01

HEADER_COLUMNS = [name for name in LOG.names if name != "payload"]


class Log:
    """The log of a store, which any number of processes append to."""

    def __init__(self, folder: DeltaFolder, *, sync: bool = True) -> None:
        self.folder = folder
        self._sync = sync
        # The hole that the last proof found, and the last version that is known to be synced.
        self._damage: CorruptStore | None = None
        self._settled = 0
        # The folder's time of change, in nanoseconds, at the last proof, and when the next one is
        # due.
        self._proved = 0
        self._proof_due = 0.0
        self._writer = WriterStarted(int.from_bytes(os.urandom(8), signed=True))
        self._is_marked = False

    def append(self, version: int, entries: Sequence[Entry]) -> tuple[Sequence[Entry], int]:
        """Commit the entries as `version`, durably. Their positions must be (version, 0), (version,
        1), …. Return the entries that were written, which end with this process's mark in its first
        commit, and the size of their file.

        Raise Conflict if that version exists already, and CorruptStore if the log has a hole;
        nothing is written then. After an OSError the commit may exist or not: the caller reads the
        log again, and retries what has an identity.
        """
        if durable.seconds() >= self._proof_due:
            self.prove_end(version - 1)
        if self._damage is not None:
            raise self._damage
        if entries and not self._is_marked:
            # The last entry, because the callers have assigned the positions of the others.
            place = Position(version, len(entries))
            mark = replace(
                entries[-1], position=place, tenant="", owner="", actor="", event=self._writer
            )
            entries = [*entries, mark]
        return entries, self._commit(version, entries)

    def trim(self, version: int, files: Collection[DataFile], epoch: Epoch) -> None:
        """Remove files, which the epoch has consumed, from the log by committing `version`, with
        this process's mark if the log lacks it. Raise Conflict if the version exists."""
        entries = []
        if not self._is_marked:
            stamp = self.last_stamp(epoch, version)
            entries = [Entry(Position(version, 0), stamp, "", "", self._writer)]
        self._commit(version, entries, files, operation="TRIM")

    def _commit(
        self,
        version: int,
        entries: Sequence[Entry],
        removed: Collection[DataFile] = (),
        operation: str = "APPEND",
    ) -> int:
        """Commit `version`; return the size of the file with the entries. A process whose commit
        fails repeats its mark in the next one, which does no harm."""
        for _ in range(_MAX_ATTEMPTS - 1):
            # The machine slept, or the disk was slow: the file has to be written again.
            with suppress(FileGone):
                return self._try_commit(version, entries, removed, operation)
        return self._try_commit(version, entries, removed, operation)

    def _try_commit(
        self, version: int, entries: Sequence[Entry], removed: Collection[DataFile], operation: str
    ) -> int:
        # Taken before the file is begun: a file's age counts from its beginning.
        since, root = durable.seconds(), self.folder.root
        written = [write_data_file(root, to_table(entries), sync=self._sync)] if entries else []
        try:
            self.folder.commit(
                version, written, removed, operation=operation, sync=self._sync, since=since
            )
        except BaseException:
            # A commit that failed in its last sync exists, and needs its file.
            if not all(self._holds(version, file) for file in written):
                remove(map(self.folder.path_of, written))
            raise
        self._settled = max(self._settled, version)
        self._is_marked = self._is_marked or bool(entries)
        return sum(file.size for file in written)

    def _holds(self, version: int, file: DataFile) -> bool:
        """Return True if a failed commit exists, because only the sync of its folder failed."""
        commit = self.folder.read_commit(version)
        return commit is not None and file in commit.added

    def latest_version(self, at_least: int = 0) -> int:
        return self.folder.latest_version(at_least)

    def prove_end(self, at_least: int) -> None:
        """List the log, unless its folder has not changed since the last proof. Raise CorruptStore
        if a version is missing; `append` then raises it too, until a later proof succeeds.

        `at_least` is a version that must exist, for example because an epoch has consumed it.
        """
        # Read before the listing: a commit that is made meanwhile changes it, and is listed next
        # time.
        changed = os.stat(self.folder.log).st_mtime_ns
        if changed == self._proved:
            return
        begun = durable.seconds()
        try:
            self.folder.prove_end(at_least)
        except CorruptStore as damage:
            self._damage = damage
            raise
        self._damage, self._proved = None, changed
        now = durable.seconds()
        self._proof_due = now + max(PROOF_SECONDS, (now - begun) / _MAX_PROOF_SHARE)

    def settle(self, version: int) -> None:
        """Make the commits up to `version` durable against a power cut.

        A commit is visible once it is linked, before the server that made it has synced the folder.
        A reader calls this before it builds on a commit or shows it.
        """
        if self._sync and version > self._settled:
            # Read before the sync, which makes all these commits durable, not only the one asked
            # for.
            newest = self.folder.latest_version(version)
            sync_folder(self.folder.log)
            self._settled = newest

    def last_stamp(self, epoch: Epoch, version: int) -> int:
        """Return the stamp of the last event before `version`; the epoch has consumed some of the
        log."""
        for number in reversed(range(epoch.log_version + 1, version)):
            # Stamps never go back, so those of the newest events are the greatest.
            if entries := self.read(number, payloads=False):
                return entries[-1].stamp
        return epoch.clock

    def file(self, version: int) -> DataFile | None:
        """Return the file of a commit, or None for one that holds no events.

        Raise LogTrimmed if that version's commit is gone.
        """
        commit = self.folder.read_commit(version)
        if commit is None:
            raise LogTrimmed(f"version {version} of the log is gone")
        return commit.added[0] if commit.added else None

    def read(self, version: int, *, payloads: bool = True) -> list[Entry]:
        """Return the events of one commit. Lost rows have no payload.

        Raise LogTrimmed if the events are no longer in the log, CorruptStore if their file is
        damaged or missing.
        """
        self.settle(version)
        file = self.file(version)
        root = self.folder.root
        return [] if file is None else read_events(root, file, version, payloads=payloads)


def read_events(root: Path, file: DataFile, version: int, *, payloads: bool = True) -> list[Entry]:
    """Return the events in one file of the log in folder `root`; without the rows of batches if
    `payloads` is False.

    If only rows are damaged, their events come without a payload. Raise CorruptStore for any other
    damage: later events depend on the lost ones.
    """
    source = reader(root, file)
    try:
        table = _table(source) if payloads else _headers(source)
    except DataFileGone as error:
        # The engine may have trimmed the file after its commit was read.
        if file.path not in DeltaFolder(root).snapshot().files:
            raise LogTrimmed(f"the events of version {version} left the log") from None
        raise _unreadable(version, error) from error
    except CorruptStore as error:
        raise _unreadable(version, error) from error
    return from_table(version, table)


def _unreadable(version: int, error: CorruptStore | DataFileGone) -> CorruptStore:
    return CorruptStore(
        f"version {version} of the log can't be read: {error}. The store can't go on without "
        "it: restore that file from a back-up; `psoup repair STORE` lists all damage",
        error.file,
    )


def _table(source: DataReader) -> pa.Table:
    try:
        return source.whole()
    except CorruptStore as error:
        # Pages have checksums of their own, so the other columns may be intact.
        headers = source.read(HEADER_COLUMNS)
        if not WITH_PAYLOAD.isdisjoint(headers.column("kind").to_pylist()):
            raise
        log.error("%s; only the rows in it are lost", error)
        return headers


def _headers(source: DataReader) -> pa.Table:
    table = source.read_small(HEADER_COLUMNS)
    if WITH_PAYLOAD.isdisjoint(table.column("kind").to_pylist()):
        return table
    return _without_data(source.whole())


def _without_data(table: pa.Table) -> pa.Table:
    data = pc.equal(table.column("kind"), "data")
    index = table.column_names.index("payload")
    payloads = pc.if_else(data, pa.scalar(None, pa.binary()), table.column("payload"))
    return table.set_column(index, "payload", payloads)
