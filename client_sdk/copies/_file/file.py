"""The SQLite file: how it is opened, its transactions, and the meaning of SQLite's errors.

The threads of a process share one connection and take turns; other processes have their own. The
write-ahead log lets them read while one writes. A transaction that fails leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from client_sdk._exceptions import CopyError, FileBusy, FileDamaged, FileFull, WrongFile
from client_sdk._grpc.effects import Flow, Pause
from client_sdk.copies._file import sqlite
from client_sdk.copies._file.encryption import Sidecar, check_key, settle_key, unreadable

APPLICATION_ID = 0x50536F75
FORMAT = 6
_MEMORY = ":memory:"
# How long a transaction waits for those of other processes.
BUSY_SECONDS = 10.0

_TABLES = """
CREATE TABLE _psoup_copies (
    copy_id INTEGER PRIMARY KEY AUTOINCREMENT,
    name, declaration, spare, state, next, stage, shown, sound, told, use
);
CREATE TABLE _psoup_removed (copy_id, row_id, PRIMARY KEY (copy_id, row_id)) WITHOUT ROWID;
CREATE TABLE _psoup_computed (copy_id INTEGER PRIMARY KEY, content);
CREATE TABLE _psoup_streams (name PRIMARY KEY, stream) WITHOUT ROWID;
CREATE TABLE _psoup_publisher (name, next_sequence, next_batch, last_batch, next_row);
CREATE TABLE _psoup_queue (
    batch, piece, stream, kind, row_count, checksum, queued_at, tried, refused, doubtful,
    first_row, acknowledged_at, position, first_row_id, seen, payload,
    UNIQUE (batch, piece)
);
CREATE INDEX _psoup_acknowledged ON _psoup_queue (first_row) WHERE acknowledged_at IS NOT NULL;
CREATE TABLE _psoup_store (store);
CREATE TABLE _psoup_ended (copy_id, row_id, PRIMARY KEY (copy_id, row_id)) WITHOUT ROWID;
CREATE TABLE _psoup_changes (number INTEGER PRIMARY KEY AUTOINCREMENT, copy_id, content);
CREATE INDEX _psoup_changes_of_copy ON _psoup_changes (copy_id);
"""

# A copy whose rows are in doubt is verified by the next sync.
_MARK_DOUBTFUL = "UPDATE _psoup_copies SET sound = NULL"

# Statements that turn a file of a format into one of the next, by the number of the former. Formats
# below the first one here were never released, and are refused.
_UPGRADES: dict[int, str] = {}


class CopyFile:
    """A file of copies. Without a `path` it is in memory, and gone when it is closed."""

    def __init__(self, path: str | os.PathLike[str] | None, key: bytes | None = None) -> None:
        """Open the file, or create it. Raises CopyError if that is not possible, or it is another
        file. With a `key` it is encrypted; then raises WrongKey if it has another.
        """
        self.path = None if path is None else Path(path)
        self._key = key
        if self.path is not None:
            with _readable_file(self.name):
                check_key(self.path, key)
        # Looked at before connecting: SQLite makes a log, or recovers from one, when it opens the
        # file.
        self._left_open = self._has_log()
        self._met_damage = False
        # Reentrant, so that a thread may begin a transaction inside one of its own.
        self._turn = threading.RLock()
        self._closed = False
        with translated(self.name):
            self._connection = self._connect()
        try:
            with translated(self.name), self._telling_wrong_keys():
                self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _connect(self) -> sqlite.Connection:
        # Transactions are begun by hand, and `_turn` makes the threads take turns.
        path = _MEMORY if self.path is None else self.path
        return sqlite.connect(path, key=self._key, timeout=BUSY_SECONDS)

    @contextlib.contextmanager
    def _telling_wrong_keys(self) -> Iterator[None]:
        """Raise WrongKey if a file can't be read because its key may be another."""
        try:
            yield
        except sqlite.DatabaseError as error:
            if self.path is None or _code(error) != sqlite.SQLITE_NOTADB:
                raise
            wrong_key = unreadable(self.path, self._key)
            if wrong_key is not None:
                raise wrong_key from error
            if self._key is None:
                raise
            raise _damaged(self.name, str(error)) from error

    def rekey(self, key: bytes) -> None:
        """Encrypt the file with another key. Raises FileBusy if another process has it open.

        If this is interrupted, the old key or the new one opens the file.
        """
        if self.path is None or self._key is None:
            raise ValueError(f"{self.name} is not encrypted: Copies.encrypt(path, key) does that")
        with self.alone() as connection:
            if connection.in_transaction:
                raise ValueError("the key can't be replaced inside a snapshot")
            # Without the log, the key is replaced in one transaction with a rollback journal. This
            # fails if another connection has the file open.
            connection.execute("PRAGMA journal_mode = DELETE")
            Sidecar(self.path).write(self._key, key)
            connection.execute(f"PRAGMA rekey = {sqlite.key_literal(key)}")
            connection.close()
            self._key = key
            self._connection = self._connect()
            self._prepare()

    @property
    def name(self) -> str:
        return "the copies in memory" if self.path is None else str(self.path)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Close the file. May be called twice."""
        with self._turn:
            if not self._closed:
                self._closed = True
                self._connection.close()
                self._leave_doubt()

    # ---- doubt about the rows

    def take_doubt(self) -> None:
        """Have the next sync verify the rows of every copy, if there is a reason to.

        Either the process that had the file open before did not close it, or damage was met in it.
        """
        if self._left_open or self._met_damage:
            with self.writing() as connection:
                connection.execute(_MARK_DOUBTFUL)
            self._left_open = self._met_damage = False

    def _leave_doubt(self) -> None:
        """Note a doubt that this process has not acted on for another process.

        A log that is there after closing belongs to a process that still runs: then the file was
        not left open.
        """
        was_left_open = self._left_open and not self._has_log()
        if self.path is None or not (was_left_open or self._met_damage):
            return
        with (
            contextlib.suppress(*sqlite.Error),
            contextlib.closing(self._connect()) as connection,
        ):
            connection.execute(_MARK_DOUBTFUL)

    def _has_log(self) -> bool:
        """Return whether SQLite's log is there, which the last process removes when it closes the
        file.
        """
        log = None if self.path is None else Path(f"{self.path}-wal")
        return log is not None and log.is_file() and log.stat().st_size > 0

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite.Connection]:
        """Begin a transaction that reads: everything inside is of one moment."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[sqlite.Connection]:
        """Begin a transaction that writes all or nothing. If `durable`, it is on the disk at the
        end.
        """
        with self._transaction("BEGIN IMMEDIATE", durable) as connection:
            yield connection

    @contextlib.contextmanager
    def alone(self) -> Iterator[sqlite.Connection]:
        """Yield the connection, outside any transaction, while no other thread uses it."""
        with self._turn, translated(self.name):
            self._check_open()
            yield self._connection

    def scrub(self) -> bool:
        """Rewrite the file, so that nothing remains of rows that were deleted. Return whether that
        was possible.

        If another process reads it just now, SQLite reuses their space in time.
        """
        with contextlib.suppress(CopyError), self.alone() as connection:
            if not connection.in_transaction:
                # VACUUM writes the new pages to the log. The checkpoint moves them over the old
                # ones.
                connection.execute("VACUUM")
                busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                return not busy
        return False

    @contextlib.contextmanager
    def _transaction(self, begin: str, durable: bool = False) -> Iterator[sqlite.Connection]:
        with self._turn, self._noting_damage(), translated(self.name):
            self._check_open()
            connection = self._connection
            # A nested transaction joins the outer one, which commits or rolls back for both.
            # `durable` then is the outer one's.
            if connection.in_transaction:
                yield connection
                return
            # SQLite refuses to change this inside a transaction, so it is set before BEGIN.
            if durable:
                connection.execute("PRAGMA synchronous = FULL")
            try:
                connection.execute(begin)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                # After some errors, such as a full disk, SQLite itself has rolled back already.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            finally:
                if durable:
                    connection.execute("PRAGMA synchronous = NORMAL")

    @contextlib.contextmanager
    def _noting_damage(self) -> Iterator[None]:
        try:
            yield
        except FileDamaged:
            self._met_damage = True
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"{self.name} was closed")

    # ---- opening

    def _prepare(self) -> None:
        connection = self._connection
        made_by = _pragma(connection, "application_id")
        if self.path is not None and self._key is not None:
            settle_key(self.path, self._key)
        if made_by == 0 and not _tables(connection):
            self._create()
        elif made_by != APPLICATION_ID:
            raise WrongFile(f"{self.name} is a SQLite file of another program, not of copies")
        version = _pragma(connection, "user_version")
        if version > FORMAT:
            raise WrongFile(
                f"{self.name} was made by a newer version (format {version}, this one reads "
                f"{FORMAT}): update the SDK, or keep another file"
            )
        if version < min(_UPGRADES, default=FORMAT):
            raise WrongFile(
                f"{self.name} was made by a development version (format {version}, this one reads "
                f"{FORMAT}): keep a new file, which the first sync fills; batches that wait in the "
                "old one can be sent with the version that made it"
            )
        if version < FORMAT:
            self._upgrade()
        # With NORMAL, a commit survives a killed process, but perhaps not a power cut. That is
        # enough for what the next sync can fetch again.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA temp_store = MEMORY")
        self._use_log()
        # Rows that leave a copy leave the bytes of the file, too: some of them are erased rows.
        connection.execute("PRAGMA secure_delete = ON")

    def _create(self) -> None:
        """Create the tables. If two processes find none, one of them does."""
        connection = self._connection
        self._use_log()
        connection.execute("BEGIN IMMEDIATE")
        if not _tables(connection):
            _execute_all(connection, _TABLES)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")

    def _use_log(self) -> None:
        """Use a write-ahead log, unless the file does: encrypting it may have turned it off."""
        (mode,) = self._connection.execute("PRAGMA journal_mode").fetchone()
        if self.path is not None and mode != "wal":
            # The mode is a property of the file, and can't be changed inside a transaction.
            self._connection.execute("PRAGMA journal_mode = WAL")

    def _upgrade(self) -> None:
        """Take all steps to the present format or none. If two processes try, one of them does."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            # The version is read under the write lock, since another process may have upgraded the
            # file.
            for version in range(_pragma(connection, "user_version"), FORMAT):
                _execute_all(connection, _UPGRADES[version])
            connection.execute(f"PRAGMA user_version = {FORMAT}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _execute_all(connection: sqlite.Connection, script: str) -> None:
    """Run statements inside the open transaction, which `executescript` would end."""
    for statement in script.split(";"):
        connection.execute(statement)


def _pragma(connection: sqlite.Connection, name: str) -> int:
    number: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return number


def check_pages(connection: sqlite.Connection, name: str) -> None:
    """Raise FileDamaged if SQLite's own check of all pages finds an error."""
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise _damaged(name, str(verdict))


def _tables(connection: sqlite.Connection) -> int:
    count: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return count


@contextlib.contextmanager
def translated(name: str) -> Iterator[None]:
    try:
        yield
    except sqlite.ProgrammingError:
        # A wrong use of the module is a bug of the program, not a problem of the file.
        raise
    except sqlite.Error as error:
        raise problem_of(error, name) from error
    except UnicodeDecodeError as error:
        raise _damaged(name, "its schema is no text") from error


def problem_of(error: Exception, name: str) -> CopyError:
    code = _code(error)
    if code in (sqlite.SQLITE_BUSY, sqlite.SQLITE_LOCKED):
        return FileBusy(f"another process has been writing {name} for {BUSY_SECONDS:g} s")
    if code == sqlite.SQLITE_FULL:
        return FileFull(
            f"no room for {name}: {error}. The copies are as they were; make room and sync again"
        )
    if code == sqlite.SQLITE_NOTADB:
        return WrongFile(f"{name} is no SQLite file, or its first page is damaged: {error}")
    if code in (sqlite.SQLITE_CANTOPEN, sqlite.SQLITE_READONLY, sqlite.SQLITE_IOERR):
        return CopyError(f"{name}: {error}")
    return _damaged(name, str(error))


def _code(error: Exception) -> int:
    # The low byte is the primary code; higher bytes make an extended code of it.
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


@contextlib.contextmanager
def _readable_file(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CopyError(f"{name}: {error.strerror}") from error


def _damaged(name: str, what: str) -> FileDamaged:
    return FileDamaged(
        f"{name} is damaged: {what}. Copies.recover(path) makes a new file of what can be read"
    )


_LOCK_POLL_SECONDS = 0.05
_DEFAULT_LOCK_SECONDS = 60.0


class SyncLock:
    """The lock that one sync of a file holds, over all processes and threads.

    It is a lock of SQLite on a second, empty file, so that it is released when its process ends,
    however that happens.
    """

    def __init__(self, file: CopyFile) -> None:
        self._path = None if file.path is None else f"{file.path}-sync"
        self._name = file.name
        self._within = threading.Lock()
        self._connection: sqlite.Connection | None = None

    def acquire(self, timeout: float | None) -> Flow[None]:
        """Wait for the lock. Raises FileBusy after `timeout` seconds."""
        seconds = _DEFAULT_LOCK_SECONDS if timeout is None else timeout
        end = time.monotonic() + seconds
        # The lock is polled, because a flow must not block: an async client runs it on its event
        # loop.
        while not self._try():
            if time.monotonic() >= end:
                raise FileBusy(f"another sync of {self._name} has been under way for {seconds:g} s")
            yield Pause(_LOCK_POLL_SECONDS)

    def release(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._within.release()

    def _try(self) -> bool:
        if not self._within.acquire(blocking=False):
            return False
        try:
            # Copies in memory belong to one process, so the lock between its threads is enough.
            is_acquired = self._path is None or self._try_file(self._path)
        except BaseException:
            self._within.release()
            raise
        if not is_acquired:
            self._within.release()
        return is_acquired

    def _try_file(self, path: str) -> bool:
        with translated(path):
            connection = sqlite.connect(path, timeout=0)
            try:
                connection.execute("BEGIN EXCLUSIVE")
            except sqlite.OperationalError as error:
                connection.close()
                if _code(error) != sqlite.SQLITE_BUSY:
                    raise
                return False
        self._connection = connection
        return True
