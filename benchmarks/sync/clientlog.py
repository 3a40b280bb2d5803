"""A log per client, the other way to send a client that was away what it has missed.

For each registration the rows that match are appended to a log of its own as they come, and the
client reads on from its offset: what systems that replicate by subscription do. It gets every
advantage there is: rows in the same encoding as ours but without ids, checksums and instants; a
client that lets rows expire by itself; zstd over everything that is read, where that is smaller;
and a *compacted* read that leaves out rows of a key that a later one replaces, and rows that have
left the window.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
import pyarrow as pa

from benchmarks.baseline import served
from benchmarks.sync.calls import OPTIONS, Received
from datastem.schema import Column
from psoup.server.wire.values import to_rows
from psoup.v1 import psoup_pb2 as pb

METHOD = "/psoup.benchmark.Logs/Read"
PIECE = 256 << 10
_CODEC = pa.Codec("zstd")
NUMBER = 8


def encoded(rows: pa.Table, columns: Sequence[Column]) -> list[bytes]:
    """An entry for each row: its length, and its values as Publish and Invoke send them."""
    entries = []
    for batch in rows.to_batches():
        for message in to_rows([batch], columns, 1 << 62):
            entries += [entry(row) for row in message.rows]
    return entries


def entry(row: pb.Row) -> bytes:
    return pb.Rows(rows=[row]).SerializeToString()


def sent(entries: Sequence[bytes]) -> bytes:
    """As a read answers: the new offset, then the entries."""
    return bytes(NUMBER) + packed(b"".join(entries))


def packed(content: bytes) -> bytes:
    if len(content) < 2 * PIECE:
        small = bytes(_CODEC.compress(content, asbytes=True)) if content else b""
        return small if len(small) < len(content) else content
    return bytes(_CODEC.compress(content, asbytes=True))


class ClientLogs:
    """One file each, appended to and never written otherwise."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def append(self, name: str, entries: Sequence[bytes]) -> int:
        """The bytes written."""
        content = b"".join(entries)
        with (self._folder / name).open("ab") as file:
            file.write(content)
        return len(content)

    def size(self, name: str) -> int:
        path = self._folder / name
        return path.stat().st_size if path.exists() else 0


# ---- reading, over gRPC as every answer comes


@contextmanager
def log_server(folder: Path) -> Iterator[LogReader]:
    with (
        served("benchmarks.sync.logserver", str(folder)) as target,
        grpc.insecure_channel(target, OPTIONS) as channel,
    ):
        yield LogReader(channel)


class LogReader:
    def __init__(self, channel: grpc.Channel) -> None:
        self._call = channel.unary_stream(METHOD, None, None)

    def read(self, name: str, offset: int) -> Received:
        request = json.dumps([name, offset]).encode()
        began = time.perf_counter()
        messages = list(self._call(request))
        return Received(messages, len(request), time.perf_counter() - began)
