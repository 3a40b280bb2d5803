"""The log: definitions, queries and data in one total order.

One commit is one file; a commit without a file is the engine's trimming. Any number of servers
append, each at exactly the version after the last it has read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from psoup.store.datafile import DataFile, write_data_file
from psoup.store.delta import DeltaFolder
from psoup.store.errors import CorruptStore, LogTrimmed
from psoup.store.events import WITH_PAYLOAD, Entry, from_table, to_table
from psoup.store.layout import LOG

HEADER_COLUMNS = [name for name in LOG.names if name != "payload"]


class Log:
    def __init__(self, folder: DeltaFolder, *, sync: bool = True) -> None:
        self.folder = folder
        self._sync = sync

    def append(self, version: int, entries: Sequence[Entry]) -> None:
        """Commits the entries as `version`, durably. Raises Conflict where it exists already.

        Their positions must be (version, 0), (version, 1), …. After an OSError they may be there
        or not: whoever goes on reads the log again, and retries what has an identity.
        """
        written = write_data_file(self.folder.root, to_table(entries), sync=self._sync)
        try:
            self.folder.commit(version, [written], operation="APPEND", sync=self._sync)
        except BaseException:
            if not self._holds(version, written):
                self.folder.path_of(written).unlink(missing_ok=True)
            raise

    def _holds(self, version: int, file: DataFile) -> bool:
        """A commit can fail after it became visible: when its folder can't be synced."""
        commit = self.folder.read_commit(version)
        return commit is not None and file in commit.added

    def latest_version(self, seen: int = 0) -> int:
        return self.folder.latest_version(seen)

    def path(self, version: int) -> Path | None:
        """The file of a commit, or None for one that holds no events.

        Raises LogTrimmed where that version's commit is gone.
        """
        commit = self.folder.read_commit(version)
        if commit is None:
            raise LogTrimmed(f"version {version} of the log is gone")
        return self.folder.path_of(commit.added[0]) if commit.added else None

    def read(self, version: int, *, payloads: bool = True) -> list[Entry]:
        """The events of one commit. Raises LogTrimmed where they are no longer in the log."""
        path = self.path(version)
        return [] if path is None else read_events(path, version, payloads=payloads)


def read_events(path: Path, version: int, *, payloads: bool = True) -> list[Entry]:
    """The events in one log file; without the rows of data for those who need only the headers."""
    try:
        with pq.ParquetFile(path) as file:
            table = file.read(columns=None if payloads else HEADER_COLUMNS)
            if not payloads and not WITH_PAYLOAD.isdisjoint(table.column("kind").to_pylist()):
                table = _without_data(file.read())
    except FileNotFoundError:
        raise LogTrimmed(f"version {version} of the log is gone") from None
    except OSError as error:
        raise CorruptStore(f"version {version} of the log can't be read: {error}") from error
    return from_table(version, table)


def _without_data(table: pa.Table) -> pa.Table:
    data = pc.equal(table.column("kind"), "data")
    index = table.column_names.index("payload")
    payloads = pc.if_else(data, pa.scalar(None, pa.binary()), table.column("payload"))
    return table.set_column(index, "payload", payloads)
