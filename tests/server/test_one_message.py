"""Small answers in one message: the same header and the same rows as in several."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk._wire.answers import collect
from datastem.schema import Column
from datastem.types import BIGINT, TEXT
from psoup.server.calls.invoke import ask, invoke
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.server.sharing.room import SMALL_BYTES
from psoup.server.wire.arrow import one_message, pieces, serialize
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from tests.support.server.callers import new_call
from tests.support.server.process import ipc, received

STREAM = "CREATE STREAM s (a BIGINT, t TEXT)"
ENCODINGS = (pb.ENCODING_ARROW, pb.ENCODING_UNSPECIFIED)


@pytest.mark.parametrize("rows", [0, 1, 100, 5000])
def test_one_message_has_what_several_have(tmp_path: Path, rows: int) -> None:
    async def check() -> None:
        core = Core(
            Store.open(tmp_path / "store", create=True, sync=False), Settings(tmp_path / "store")
        )
        await core.start()
        statement = parse_statement(STREAM, max_columns=100, max_text=1000)
        assert isinstance(statement, CreateStream)
        await core.appender.submit(Define("main", "main", statement.schema))
        sql = "SELECT a, t FROM s"
        registered, *_ = await register(core, new_call(), pb.RegisterRequest(sql=sql))
        (handle,) = registered.handles
        table = pa.table({"a": range(rows), "t": [f"text {n}" for n in range(rows)]})
        await publish(core, new_call(), pb.PublishRequest(stream="s", arrow=ipc(table)))
        for encoding in ENCODINGS:
            calls: list[tuple[Any, pb.InvokeRequest | pb.AskRequest]] = [
                (invoke, pb.InvokeRequest(handle=handle, encoding=encoding)),
                (ask, pb.AskRequest(sql=sql, encoding=encoding)),
            ]
            for call, request in calls:
                several = await received(call(core, new_call(), request))
                assert not any(part.all_arrow or part.HasField("all_rows") for part in several)
                request.one_message = True
                single = await received(call(core, new_call(), request))
                size = sum(part.ByteSize() for part in several[1:])
                assert (len(single) == 1) == (size <= SMALL_BYTES)
                assert collect(single).rows == collect(several).rows == table.to_pylist()
                for parts in (single, several):
                    for field in ("elapsed", "now", "window_end", "behind", "computed_rows"):
                        parts[0].header.ClearField(field)
                assert single[0].header == several[0].header
        await core.stop()

    asyncio.run(check())


@given(st.binary(max_size=300), st.lists(st.integers(-100, 100), max_size=40))
def test_a_message_made_by_hand_is_the_one_of_protobuf(note: bytes, numbers: list[int]) -> None:
    header = pb.AnswerHeader(position=note, row_count=len(numbers))
    columns = (Column("a", BIGINT), Column("t", TEXT))
    batch = pa.record_batch(
        [pa.array(numbers, pa.int64()), pa.array(map(str, numbers), "utf8")], names=["a", "t"]
    )
    for encoding in ENCODINGS:
        made = list(pieces([batch], columns, encoding, 1 << 20))
        parsed = pb.InvokeResponse.FromString(one_message(header.SerializeToString(), made))
        assert parsed.header == header
        apart = [pb.InvokeResponse.FromString(serialize(piece)) for piece in made]
        expected = apart[0] if apart else pb.InvokeResponse()
        assert (parsed.all_arrow, parsed.all_rows) == (expected.arrow, expected.rows)
