"""Small messages that would be large in memory: refused before they are made."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pyarrow as pa
import pytest

from datastem.accept import Limits, accept
from datastem.errors import RowError
from datastem.schema import Column, StreamSchema
from datastem.types import TEXT
from psoup.server.admission import weight
from psoup.server.wire.arrow import measure, read_table
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from tests.server.conftest import Start
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ServerProcess, detail, ipc

MB = 1 << 20
LIMITS = Limits(batch_bytes=8 * MB)


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """Counts what Arrow allocates during a test."""
    before = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counting)
    yield counting
    pa.set_memory_pool(before)


def packed(table: pa.Table, codec: str = "zstd") -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def zeros(nbytes: int) -> pa.Array:
    return pa.array(np.zeros(nbytes // 8, np.int64))


TABLES = {
    "plain": lambda: pa.table({"a": zeros(40 * MB)}),
    "nested": lambda: pa.table({"a": pa.StructArray.from_arrays([zeros(40 * MB)], ["b"])}),
    "lists": lambda: pa.table({"a": pa.FixedSizeListArray.from_arrays(zeros(40 * MB), 8)}),
    "dictionary": lambda: pa.table(
        {"a": pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), zeros(40 * MB))}
    ),
}


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("name", TABLES)
def test_a_bomb_is_refused_with_nothing_unpacked(
    name: str, codec: str, pool: pa.MemoryPool
) -> None:
    bomb = packed(TABLES[name](), codec)
    assert len(bomb) < MB
    with pytest.raises(RowError) as refused:
        read_table(bomb, LIMITS)
    assert refused.value.reason == "BATCH_TOO_LARGE"
    assert pool.max_memory() < MB
    pa.ipc.open_stream(bomb).read_all()
    assert pool.max_memory() >= 40 * MB, "it would have been counted"


def test_lengths_that_lie(pool: pa.MemoryPool) -> None:
    honest = packed(pa.table({"a": zeros(4 * MB)}))
    length = struct.pack("<q", 4 * MB)
    assert honest.count(length) == 1
    for lie, reason in ((1 << 62, "BATCH_TOO_LARGE"), (-2, "MALFORMED_ARROW")):
        with pytest.raises(RowError) as refused:
            read_table(honest.replace(length, struct.pack("<q", lie)), LIMITS)
        assert refused.value.reason == reason


def test_what_is_measured() -> None:
    table = pa.table({"a": zeros(MB), "t": ["x" * 8] * (MB // 8)})
    plain, small = measure(ipc(table), LIMITS), measure(packed(table), LIMITS)
    assert plain.rows == small.rows == MB // 8
    assert table.nbytes <= plain.nbytes <= table.nbytes + 1000
    assert table.nbytes <= small.nbytes <= 2 * table.nbytes
    assert not plain.dictionaries
    coded = pa.table({"t": pa.array(["a", "b"]).dictionary_encode()})
    assert measure(ipc(coded), LIMITS).dictionaries


def _repeated(text: bytes, count: int) -> pa.Array:
    offsets = pa.py_buffer(struct.pack("<ii", 0, len(text)))
    value = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(text)])
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), value)


def test_a_dictionary_that_is_not_text_is_not_expanded(pool: pa.MemoryPool) -> None:
    schema = StreamSchema("s", (Column("t", TEXT),))
    table = pa.table({"t": _repeated(b"\xff" * MB, 100_000)})
    with pytest.raises(RowError) as refused:
        accept(table, schema, 0, LIMITS)
    assert (refused.value.reason, refused.value.row) == ("INVALID_UTF8", 0)
    assert pool.max_memory() < 8 * MB


def test_columns_are_limited_together(pool: pa.MemoryPool) -> None:
    names = [f"t{number}" for number in range(50)]
    schema = StreamSchema("s", tuple(Column(name, TEXT) for name in names))
    table = pa.table({name: _repeated(b"x" * 1000, 6000) for name in names})
    with pytest.raises(RowError) as refused:
        accept(table, schema, 0, LIMITS)
    assert refused.value.reason == "BATCH_TOO_LARGE"
    assert pool.max_memory() < 4 * LIMITS.batch_bytes


def test_values_weigh_more_than_their_message_and_arrow_is_weighed_later() -> None:
    method = "/psoup.v1.Psoup/Publish"
    row = pb.Row(values=[pb.Value(boolean=True)] * 10)
    values = pb.PublishRequest(stream="s", rows=pb.Rows(rows=[row] * 100)).SerializeToString()
    assert weight(method, values) == (40 * len(values), 40 * len(values))
    arrow = pb.PublishRequest(stream="s", arrow=b"x" * 1000).SerializeToString()
    assert weight(method, arrow) == (0, 0)
    parsing, kept = weight("/psoup.v1.Psoup/Sync", values)
    assert parsing > kept > len(values)
    for damaged in (b"", b"\xff", b"\x0a", b"\x07\x07", b"\x08\x01" * 1000):
        assert weight(method, damaged)[0] == 40 * len(damaged)


@pytest.mark.process
def test_many_large_batches_at_once_are_taken_or_told_to_come_back(start: Start) -> None:
    server = start("--memory", "64MB", "--durability", "none")
    server.define("CREATE STREAM s (v BIGINT)")
    bomb, batch = packed(pa.table({"v": zeros(40 * MB)})), packed(pa.table({"v": zeros(2 * MB)}))

    def publish(arrow: bytes) -> str:
        try:
            server.stub.Publish(pb.PublishRequest(stream="s", arrow=arrow))
        except grpc.RpcError as error:
            found = detail(error)
            assert found.reason != "OVERLOADED" or found.retry_after.seconds >= 1
            return str(found.reason)
        return "taken"

    with ThreadPoolExecutor(24) as threads:
        seen = list(threads.map(publish, [bomb, batch] * 12))
    assert set(seen[::2]) == {"BATCH_TOO_LARGE"}
    assert set(seen[1::2]) <= {"taken", "OVERLOADED"}
    assert "taken" in seen
    _, counted = server.ask("SELECT count(*) AS n FROM s")
    assert counted["n"].to_pylist() == [seen.count("taken") * 2 * MB // 8]
    status = server.stub.Status(pb.StatusRequest())
    assert status.cache_bytes <= status.cache_limit_bytes


@pytest.mark.process
def test_a_message_that_grpc_unpacks_to_more_than_the_limit(server: ServerProcess) -> None:
    request = pb.PublishRequest(stream="s", arrow=bytes(100 * MB))
    for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
        with pytest.raises(grpc.RpcError) as refused:
            server.stub.Publish(request, compression=compression)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.process
def test_a_message_that_is_none(server: ServerProcess) -> None:
    call = server.channel.unary_unary("/psoup.v1.Psoup/Status", bytes, bytes)
    with pytest.raises(grpc.RpcError) as refused:
        call(b"\xff\xff\xff")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert detail(refused.value).reason == "BAD_REQUEST"


@pytest.mark.process
def test_rows_are_refused_while_the_engine_is_too_far_behind(start: Start, tmp_path: Path) -> None:
    server = start("--backlog", "100KB")
    server.define("CREATE STREAM s (v BIGINT, at TIMESTAMP) ORDERED BY at")
    rows = pa.table(
        {
            "v": np.random.default_rng(1).integers(0, 1 << 62, 1000),
            "at": pa.array([0] * 1000, pa.timestamp("us")),
        }
    )
    taken = 0
    with pytest.raises(grpc.RpcError) as refused:
        for _ in range(100):
            server.publish("s", rows)
            taken += 1
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert detail(refused.value).reason == "LOG_FULL"
    assert detail(refused.value).retry_after.seconds >= 1
    assert taken > 5
    # What is no rows goes on, and so do answers.
    server.register("SELECT v FROM s")
    _, counted = server.ask("SELECT count(*) AS n FROM s")
    assert counted["n"].to_pylist() == [taken * 1000]

    number = HandMadeEngine(Store.open(tmp_path / "store")).step().number
    while server.stub.Status(pb.StatusRequest()).epoch < number:
        pass
    server.publish("s", rows)
