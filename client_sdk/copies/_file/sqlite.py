"""SQLite, or SQLCipher for files that are encrypted: connections and exceptions of both.

No other module of the copies imports either. The exceptions are tuples, for `except`: those of
SQLCipher are added when it is first used. The codes of errors are the same in both.
"""

from __future__ import annotations

import importlib
import os
import sqlite3
from pathlib import Path
from sqlite3 import (
    SQLITE_BUSY,
    SQLITE_CANTOPEN,
    SQLITE_DENY,
    SQLITE_FULL,
    SQLITE_FUNCTION,
    SQLITE_IOERR,
    SQLITE_LOCKED,
    SQLITE_NOTADB,
    SQLITE_OK,
    SQLITE_READ,
    SQLITE_READONLY,
    SQLITE_RECURSIVE,
    SQLITE_SELECT,
    Connection,
)
from typing import Any

__all__ = [
    "KEY_BYTES",
    "SQLITE_BUSY",
    "SQLITE_CANTOPEN",
    "SQLITE_DENY",
    "SQLITE_FULL",
    "SQLITE_FUNCTION",
    "SQLITE_IOERR",
    "SQLITE_LOCKED",
    "SQLITE_NOTADB",
    "SQLITE_OK",
    "SQLITE_READ",
    "SQLITE_READONLY",
    "SQLITE_RECURSIVE",
    "SQLITE_SELECT",
    "Connection",
    "DatabaseError",
    "Error",
    "OperationalError",
    "ProgrammingError",
    "Warning",
    "connect",
    "key_literal",
    "require_cipher",
]

KEY_BYTES = 32

_Classes = tuple[type[Exception], ...]
Error: _Classes = (sqlite3.Error,)
DatabaseError: _Classes = (sqlite3.DatabaseError,)
OperationalError: _Classes = (sqlite3.OperationalError,)
ProgrammingError: _Classes = (sqlite3.ProgrammingError,)
Warning: _Classes = (sqlite3.Warning,)  # noqa: A001

_cipher: Any = None


def connect(
    path: str | os.PathLike[str],
    *,
    key: bytes | None = None,
    cipher: bool = False,
    timeout: float = 5.0,
) -> Connection:
    """Return a connection that any thread may use, and that begins no transactions by itself.

    With a `key` the file is encrypted. With `cipher` SQLCipher opens it even without a key.
    """
    module = sqlite3 if key is None and not cipher else require_cipher()
    connection: Connection = module.connect(
        Path(path) if str(path) != ":memory:" else path,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
    )
    if module is not sqlite3:
        # It would write to standard error otherwise, at every wrong key.
        connection.execute("PRAGMA cipher_log_level = NONE")
    if key is not None:
        connection.execute(f"PRAGMA key = {key_literal(key)}")
    return connection


def key_literal(key: bytes) -> str:
    """Return a key as SQLCipher takes it: the bytes themselves, nothing derived from them."""
    return f"\"x'{key.hex()}'\""


def require_cipher() -> Any:
    """Return the module of SQLCipher. Raises ModuleNotFoundError that says what to install."""
    global _cipher, Error, DatabaseError, OperationalError, ProgrammingError, Warning
    if _cipher is None:
        try:
            module = importlib.import_module("sqlcipher3.dbapi2")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "encrypted copies need SQLCipher: pip install 'psoup[encrypted]'"
            ) from error
        Error = (*Error, module.Error)
        DatabaseError = (*DatabaseError, module.DatabaseError)
        OperationalError = (*OperationalError, module.OperationalError)
        ProgrammingError = (*ProgrammingError, module.ProgrammingError)
        Warning = (*Warning, module.Warning)  # noqa: A001
        _cipher = module
    return _cipher
