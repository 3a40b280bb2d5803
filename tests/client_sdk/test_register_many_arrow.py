"""A table of values that is too large for a typed message goes as Arrow, with the same types."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from client_sdk._grpc.effects import Retry
from client_sdk._requests import register_many_request
from client_sdk._session import Session
from client_sdk._wire.values import MOST_TYPED_BYTES, MOST_TYPED_FIELDS
from datastem.accept import Limits
from psoup.server.admission import MAX_FIELDS, open_message
from psoup.server.admission import MAX_TYPED_BYTES as SERVER_BYTES
from psoup.server.wire.parameters import rows_columns, table_columns
from psoup.v1 import psoup_pb2 as pb

METHOD = "/psoup.v1.Psoup/RegisterMany"
ROW: dict[str, Any] = {
    "client_key": "k",
    "i": 7,
    "d": 0.5,
    "n": Decimal("1.50"),
    "t": "text",
    "b": True,
    "at": datetime(2026, 3, 1, tzinfo=UTC),
    "on": date(2026, 3, 1),
    "nothing": None,
}


def request_of(table: list[dict[str, Any]]) -> pb.RegisterManyRequest:
    session = Session("", "", 10.0, Retry(), 16 << 20)
    return register_many_request(session, "SELECT a FROM s", table, None)[0]


def test_client_and_server_have_the_same_bounds() -> None:
    assert (MOST_TYPED_BYTES, MOST_TYPED_FIELDS) == (SERVER_BYTES, MAX_FIELDS)


async def test_few_rows_are_typed_and_many_are_arrow_with_the_same_values() -> None:
    few, many = [ROW, {**ROW, "i": None}], [ROW] * (MOST_TYPED_FIELDS // 10)
    typed, arrow = request_of(few), request_of(many)
    assert (typed.WhichOneof("table"), arrow.WhichOneof("table")) == ("rows", "arrow")
    for request in (typed, arrow):
        await open_message(METHOD, request.SerializeToString())
    table = pa.ipc.open_stream(arrow.arrow).read_all()
    sent = table_columns(table, Limits())
    expected = rows_columns(typed.rows, Limits())
    assert {name: (values[0], type(values[0])) for name, values in sent.items()} == {
        name: (values[0], type(values[0])) for name, values in expected.items()
    }


async def test_long_texts_are_arrow_and_the_largest_typed_table_is_taken() -> None:
    long = request_of([{"t": "x" * 1000}] * 2000)
    assert long.WhichOneof("table") == "arrow"
    largest = request_of([{"i": 1}] * (MOST_TYPED_FIELDS // 2 - 20))
    assert largest.WhichOneof("table") == "rows"
    await open_message(METHOD, largest.SerializeToString())


@pytest.mark.parametrize("values", [(0, 0.5), (Decimal("1.5"), Decimal("1.50")), (1, True)])
def test_a_large_table_whose_column_has_several_types_is_refused_here(values: Any) -> None:
    with pytest.raises(ValueError, match="several types"):
        request_of([{"p": value} for value in values] * MOST_TYPED_FIELDS)
