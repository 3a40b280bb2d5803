"""The store a file belongs to, its streams, and the name under which the queue publishes.

A file belongs to the first store it meets. While anything waits in its queue, or was put aside,
only `move` changes that: edits must not go to whatever answers at an address.

A publisher's name belongs to one file, unless the file was copied. If the store shows that it was,
the name is used for the batches queued so far, which the other file may have sent under it. Later
batches are certainly of this file, and get a new name.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from client_sdk import _flows
from client_sdk._exceptions import ErrorDetail, OtherStore
from client_sdk._grpc.effects import Flow
from client_sdk._session import Session
from client_sdk._wire.models import Stream
from client_sdk._wire.status import StoreLimits, StoreStatus
from client_sdk._wire.values import Column, from_value, to_value
from client_sdk.copies._file import sqlite
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.records import seal, unseal
from psoup.v1 import psoup_pb2 as pb

# The tenant and the owner of callers at a server without authentication.
_MAIN = "main"


@dataclass(frozen=True, slots=True)
class Home:
    """The store a file belongs to, and the tenant and owner that last used the file there.

    Sequences belong to an owner of a tenant. `limits` are those of the server that last answered.
    """

    store_id: str
    limits: StoreLimits
    tenant: str = _MAIN
    owner: str = _MAIN

    @property
    def caller(self) -> tuple[str, str]:
        return self.tenant, self.owner


def home_of(connection: sqlite.Connection) -> Home | None:
    """Return the home; None before the first contact, or if it can't be read any more."""
    row = connection.execute("SELECT store FROM _psoup_store").fetchone()
    content = unseal(row[0]) if row else None
    if content is None:
        return None
    limits, caller = StoreLimits(**content["limits"]), content.get("caller", (_MAIN, _MAIN))
    return Home(content["store_id"], limits, *caller)


def visit(session: Session, file: CopyFile, *, move: bool = False) -> Flow[Home]:
    """Ask the store for its id, its limits and its name for the caller, and note them in the file.

    For another caller the queue continues under a new name; pieces that may have been sent keep the
    mark of the old one. Raises OtherStore if the file belongs to another store, unless it is to
    `move`.
    """
    status = yield from _flows.status(session, None)
    home = _home(session, status)
    with file.writing(durable=True) as connection:
        before = home_of(connection)
        if before is not None and before.store_id != home.store_id:
            if not move and _is_waited_for(connection):
                raise _other_store(file.name, before, home)
            # Streams and sequences of the store before mean nothing in this one. Batches that were
            # tried there are sent as if for the first time.
            connection.execute("DELETE FROM _psoup_streams")
            connection.execute("DELETE FROM _psoup_queue WHERE acknowledged_at IS NOT NULL")
            connection.execute("UPDATE _psoup_queue SET tried = NULL")
            take_new_name(connection)
        elif before is not None and before.caller != home.caller:
            # Sequences belong to an owner, so another caller begins with a name of its own.
            take_new_name(connection)
        if before != home:
            connection.execute("DELETE FROM _psoup_store")
            content = {
                "store_id": home.store_id,
                "limits": asdict(home.limits),
                "caller": home.caller,
            }
            connection.execute("INSERT INTO _psoup_store VALUES (?)", (seal(content),))
    return home


def _home(session: Session, status: StoreStatus) -> Home:
    security = status.security
    tenant, owner = (security.tenant, security.owner) if security is not None else ("", "")
    caller = session.tenant or tenant or _MAIN, session.owner or owner or _MAIN
    return Home(status.store_id, status.limits, *caller)


def _is_waited_for(connection: sqlite.Connection) -> bool:
    rows = connection.execute("SELECT 1 FROM _psoup_queue WHERE acknowledged_at IS NULL LIMIT 1")
    return rows.fetchone() is not None


def _other_store(name: str, before: Home, home: Home) -> OtherStore:
    detail = ErrorDetail(
        "OTHER_STORE",
        expected=before.store_id,
        got=home.store_id,
        store_id=home.store_id,
        hint="connect to its store, or move the file: Copies.move(client), psoup copy move",
    )
    message = (
        f"{name} belongs to store {before.store_id}, and store {home.store_id} answers here; "
        "what waits in the file was not sent"
    )
    return OtherStore(message, detail=detail)


# The id of the first row that was ever queued. JSON and JavaScript hold such numbers exactly.
FIRST_OWN_ROW = -(2**53) + 1


@dataclass(frozen=True, slots=True)
class Identity:
    """The name under which the queue publishes. With `last_batch` it is used only up to that
    batch.
    """

    name: str
    next_sequence: int
    next_batch: int
    last_batch: int | None = None


def identity(connection: sqlite.Connection) -> Identity:
    """Return the identity, and create it if there is none."""
    select = "SELECT name, next_sequence, next_batch, last_batch FROM _psoup_publisher"
    row = connection.execute(select).fetchone()
    if row is None:
        row = (_random_name(), 1, 1, None)
        connection.execute(
            "INSERT INTO _psoup_publisher VALUES (?, ?, ?, ?, ?)", (*row, FIRST_OWN_ROW)
        )
    return Identity(*row)


def identity_for(connection: sqlite.Connection, batch: int) -> Identity:
    """Return the identity for a batch. Create a new one if the present one ends before the
    batch.
    """
    current = identity(connection)
    if current.last_batch is None or batch <= current.last_batch:
        return current
    take_new_name(connection)
    return identity(connection)


def new_batch(connection: sqlite.Connection) -> int:
    """Return the number of another batch."""
    number = identity(connection).next_batch
    connection.execute("UPDATE _psoup_publisher SET next_batch = next_batch + 1")
    return number


def new_rows(connection: sqlite.Connection, count: int) -> int:
    """Return the first of `count` ids for rows that wait, which are negative and ascend.

    A piece without rows takes one, so that the first id of each piece is its own.
    """
    identity(connection)
    select = "SELECT next_row FROM _psoup_publisher"
    first: int = connection.execute(select).fetchone()[0]
    taken = max(count, 1)
    connection.execute("UPDATE _psoup_publisher SET next_row = next_row + ?", (taken,))
    return first


def take_new_name(connection: sqlite.Connection) -> None:
    """Take another name, whose sequences begin with 1."""
    connection.execute(
        "UPDATE _psoup_publisher SET name = ?, next_sequence = 1, last_batch = NULL",
        (_random_name(),),
    )


def use_up(connection: sqlite.Connection, name: str, sequence: int, *, end: bool = False) -> None:
    """Count a sequence as used. With `end`, batches that are queued later get another name."""
    # The batches queued so far end with next_batch - 1; an end that is already set stays. The
    # condition makes this do nothing if another process has moved on.
    until = "coalesce(last_batch, next_batch - 1)" if end else "last_batch"
    connection.execute(
        f"UPDATE _psoup_publisher SET next_sequence = ?, last_batch = {until} "
        "WHERE name = ? AND next_sequence = ?",
        (sequence + 1, name, sequence),
    )


def _random_name() -> str:
    return f"copies-{secrets.token_hex(12)}"


_MICROSECOND = timedelta(microseconds=1)


def cache_stream(connection: sqlite.Connection, stream: Stream) -> None:
    """Note the description of a stream, in place of an earlier one."""
    sealed = seal(stream_content(stream))
    connection.execute("INSERT OR REPLACE INTO _psoup_streams VALUES (?, ?)", (stream.name, sealed))


def published_streams(connection: sqlite.Connection) -> list[str]:
    """Return the names of the streams whose descriptions the file has, if it has published rows:
    only then are they checked."""
    if connection.execute("SELECT 1 FROM _psoup_publisher").fetchone() is None:
        return []
    return [name for (name,) in connection.execute("SELECT name FROM _psoup_streams")]


def cached_stream(connection: sqlite.Connection, name: str) -> Stream | None:
    """Return the description of a stream; None if it is unknown, or can't be read any more.

    Its counts have no meaning. Names that differ by case are one stream, as in the store.
    """
    rows = connection.execute("SELECT stream FROM _psoup_streams WHERE name = ?", (name.lower(),))
    content = unseal((rows.fetchone() or [None])[0])
    return None if content is None else stream_from(content)


def stream_content(stream: Stream) -> dict[str, Any]:
    return {
        "name": stream.name,
        "id": stream.id,
        "columns": [_column_content(column) for column in stream.columns],
        "ordered_by": stream.ordered_by,
        "retain": None if stream.retain is None else stream.retain // _MICROSECOND,
        "ahead": stream.ahead // _MICROSECOND,
        "sql": stream.sql,
        "key": list(stream.key),
        "dropped": list(stream.dropped),
        "by_clock": stream.by_clock,
    }


def _column_content(column: Column) -> list[Any]:
    """Return the name, the type, of an optional column the default as a message of the wire, and
    the former names."""
    default = to_value(column.default).SerializeToString().hex() if column.optional else None
    return [column.name, column.type, default, list(column.former)]


def _column_from(name: str, type_: str, default: str | None, former: list[str]) -> Column:
    if default is None:
        return Column(name, type_, former=tuple(former))
    value = from_value(pb.Value.FromString(bytes.fromhex(default)))
    return Column(name, type_, True, value, tuple(former))


def stream_from(content: dict[str, Any]) -> Stream:
    retain = content["retain"]
    return Stream(
        name=content["name"],
        id=content["id"],
        columns=tuple(_column_from(*parts) for parts in content["columns"]),
        ordered_by=content["ordered_by"],
        retain=None if retain is None else retain * _MICROSECOND,
        ahead=content["ahead"] * _MICROSECOND,
        row_count=0,
        now=None,
        sql=content["sql"],
        registration_count=0,
        key=tuple(content["key"]),
        dropped=tuple(content["dropped"]),
        by_clock=content.get("by_clock", False),
    )


def learn(session: Session, file: CopyFile, name: str) -> Flow[Stream]:
    """Ask for the description of a stream, and note it in the file."""
    stream = yield from _flows.stream(session, name)
    with file.writing() as connection:
        cache_stream(connection, stream)
    return stream
