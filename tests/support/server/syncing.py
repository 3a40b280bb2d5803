"""The calls that tests of Sync and Watch make of a server, and what they look at."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from psoup.v1 import psoup_pb2 as pb
from tests.oracle.copy import Copy
from tests.support.server.process import ServerProcess

SQL = "CREATE STREAM s (a BIGINT, b TEXT)"


def numbers(first: int, count: int) -> pa.Table:
    return pa.table(
        {"a": pa.array(range(first, first + count)), "b": pa.array(["some text"] * count)}
    )


def parts_of(server: ServerProcess, *items: pb.SyncItem, **fields: Any) -> list[pb.SyncPart]:
    request = pb.SyncRequest(tenant=server.tenant, items=items, **fields)
    return list(server.stub.Sync(request, timeout=120))


def item_of(handle: bytes, copy: Copy, **fields: Any) -> pb.SyncItem:
    return pb.SyncItem(handle=handle, token=copy.resume or copy.token, **fields)


def recharge(server: ServerProcess, handle: bytes, copy: Copy, **fields: Any) -> list[pb.SyncPart]:
    parts = parts_of(server, item_of(handle, copy, **fields))
    for part in parts:
        copy.take(part)
    assert copy.sound() and not copy.damaged()
    return parts


def begin_of(parts: list[pb.SyncPart]) -> pb.SyncBegin:
    return parts[0].begin


def size_of(parts: list[pb.SyncPart]) -> int:
    """With the five bytes gRPC puts before each message."""
    return sum(part.ByteSize() + 5 for part in parts)
