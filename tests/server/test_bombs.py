"""Small messages that would be large in memory: refused before they are made."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pytest

from datastem.accept import Limits, accept
from datastem.errors import RowError
from datastem.schema import Column, StreamSchema
from datastem.types import TEXT
from psoup.errors import BadRequest
from psoup.server.admission import OpenedMessage, open_message
from psoup.server.wire.arrow import measure, read_table
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from tests.server.conftest import Start
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ServerProcess, detail, ipc, rows_of

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


async def opened(method: str, message: bytes) -> OpenedMessage:
    return await open_message(f"/psoup.v1.Psoup/{method}", message)


async def test_values_weigh_more_than_their_message_and_arrow_its_bytes() -> None:
    row = pb.Row(values=[pb.Value(boolean=True)] * 10)
    request = pb.PublishRequest(stream="s", rows=pb.Rows(rows=[row] * 100))
    content = request.SerializeToString()
    values = await opened("Publish", content)
    assert (values.parsing_bytes, values.parsed_bytes) == (40 * len(content), 40 * len(content))
    assert (values.envelope, values.arrow) == (content, None)
    sync = await opened("Sync", b"\x12\x00" * 1000)
    assert sync.parsing_bytes > sync.parsed_bytes > 2000

    batch = b"x" * 100_000
    for publish in (
        pb.PublishRequest(stream="s", arrow=batch),
        pb.RegisterManyRequest(arrow=batch),
    ):
        method = "Publish" if isinstance(publish, pb.PublishRequest) else "RegisterMany"
        message = await opened(method, publish.SerializeToString())
        assert message.arrow is not None and bytes(message.arrow) == batch
        assert len(message.envelope) < 10
        assert 100_000 <= message.parsed_bytes <= message.parsing_bytes < 101_000
    # Rows after Arrow are the batch, and weigh as rows.
    both = await opened("Publish", publish_with(arrow=batch) + content)
    assert both.parsing_bytes > len(batch) + 40 * len(content)
    assert pb.PublishRequest.FromString(both.envelope).WhichOneof("batch") == "rows"
    last = await opened("Publish", content + publish_with(arrow=batch))
    assert pb.PublishRequest.FromString(last.envelope).WhichOneof("batch") == "arrow"


def publish_with(**fields: Any) -> bytes:
    return pb.PublishRequest(**fields).SerializeToString()


async def reason_of(method: str, message: bytes) -> str:
    with pytest.raises(BadRequest) as refused:
        await opened(method, message)
    return refused.value.reason


async def test_what_would_take_the_parser_long_is_refused_before() -> None:
    arrow = publish_with(arrow=b"x")
    wrong = b"\xff" * 9, b"\xff" * (16 * MB), b"\x0a", b"\x07\x07", b"\x2a\xff\xff\xff", arrow * 2
    for message in wrong:
        assert await reason_of("Publish", message) == "BAD_REQUEST"
    text = publish_with(rows=rows_of(["t"], [pb.Value(text="x" * MB)]))
    many = publish_with(rows=pb.Rows(rows=[pb.Row()] * 60_000))
    wide = publish_with(rows=rows_of([], [pb.Value()] * 60_000))
    for message in (text, many, wide, arrow + wide, wide + arrow):
        assert await reason_of("Publish", message) == "BATCH_TOO_LARGE"
    # A tag may be written in more bytes than it needs.
    overlong = b"\x32\x84\xd3\x0e\x12\x80\xd3\x0e" + b"\x8a\x80\x00\x00" * 60_000
    assert len(pb.PublishRequest.FromString(overlong).rows.rows[0].values) == 60_000
    assert await reason_of("Publish", overlong) == "BATCH_TOO_LARGE"
    for method, tag in (("Sync", b"\x12"), ("Ask", b"\x1a"), ("Register", b"\x2a")):
        assert await reason_of(method, tag + b"\x00" * 60_000) == "BAD_REQUEST"
        assert await reason_of(method, (tag + b"\x00") * 60_000) == "MESSAGE_TOO_LARGE"


@pytest.mark.process
def test_many_large_batches_at_once_are_taken_or_told_to_come_back(start: Start) -> None:
    server = start("--memory", "64MB", "--durability", "none")
    server.define("CREATE STREAM s (v BIGINT)")
    bomb, batch = packed(pa.table({"v": zeros(40 * MB)})), packed(pa.table({"v": zeros(2 * MB)}))

    def publish(arrow: bytes) -> str:
        try:
            server.stub.Publish(pb.PublishRequest(stream="s", arrow=arrow))
        except grpc.RpcError as error:
            problem = detail(error)
            assert problem.reason != "OVERLOADED" or problem.retry_after.seconds >= 1
            return str(problem.reason)
        return "taken"

    with ThreadPoolExecutor(24) as threads:
        outcomes = list(threads.map(publish, [bomb, batch] * 12))
    assert set(outcomes[::2]) == {"BATCH_TOO_LARGE"}
    assert set(outcomes[1::2]) <= {"taken", "OVERLOADED"}
    assert "taken" in outcomes
    _, counted = server.ask("SELECT count(*) AS n FROM s")
    assert counted["n"].to_pylist() == [outcomes.count("taken") * 2 * MB // 8]
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
    batch_count = 0
    with pytest.raises(grpc.RpcError) as refused:
        for _ in range(100):
            server.publish("s", rows)
            batch_count += 1
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert detail(refused.value).reason == "LOG_FULL"
    assert detail(refused.value).retry_after.seconds >= 1
    assert batch_count > 5
    # What is no rows goes on, and so do answers.
    server.register("SELECT v FROM s")
    _, counted = server.ask("SELECT count(*) AS n FROM s")
    assert counted["n"].to_pylist() == [batch_count * 1000]

    number = HandMadeEngine(Store.open(tmp_path / "store")).step().number
    while server.stub.Status(pb.StatusRequest()).epoch < number:
        time.sleep(0.02)
    server.publish("s", rows)


def record_batches(count: int, columns: int, rows: int = 0) -> bytes:
    schema = pa.schema([(f"c{number}", pa.string()) for number in range(columns)])
    batch = pa.record_batch([pa.nulls(rows, pa.string())] * columns, schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for _ in range(count):
            writer.write_batch(batch)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    ("batches", "columns", "rows"), [(32_000, 1, 0), (300, 1000, 0), (11_000, 1, 1), (0, 30_000, 0)]
)
def test_a_message_with_many_record_batches_is_refused(
    batches: int, columns: int, rows: int
) -> None:
    with pytest.raises(RowError) as refused:
        read_table(record_batches(batches, columns, rows), LIMITS)
    assert refused.value.reason == "BATCH_TOO_LARGE"
    assert "record batch" in refused.value.hint


def test_some_record_batches_are_taken_and_counted() -> None:
    content = record_batches(15, 1000, 1)
    assert read_table(content, LIMITS).num_rows == 15
    assert measure(content, LIMITS).batches == 15
