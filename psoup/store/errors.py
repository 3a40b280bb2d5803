"""What can go wrong with the store on disk.

StoreError
├── Conflict           somebody else committed that version first
├── NotAStore          the folder holds something else, or nothing
├── UnsupportedFormat  made by a newer version
├── CorruptStore       a file that a commit names is missing or unreadable
├── LogTrimmed         the events asked for are in the tables now, no longer in the log
└── ForeignPosition    a position of another store, or no position at all

OSError
└── FileGone           a file that was written for a commit is gone, or may be any moment
"""

from __future__ import annotations


class StoreError(Exception):
    """The root of this package's errors."""


class Conflict(StoreError):
    def __init__(self, table: str, version: int) -> None:
        super().__init__(f"version {version} of {table} was committed by someone else")
        self.table = table
        self.version = version


class NotAStore(StoreError):
    pass


class UnsupportedFormat(StoreError):
    pass


class CorruptStore(StoreError):
    pass


class LogTrimmed(StoreError):
    pass


class ForeignPosition(StoreError):
    pass


class FileGone(OSError):
    """No commit was made. Whoever writes the file again can go on."""
