"""NOW of a copy that slides: the client's clock, never behind the store's, never backwards."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime

from client_sdk._wire.values import to_micros
from client_sdk.copies import _shelf
from client_sdk.copies._answering import version_of
from client_sdk.copies._file import BUSY_SECONDS, CopyFile
from client_sdk.copies._shelf import Record

Clock = Callable[[], datetime]

_SECOND = 1_000_000


def machine_clock() -> datetime:
    return datetime.now(UTC)


class Hands:
    """What NOW each copy was last seen at. The file is told every second, if it has time."""

    def __init__(self, file: CopyFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._seen: dict[tuple[int, bytes], int] = {}

    def now(self, record: Record, asked: datetime | None) -> int | None:
        """Raises ValueError for an instant before the copy's own: rows of then may be gone."""
        version = version_of(record)
        if asked is not None:
            now = to_micros(asked)
            if version.now is not None and now < version.now:
                raise ValueError(
                    f"{record.name} is of {version.state.now}: rows of {asked} may be gone"
                )
            return now
        if not version.shape.slides:
            return version.now
        shown = max(record.shown or 0, self._seen.get(_key(record), 0))
        return max(to_micros(self._clock()), version.now or 0, shown)

    def note(self, record: Record, now: int | None) -> None:
        """It was seen at that NOW, and is not to be seen at an earlier one.

        A new version begins at the store's NOW, so that a clock that was wrong is put right.
        """
        if now is None or not version_of(record).shape.slides:
            return
        self._seen = {key: seen for key, seen in self._seen.items() if key[0] != record.copy_id}
        self._seen[_key(record)] = now
        if now >= (record.shown or 0) + _SECOND:
            self._tell(record.copy_id, now)

    def _tell(self, copy_id: int, now: int) -> None:
        with self._file.alone() as connection:
            connection.execute("PRAGMA busy_timeout = 0")
            try:
                _shelf.put_shown(connection, copy_id, now)
            except sqlite3.OperationalError:
                pass
            finally:
                connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")


def _key(record: Record) -> tuple[int, bytes]:
    return record.copy_id, version_of(record).token
