"""Answers from their messages, however those are cut."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from client_sdk import ServerError, answer
from client_sdk._answer_streams import AnswerStream
from client_sdk._wire.answers import collect, python_rows
from client_sdk._wire.ipc import PieceReader, to_ipc
from client_sdk._wire.values import Column, to_rows
from psoup.v1 import psoup_pb2 as pb

COLUMNS = {"n": "BIGINT", "at": "TIMESTAMP", "d": "DECIMAL(10,2)", "t": "TEXT"}
ROWS: list[dict[str, Any]] = [
    {"n": 1, "at": datetime(2026, 1, 1, tzinfo=UTC), "d": Decimal("1.50"), "t": "x"},
    {"n": None, "at": None, "d": None, "t": None},
]


@given(
    st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30), max_size=6),
    st.lists(st.integers(1, 200), min_size=1, max_size=20),
)
def test_pieces_cut_anywhere_give_the_batches(batches: list[list[int]], cuts: list[int]) -> None:
    schema = pa.schema([("n", pa.int64()), ("t", pa.string())])
    received = [
        pa.record_batch(
            [pa.array(piece, pa.int64()), pa.array(map(str, piece), pa.string())], schema
        )
        for piece in batches
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in received:
            writer.write_batch(batch)
    payload = sink.getvalue().to_pybytes()
    reader, at = PieceReader(), 0
    got: list[pa.RecordBatch] = []
    while at < len(payload):
        cut = cuts[len(got) % len(cuts)] if at else 1
        got += reader.feed(payload[at : at + cut])
        at += cut
    reader.finish()
    assert got == received


def test_half_a_batch_is_noticed() -> None:
    payload = to_ipc(pa.table({"n": [1, 2, 3]}))
    reader = PieceReader()
    reader.feed(payload[: len(payload) // 2])
    with pytest.raises(ServerError, match="middle"):
        reader.finish()


def test_what_is_not_arrow_is_noticed() -> None:
    with pytest.raises(ServerError, match="not an Arrow"):
        PieceReader().feed(b"hello there")


def test_rows_have_python_types() -> None:
    got = collect(answer(COLUMNS, ROWS))
    assert got.rows == ROWS
    assert list(got) == ROWS
    assert got.rows[0]["at"].tzinfo is UTC


@given(
    st.lists(st.none() | st.datetimes()),
    st.lists(st.none() | st.dates()),
    st.integers(0, 3),
)
@example([datetime.min, None, datetime.max], [date.min, None, date.max], 1)
def test_instants_and_dates_are_those_of_arrow(
    moments: list[datetime | None], dates: list[date | None], start: int
) -> None:
    instants = [moment and moment.replace(tzinfo=UTC) for moment in moments]
    for kind, values in (("TIMESTAMP", instants), ("DATE", dates)):
        column = Column("v", kind)
        table = pa.table({"v": pa.array([None] * start + values, column.arrow)}).slice(start)
        parts = pa.concat_tables([table, table])
        expected = [{"v": value} for value in [*values, *values]]
        assert python_rows(parts, (column,)) == expected


def test_typed_rows_give_the_same_answer() -> None:
    header = answer(COLUMNS, ROWS)[0]
    got = collect([header, pb.InvokeResponse(rows=to_rows(ROWS))])
    assert got.rows == ROWS
    assert got.to_arrow().schema == got.schema


def test_a_header_with_all_rows_gives_the_same_answer() -> None:
    header, rows = answer(COLUMNS, ROWS)
    beside = pb.InvokeResponse(header=header.header, all_arrow=rows.arrow)
    typed = pb.InvokeResponse(header=header.header, all_rows=to_rows(ROWS))
    assert collect([beside]).rows == collect([typed]).rows == ROWS
    with AnswerStream(beside, (message for message in [header][:0])) as stream:
        assert pa.Table.from_batches(stream).equals(collect([header, rows]).to_arrow())


def test_pandas_comes_out() -> None:
    assert list(collect(answer(COLUMNS, ROWS)).to_pandas().columns) == list(COLUMNS)


def test_a_short_answer_is_an_error() -> None:
    messages = answer(COLUMNS, ROWS)
    messages[0].header.row_count = 3
    with pytest.raises(ServerError, match="2 rows of 3"):
        collect(messages)


def test_an_answer_without_header_is_an_error() -> None:
    with pytest.raises(ServerError, match="header"):
        collect([])


def test_the_header_is_what_the_server_said() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    got = collect(
        answer({"n": "BIGINT"}, now=now, epoch=7, computed_rows=3, behind_rows=2, notes=["a"])
    )
    assert (got.now, got.epoch, got.computed_rows, got.behind_rows) == (now, 7, 3, 2)
    assert (got.window_begin, got.notes, len(got)) == (None, ("a",), 0)
