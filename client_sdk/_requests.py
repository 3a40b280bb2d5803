"""The requests of a client's methods: arguments checked and put into messages."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from client_sdk._session import Session
from client_sdk._wire.ipc import to_ipc
from client_sdk._wire.rows import is_pandas
from client_sdk._wire.values import (
    MOST_TYPED_BYTES,
    MOST_TYPED_FIELDS,
    Scalar,
    duration,
    timestamp,
    to_arrow,
    to_rows,
    to_value,
)
from psoup.v1 import psoup_pb2 as pb

# What a request has besides its rows, at most.
_ENVELOPE_FIELDS = 20

# "then": only rows accepted by as_of. "today": all rows, with NOW set back to as_of.
Knowledge: TypeAlias = Literal["then", "today"]


class Seen(enum.Enum):
    """The type of SEEN, which stands for the newest position that the client has seen."""

    SEEN = "seen"


SEEN = Seen.SEEN


def register_request(
    session: Session,
    sql: str,
    key: str | None,
    parameters: Mapping[str, Scalar] | None,
    lease: timedelta | None,
    replace: bool = False,
) -> pb.RegisterRequest:
    if replace and not key:
        raise ValueError("a query is replaced under its key: give the key too")
    return pb.RegisterRequest(
        tenant=session.tenant,
        owner=session.owner,
        client_key=key or "",
        sql=sql,
        parameters={name: to_value(value) for name, value in (parameters or {}).items()},
        lease=None if lease is None else duration(lease),
        replace=replace,
    )


def register_many_request(
    session: Session, sql: str, table: Any, lease: timedelta | None
) -> tuple[pb.RegisterManyRequest, bool]:
    """Return the request, and whether every row has a client key, so that it may be repeated."""
    request = pb.RegisterManyRequest(
        tenant=session.tenant,
        owner=session.owner,
        sql=sql,
        lease=None if lease is None else duration(lease),
    )
    if is_pandas(table):
        table = pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata()
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if isinstance(table, pa.Table):
        request.arrow = to_ipc(table)
        return request, _all_keyed(table)
    rows = list(table)
    # Fields are counted before the message is built: the rows, their values, and the names once. A
    # table with too many goes as Arrow.
    if sum(len(row) + 1 for row in (*rows, *rows[:1])) <= MOST_TYPED_FIELDS - _ENVELOPE_FIELDS:
        request.rows.CopyFrom(to_rows(rows))
    if not request.HasField("rows") or request.ByteSize() > MOST_TYPED_BYTES:
        request.arrow = to_ipc(to_arrow(rows))
    return request, bool(rows) and all(row.get("client_key") for row in rows)


def _all_keyed(table: pa.Table) -> bool:
    if "client_key" not in table.column_names:
        return False
    return bool(table.num_rows > 0 and table.column("client_key").null_count == 0)


def invoke_request(
    session: Session,
    window: str | None,
    as_of: datetime | None,
    knowledge: str,
    least_position: bytes | Seen | None,
    wait_for_engine: bool,
    unrefreshed: bool,
    latest: bool,
) -> pb.InvokeRequest:
    return pb.InvokeRequest(
        tenant=session.tenant,
        window=window or "",
        as_of=None if as_of is None else timestamp(as_of),
        knowledge=_knowledge(knowledge, as_of),
        least_position=_least(session, least_position),
        encoding=pb.ENCODING_ARROW,
        wait_for_engine=wait_for_engine,
        unrefreshed=unrefreshed,
        latest=_latest(latest, as_of),
        one_message=True,
    )


def ask_request(
    session: Session,
    sql: str,
    parameters: Mapping[str, Scalar] | None,
    as_of: datetime | None,
    knowledge: str,
    least_position: bytes | Seen | None,
    unrefreshed: bool,
    latest: bool,
) -> pb.AskRequest:
    return pb.AskRequest(
        tenant=session.tenant,
        sql=sql,
        parameters={name: to_value(value) for name, value in (parameters or {}).items()},
        as_of=None if as_of is None else timestamp(as_of),
        knowledge=_knowledge(knowledge, as_of),
        least_position=_least(session, least_position),
        encoding=pb.ENCODING_ARROW,
        unrefreshed=unrefreshed,
        latest=_latest(latest, as_of),
        one_message=True,
    )


def _knowledge(knowledge: str, as_of: datetime | None) -> pb.Knowledge:
    if knowledge not in ("then", "today"):
        raise ValueError(f'knowledge is "then" or "today", not {knowledge!r}')
    if knowledge == "today" and as_of is None:
        raise ValueError('knowledge="today" needs as_of: without it everything is known anyway')
    return pb.KNOWLEDGE_TODAY if knowledge == "today" else pb.KNOWLEDGE_UNSPECIFIED


def _latest(latest: bool, as_of: datetime | None) -> bool:
    if latest and as_of is not None:
        raise ValueError("latest and as_of are two instants: leave one of them out")
    return latest


def _least(session: Session, least_position: bytes | Seen | None) -> bytes:
    least = session.position if isinstance(least_position, Seen) else least_position
    return least or b""
