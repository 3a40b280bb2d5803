"""The store a file belongs to: whose word counts about what waits, and how much it takes at once.

A file belongs to the first store it meets. While anything of it waits there, or was put aside, only
`move` makes it another's: edits must not end in whatever answers at an address.
"""

from __future__ import annotations

import sqlite3
from dataclasses import asdict, dataclass

from client_sdk import _flows
from client_sdk._exceptions import ErrorDetail, OtherStore
from client_sdk._grpc.effects import Flow
from client_sdk._session import Session
from client_sdk._wire.status import StoreLimits
from client_sdk.copies._file import CopyFile
from client_sdk.copies._identity import begin_anew
from client_sdk.copies._sealed import seal, unseal


@dataclass(frozen=True, slots=True)
class Home:
    """`limits` are those of the server that was last asked."""

    store_id: str
    limits: StoreLimits


def home_of(connection: sqlite3.Connection) -> Home | None:
    """None before the first contact, and where it can't be read any more."""
    row = connection.execute("SELECT store FROM _psoup_store").fetchone()
    content = unseal(row[0]) if row else None
    if content is None:
        return None
    return Home(content["store_id"], StoreLimits(**content["limits"]))


def visit(session: Session, file: CopyFile, *, move: bool = False) -> Flow[Home]:
    """Asks the store who it is and what it takes, and keeps that.

    Raises OtherStore where the file belongs to another one, unless it is to `move`.
    """
    status = yield from _flows.status(session, None)
    found = Home(status.store_id, status.limits)
    with file.writing(durable=True) as connection:
        before = home_of(connection)
        if before is not None and before.store_id != found.store_id:
            if not move and _is_waited_for(connection):
                raise _other(file.name, before, found)
            connection.execute("DELETE FROM _psoup_streams")
            begin_anew(connection)
        if before != found:
            connection.execute("DELETE FROM _psoup_store")
            content = {"store_id": found.store_id, "limits": asdict(found.limits)}
            connection.execute("INSERT INTO _psoup_store VALUES (?)", (seal(content),))
    return found


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
