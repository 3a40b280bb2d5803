"""The errors of the store on disk.

StoreError
├── Conflict           another writer committed that version first
├── NotAStore          the folder holds something else, or nothing
├── UnsupportedFormat  made by a newer version
├── CorruptStore       a file is missing or is not what was written; `file` names it
├── Repairing          a repair is under way, or was begun and has not ended
├── LogTrimmed         a version asked for is behind a checkpoint, or its events are in the tables
└── ForeignPosition    a position of another store, or no position at all

BackupFailed           a back-up can't be made or restored; no server raises it

OSError
├── FileGone           a file that was written for a commit is gone, or may be any moment
└── Unconfirmed        a commit was linked so late that its number may have been used before
"""

from __future__ import annotations


class StoreError(Exception):
    """The root of this package's errors."""


class Conflict(StoreError):
    def __init__(self, table: str, version: int) -> None:
        super().__init__(f"version {version} of {table} was committed by another writer")
        self.table = table
        self.version = version


class NotAStore(StoreError):
    pass


class UnsupportedFormat(StoreError):
    pass


class CorruptStore(StoreError):
    """Damage. `file` is the path of the damaged file in the store, empty if it is not one file."""

    def __init__(self, message: str, file: str = "") -> None:
        super().__init__(message)
        self.file = file

    def __reduce__(self) -> tuple[type[CorruptStore], tuple[str, str]]:
        return type(self), (str(self), self.file)


class Repairing(StoreError):
    pass


class BackupFailed(Exception):
    """A back-up can't be made or restored, or what it holds is damaged; the store is unchanged."""


class LogTrimmed(StoreError):
    pass


class ForeignPosition(StoreError):
    pass


class FileGone(OSError):
    """A file is gone before its commit was made. The writer may write it again and retry."""


class Unconfirmed(OSError):
    """A commit whose version is behind two checkpoints by now.

    It counts if it was linked before the version was free again, and is never read otherwise. The
    writer can't know which: it opens the store again and retries what has an identity.
    """
