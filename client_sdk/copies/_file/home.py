"""A file knows its store: whose it is, its streams, and under which name the queue publishes.

A file belongs to the first store it meets. While anything waits in its queue, or was put aside,
only `move` makes it another's: edits must not end in whatever answers at an address.

A publisher's name belongs to one file, unless the file was copied. If the store shows that it
was, the name is kept for the batches that were there by then, which the other file may have sent
under it, and ends with the last of them; later ones are certainly of this file and get a new name.
"""

from __future__ import annotations

import secrets
import sqlite3
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from client_sdk import _flows
from client_sdk._exceptions import ErrorDetail, OtherStore
from client_sdk._grpc.effects import Flow
from client_sdk._session import Session
from client_sdk._wire.models import Stream
from client_sdk._wire.status import StoreLimits, StoreStatus
from client_sdk._wire.values import Column
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.records import seal, unseal

# The tenant and the owner of callers whom nobody asks who they are.
_MAIN = "main"


@dataclass(frozen=True, slots=True)
class Home:
    """The store a file belongs to, and for whom the file was last used there: sequences belong to
    an owner of a tenant. `limits` are those of the server that was last asked."""

    store_id: str
    limits: StoreLimits
    tenant: str = _MAIN
    owner: str = _MAIN

    @property
    def caller(self) -> tuple[str, str]:
        return self.tenant, self.owner


def home_of(connection: sqlite3.Connection) -> Home | None:
    """Read the home; None before the first contact, and where it can't be read any more."""
    row = connection.execute("SELECT store FROM _psoup_store").fetchone()
    content = unseal(row[0]) if row else None
    if content is None:
        return None
    limits, caller = StoreLimits(**content["limits"]), content.get("caller", (_MAIN, _MAIN))
    return Home(content["store_id"], limits, *caller)


def visit(session: Session, file: CopyFile, *, move: bool = False) -> Flow[Home]:
    """Ask the store who it is, what it takes and whom it takes the caller for, and keep that.

    For another caller the queue goes on under a new name; pieces that may have been sent keep the
    mark of the name before. Raise OtherStore if the file belongs to another store, unless it is
    to `move`.
    """
    status = yield from _flows.status(session, None)
    found = _home(session, status)
    with file.writing(durable=True) as connection:
        before = home_of(connection)
        if before is not None and before.store_id != found.store_id:
            if not move and _is_waited_for(connection):
                raise _other(file.name, before, found)
            connection.execute("DELETE FROM _psoup_streams")
            connection.execute("UPDATE _psoup_queue SET tried = NULL")
            begin_anew(connection)
        elif before is not None and before.caller != found.caller:
            begin_anew(connection)
        if before != found:
            connection.execute("DELETE FROM _psoup_store")
            content = {
                "store_id": found.store_id,
                "limits": asdict(found.limits),
                "caller": found.caller,
            }
            connection.execute("INSERT INTO _psoup_store VALUES (?)", (seal(content),))
    return found


def _home(session: Session, status: StoreStatus) -> Home:
    security = status.security
    tenant, owner = (security.tenant, security.owner) if security is not None else ("", "")
    caller = session.tenant or tenant or _MAIN, session.owner or owner or _MAIN
    return Home(status.store_id, status.limits, *caller)


def _is_waited_for(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM _psoup_queue LIMIT 1").fetchone() is not None


def _other(name: str, before: Home, found: Home) -> OtherStore:
    detail = ErrorDetail(
        "OTHER_STORE",
        expected=before.store_id,
        got=found.store_id,
        store_id=found.store_id,
        hint="connect to its store, or move the file: Copies.move(client), psoup copy move",
    )
    message = (
        f"{name} belongs to store {before.store_id}, and store {found.store_id} answers here; "
        "what waits in the file was not sent"
    )
    return OtherStore(message, detail=detail)


@dataclass(frozen=True, slots=True)
class Identity:
    """The queue publishes under a name; with `last_batch` None the name is for every batch."""

    name: str
    next_sequence: int
    next_batch: int
    last_batch: int | None = None


def identity(connection: sqlite3.Connection) -> Identity:
    """Read the identity, and makes it if there is none."""
    select = "SELECT name, next_sequence, next_batch, last_batch FROM _psoup_publisher"
    row = connection.execute(select).fetchone()
    if row is None:
        row = (_random_name(), 1, 1, None)
        connection.execute("INSERT INTO _psoup_publisher VALUES (?, ?, ?, ?)", row)
    return Identity(*row)


def identity_for(connection: sqlite3.Connection, batch: int) -> Identity:
    """Read the identity for a batch; makes a new one where that of the file ends before the
    batch.
    """
    found = identity(connection)
    if found.last_batch is None or batch <= found.last_batch:
        return found
    begin_anew(connection)
    return identity(connection)


def new_batch(connection: sqlite3.Connection) -> int:
    """Return the number of one more batch."""
    number = identity(connection).next_batch
    connection.execute("UPDATE _psoup_publisher SET next_batch = next_batch + 1")
    return number


def begin_anew(connection: sqlite3.Connection) -> None:
    """Take another name, whose sequences begin with 1."""
    connection.execute(
        "UPDATE _psoup_publisher SET name = ?, next_sequence = 1, last_batch = NULL",
        (_random_name(),),
    )


def use_up(connection: sqlite3.Connection, name: str, sequence: int, *, end: bool = False) -> None:
    """Count a sequence as used. With `end` the name is for no batch that is queued later."""
    until = "coalesce(last_batch, next_batch - 1)" if end else "last_batch"
    connection.execute(
        f"UPDATE _psoup_publisher SET next_sequence = ?, last_batch = {until} "
        "WHERE name = ? AND next_sequence = ?",
        (sequence + 1, name, sequence),
    )


def _random_name() -> str:
    return f"copies-{secrets.token_hex(12)}"


_MICROSECOND = timedelta(microseconds=1)


def remember(connection: sqlite3.Connection, stream: Stream) -> None:
    """Keep what a stream is like, in place of what was known of it."""
    sealed = seal(stream_content(stream))
    connection.execute("INSERT OR REPLACE INTO _psoup_streams VALUES (?, ?)", (stream.name, sealed))


def remembered(connection: sqlite3.Connection, name: str) -> Stream | None:
    """Read what a stream is like; None if that is not known, or can't be read any more.

    Its counts have no meaning. Names that differ by case are one stream, as in the store.
    """
    rows = connection.execute("SELECT stream FROM _psoup_streams WHERE name = ?", (name.lower(),))
    content = unseal((rows.fetchone() or [None])[0])
    return None if content is None else stream_from(content)


def stream_content(stream: Stream) -> dict[str, Any]:
    return {
        "name": stream.name,
        "id": stream.id,
        "columns": [[column.name, column.type] for column in stream.columns],
        "ordered_by": stream.ordered_by,
        "retain": None if stream.retain is None else stream.retain // _MICROSECOND,
        "ahead": stream.ahead // _MICROSECOND,
        "sql": stream.sql,
        "key": list(stream.key),
    }


def stream_from(content: dict[str, Any]) -> Stream:
    retain = content["retain"]
    return Stream(
        name=content["name"],
        id=content["id"],
        columns=tuple(Column(*pair) for pair in content["columns"]),
        ordered_by=content["ordered_by"],
        retain=None if retain is None else retain * _MICROSECOND,
        ahead=content["ahead"] * _MICROSECOND,
        row_count=0,
        now=None,
        sql=content["sql"],
        registration_count=0,
        key=tuple(content["key"]),
    )


def learn(session: Session, file: CopyFile, name: str) -> Flow[Stream]:
    """Ask for a stream and keeps what it is like."""
    stream = yield from _flows.stream(session, name)
    with file.writing() as connection:
        remember(connection, stream)
    return stream
