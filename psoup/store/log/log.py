"""The log: definitions, queries and data in one total order.

One commit is one file; a commit without a file is the engine's trimming. Any number of servers
append, each at exactly the version after the last it has read.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from psoup.store.delta import DeltaFolder, durable
from psoup.store.delta.durable import remove, sync_folder
from psoup.store.delta.files import DataFile, write_data_file
from psoup.store.delta.reading import DataReader, reader
from psoup.store.epochs import Epoch
from psoup.store.errors import CorruptStore, FileGone, LogTrimmed
from psoup.store.layout import LOG
from psoup.store.log.event_table import WITH_PAYLOAD, from_table, to_table
from psoup.store.log.events import Entry

log = logging.getLogger("psoup.store")

_WRITES = 3

HEADER_COLUMNS = [name for name in LOG.names if name != "payload"]


class Log:
    """The log of a store, which any number of processes append to."""

    def __init__(self, folder: DeltaFolder, *, sync: bool = True) -> None:
        self.folder = folder
        self._sync = sync
        self._damage: CorruptStore | None = None
        self._settled = 0
        self._proved = 0

    def append(self, version: int, entries: Sequence[Entry]) -> int:
        """Commits the entries as `version`, durably, and returns the bytes of the file that holds
        them. Their positions must be (version, 0), (version, 1), ….

        Raises Conflict where that version exists already, and CorruptStore where the log has a
        hole; nothing is written then. After an OSError the entries may be there or not: whoever
        goes on reads the log again, and retries what has an identity.
        """
        if self._damage is not None:
            raise self._damage
        for _ in range(_WRITES - 1):
            # The machine slept, or the disk was slow: what was written has to be written again.
            with suppress(FileGone):
                return self._append(version, entries)
        return self._append(version, entries)

    def _append(self, version: int, entries: Sequence[Entry]) -> int:
        since = durable.seconds()
        written = write_data_file(self.folder.root, to_table(entries), sync=self._sync)
        try:
            self.folder.commit(version, [written], operation="APPEND", sync=self._sync, since=since)
        except BaseException:
            if not self._holds(version, written):
                remove([self.folder.path_of(written)])
            raise
        self._settled = max(self._settled, version)
        return written.size

    def _holds(self, version: int, file: DataFile) -> bool:
        """True where a failed commit is there all the same: its folder could not be synced."""
        commit = self.folder.read_commit(version)
        return commit is not None and file in commit.added

    def latest_version(self, seen: int = 0) -> int:
        return self.folder.latest_version(seen)

    def prove_end(self, seen: int) -> None:
        """Lists the log, unless its folder is as it was at the last proof. Where a version is
        missing, it raises CorruptStore, and so does `append` until a later proof finds it whole.

        `seen` is a version that is known to have been there, as by an epoch that consumed it.
        """
        changed = os.stat(self.folder.log).st_mtime_ns
        if changed == self._proved:
            return
        try:
            self.folder.prove_end(seen)
        except CorruptStore as damage:
            self._damage = damage
            raise
        self._damage, self._proved = None, changed

    def settle(self, version: int) -> None:
        """Returns when no power cut can take back the commits up to `version`.

        A commit can be seen when it is linked, before the server that made it has synced the
        folder. Whoever builds on it, or shows it, makes sure of that first.
        """
        if self._sync and version > self._settled:
            newest = self.folder.latest_version(version)
            sync_folder(self.folder.log)
            self._settled = newest

    def last_stamp(self, epoch: Epoch, version: int) -> int:
        """The stamp of the last event before `version`, of which the epoch has consumed some."""
        later = range(epoch.log_version + 1, version)
        entries = (entry for number in later for entry in self.read(number, payloads=False))
        return max((entry.stamp for entry in entries), default=epoch.clock)

    def file(self, version: int) -> DataFile | None:
        """The file of a commit, or None for one that holds no events.

        Raises LogTrimmed where that version's commit is gone.
        """
        commit = self.folder.read_commit(version)
        if commit is None:
            raise LogTrimmed(f"version {version} of the log is gone")
        return commit.added[0] if commit.added else None

    def read(self, version: int, *, payloads: bool = True) -> list[Entry]:
        """The events of one commit. Raises LogTrimmed where they are no longer in the log, and
        CorruptStore; rows that are lost have no payload."""
        self.settle(version)
        file = self.file(version)
        root = self.folder.root
        return [] if file is None else read_events(root, file, version, payloads=payloads)


def read_events(root: Path, file: DataFile, version: int, *, payloads: bool = True) -> list[Entry]:
    """Reads the events in one file of the log in folder `root`; without the rows of data where
    `payloads` is False.

    Where nothing but rows is damaged their events come without a payload. Raises CorruptStore where
    anything else is: what comes after can't be understood without it.
    """
    source = reader(root, file)
    try:
        table = _table(source) if payloads else _headers(source)
    except FileNotFoundError:
        raise LogTrimmed(f"version {version} of the log is gone") from None
    except CorruptStore as error:
        raise CorruptStore(
            f"version {version} of the log can't be read: {error}. The store can't go on without "
            "it: put that file back from a back-up, or see `psoup repair`",
            error.file,
        ) from error
    return from_table(version, table)


def _table(source: DataReader) -> pa.Table:
    try:
        return source.whole()
    except CorruptStore as error:
        headers = source.read(HEADER_COLUMNS)
        if not WITH_PAYLOAD.isdisjoint(headers.column("kind").to_pylist()):
            raise
        log.error("%s; only the rows in it are lost", error)
        return headers


def _headers(source: DataReader) -> pa.Table:
    table = source.read(HEADER_COLUMNS)
    if WITH_PAYLOAD.isdisjoint(table.column("kind").to_pylist()):
        return table
    return _without_data(source.whole())


def _without_data(table: pa.Table) -> pa.Table:
    data = pc.equal(table.column("kind"), "data")
    index = table.column_names.index("payload")
    payloads = pc.if_else(data, pa.scalar(None, pa.binary()), table.column("payload"))
    return table.set_column(index, "payload", payloads)
