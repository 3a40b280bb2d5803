"""Copies of base rows: their queries, so that the answer can be computed offline.

The text, its parameters and the streams come from the store when the copy is first synced, and
again when it is registered again; from then on no connection is needed. The store's own evaluator
computes the answer, so that client and store can't disagree. It needs numpy and sqlglot, which the
SDK does not need otherwise: `require` says so if they are missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Protocol

import pyarrow as pa

from client_sdk import _flows
from client_sdk._exceptions import (
    ConnectionFailed,
    FileDamaged,
    PsoupError,
    Timeout,
)
from client_sdk._grpc.effects import Flow
from client_sdk._session import Session
from client_sdk._wire.models import Registration, Stream
from client_sdk._wire.values import Column, Scalar, from_value, to_value
from client_sdk.copies._file import sqlite, tables
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.home import learn, stream_content, stream_from
from client_sdk.copies._file.records import Declaration, seal, unseal
from psoup.v1 import psoup_pb2 as pb


def learn_computation(
    file: CopyFile, session: Session, declaration: Declaration
) -> Flow[PsoupError | None]:
    """Learn how the answer is computed, if that is unknown. Return the error if it can't be
    computed.

    Raises ConnectionFailed or Timeout if the store can't be asked.
    """
    if not declaration.base_rows or not declaration.handle:
        return None
    with file.reading() as connection:
        if is_learnt(connection, declaration):
            return None
    try:
        registration, streams = yield from ask_query(file, session, declaration)
        # Prepared only to find out whether the answer can be computed.
        prepare(registration.sql, registration.parameters, streams, declaration.window)
    except (ConnectionFailed, Timeout):
        raise
    except PsoupError as error:
        return error
    keep_query(file, declaration, registration, streams)
    return None


def ask_query(
    file: CopyFile, session: Session, declaration: Declaration
) -> Flow[tuple[Registration, list[Stream]]]:
    """Ask for the registration of a copy, and for its streams as the text was bound to them, the
    first of the query first."""
    registration = yield from _flows.registration(session, declaration.handle)
    yield from learn(session, file, registration.stream)
    streams = []
    for name in dict.fromkeys([registration.stream, *(leg.stream for leg in registration.legs)]):
        stream = yield from _flows.stream_as_of(session, name, registration.position)
        streams.append(stream)
    return registration, streams


def computation_of(connection: sqlite.Connection, declaration: Declaration) -> Computation | None:
    """Return how the answer is computed; None if the copy is the answer.

    Raises FileDamaged if it can't be read.
    """
    if not declaration.base_rows:
        return None
    content = content_of(connection, declaration)
    if content is None:
        raise FileDamaged(
            f"how {declaration.name} is computed can't be read any more; the next sync repairs it"
        )
    return _prepared(content)


def sync_window(connection: sqlite.Connection, declaration: Declaration) -> str:
    """Return the window to request from the store."""
    content = content_of(connection, declaration) if declaration.base_rows else None
    return declaration.window if content is None else _prepared(content).sync_window


def content_of(connection: sqlite.Connection, declaration: Declaration) -> str | None:
    """Return the sealed record of a copy's query; None if there is none that can be read.

    It may be of an earlier registration of the same text.
    """
    rows = connection.execute(
        "SELECT content FROM _psoup_computed WHERE copy_id = ?", (declaration.copy_id,)
    )
    sealed = (rows.fetchone() or [None])[0]
    return None if unseal(sealed) is None else sealed


def is_learnt(connection: sqlite.Connection, declaration: Declaration) -> bool:
    """Return whether the file has the query of the copy's registration."""
    content = unseal(content_of(connection, declaration))
    return content is not None and content["handle"] == declaration.handle.hex()


# Reads would otherwise parse and bind the text each time. The key is the whole sealed record, so a
# replaced query never gets the computation of the one before.
@lru_cache(maxsize=256)
def _prepared(sealed: str) -> Computation:
    return prepare(*query_in(sealed))


def query_in(sealed: str) -> tuple[str, dict[str, Scalar], list[Stream], str]:
    """Return the text, the parameters, the streams and the window of a sealed record."""
    content = unseal(sealed)
    assert content is not None
    parameters = {
        name: from_value(pb.Value.FromString(bytes.fromhex(value)))
        for name, value in content["parameters"].items()
    }
    streams = [stream_from(stream) for stream in (content["stream"], *content.get("others", ()))]
    return content["sql"], parameters, streams, content["window"]


def keep_query(
    file: CopyFile, declaration: Declaration, registration: Registration, streams: Sequence[Stream]
) -> None:
    """Write the query of a copy and its streams to the file."""
    stream, *others = map(stream_content, streams)
    values = {name: to_value(value) for name, value in registration.parameters.items()}
    content = {
        "handle": declaration.handle,
        "window": declaration.window,
        "sql": registration.sql,
        "parameters": {name: value.SerializeToString() for name, value in values.items()},
        "stream": stream,
        "others": others,
    }
    with file.writing() as connection:
        # Own rows were evaluated by the query before.
        connection.execute(f"DROP TABLE IF EXISTS {tables.overlay_table(declaration.copy_id)}")
        connection.execute(
            "INSERT OR REPLACE INTO _psoup_computed VALUES (?, ?)",
            (declaration.copy_id, seal(content)),
        )


# What a table of base rows calls the id of a row.
ROW_ID = "_row_id"

_NEEDED = ("numpy", "sqlglot")


class Computation(Protocol):
    """One registered query, bound."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the answer."""

    @property
    def sync_window(self) -> str:
        """The window whose base rows are to be synced; empty for the registered one."""

    def answer(
        self,
        rows: pa.Table,
        now: datetime | None,
        statuses: Mapping[int, str] | None = None,
        zones: str = "",
    ) -> pa.Table:
        """Return what the store would answer at `now`, given no new data, in its order and types.

        `rows` are those of the copy that are visible at `now`, in any order: `_row_id` and the
        columns the store sent. `statuses` are those of own rows, by their ids: then a last column
        has the status of rows that are made of own ones. `zones` has the store's rules of time
        zones, as the shape of the copy has them. Raises ValueError if these are not the
        columns of this query.
        """


def prepare(
    sql: str,
    parameters: Mapping[str, Scalar] | None,
    streams: Sequence[Stream],
    window: str | None,
) -> Computation:
    """Return the computation of a query over some streams. `window` is that of the copy, if it is
    not the registered one.

    Raises NotComputable, QueryProblem for a wrong text, and ModuleNotFoundError if numpy or sqlglot
    is missing.
    """
    require()
    # Imported here, because the rest of the SDK works without numpy and sqlglot.
    from client_sdk.copies._query.compute import computation

    return computation(sql, parameters or {}, streams, window or "")


def require() -> None:
    """Raise ModuleNotFoundError, with what to install, if `prepare` can't work."""
    try:
        for name in _NEEDED:
            __import__(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"base rows and edits are computed with {' and '.join(_NEEDED)}, and {error.name} is "
            "missing: pip install 'psoup[offline]', or keep the copy without base_rows and edits",
            name=error.name,
        ) from error
