"""One sync of a file at a time, over all its processes and threads.

A lock of SQLite's own on a second, empty file: it is given back when its process ends, however.
"""

from __future__ import annotations

import sqlite3
import threading
import time

from client_sdk._exceptions import FileBusy
from client_sdk._grpc.effects import Flow, Pause
from client_sdk.copies._file import CopyFile, translated

_LOOK_AGAIN = 0.05
_DEFAULT_PATIENCE = 60.0


class SyncLock:
    def __init__(self, file: CopyFile) -> None:
        self._path = None if file.path is None else f"{file.path}-sync"
        self._name = file.name
        self._within = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def acquire(self, patience: float | None) -> Flow[None]:
        """Raises FileBusy when patience, in seconds, is at its end."""
        seconds = _DEFAULT_PATIENCE if patience is None else patience
        end = time.monotonic() + seconds
        while not self._try():
            if time.monotonic() >= end:
                raise FileBusy(f"another sync of {self._name} has been under way for {seconds:g} s")
            yield Pause(_LOOK_AGAIN)

    def release(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._within.release()

    def _try(self) -> bool:
        if not self._within.acquire(blocking=False):
            return False
        try:
            taken = self._path is None or self._try_file(self._path)
        except BaseException:
            self._within.release()
            raise
        if not taken:
            self._within.release()
        return taken

    def _try_file(self, path: str) -> bool:
        with translated(path):
            connection = sqlite3.connect(
                path, timeout=0, isolation_level=None, check_same_thread=False
            )
            try:
                connection.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError as error:
                connection.close()
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
                return False
        self._connection = connection
        return True
