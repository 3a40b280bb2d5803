"""A process that is killed at a transaction of a file of copies."""

from __future__ import annotations

import sqlite3
from typing import Any

from client_sdk import Copies


class Killed(BaseException):
    """The process ends here."""


class KillingConnection:
    """A connection whose process is killed before or after the given write is committed."""

    def __init__(self, connection: sqlite3.Connection, commit: int, after: bool) -> None:
        self.__dict__.update(_connection=connection, _left=commit, _after=after, _writes=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._connection, name, value)

    def execute(self, sql: str, *parameters: Any) -> Any:
        fields = self.__dict__
        if sql.startswith("BEGIN"):
            fields["_writes"] = "IMMEDIATE" in sql
        if sql == "COMMIT" and self._writes:
            fields["_left"] -= 1
            if self._left == 0 and not self._after:
                raise Killed
            cursor = self._connection.execute(sql, *parameters)
            if self._left == 0:
                raise Killed
            return cursor
        return self._connection.execute(sql, *parameters)


def kill(copies: Copies) -> None:
    """Leave the file of copies as a killed process does."""
    file = copies._file
    connection: Any = file._connection
    if connection.in_transaction:
        connection._connection.execute("ROLLBACK")
    connection.close()
    file._closed = True
    copies._lock = type(copies._lock)(file)
