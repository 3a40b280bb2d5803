"""Numbers of JSON and CSV keep all their digits, or are refused, whatever their size."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from client_sdk import Column, Stream
from datastem.accept import Limits
from datastem.errors import RowError
from datastem.schema import Column as StoreColumn
from datastem.schema import StreamSchema
from datastem.types import decimal_type
from psoup.formats.convert import convert_text
from psoup.source.mapping import load_json
from psoup.source.readers.chunk import Options
from psoup.source.readers.jsonl_reader import JsonLinesParser
from psoup.web.bodies.json_body import read_json, read_ndjson

COLUMN = Column("x", "DECIMAL(20,10)")
STREAM = Stream("s", 1, (COLUMN,), None, None, timedelta(0), 0, None, "", 0)
SCHEMA = StreamSchema("s", (StoreColumn("x", decimal_type(20, 10)),))
HUGE = "1e9999999999999999999"


def test_an_exponent_that_no_number_has_is_a_bad_value() -> None:
    with pytest.raises(ValueError, match="has the number 1e9999"):
        load_json(HUGE.encode())
    text = f'{{"x": 1.5}}\n{{"x": {HUGE}}}\n{{"x": -{HUGE}}}\n{{"x": 2}}\n'.encode()
    parser = JsonLinesParser(STREAM, Options())
    chunks = [*parser.feed(text), *parser.finish()]
    assert [x for chunk in chunks for x in chunk.table.column("x").to_pylist()] == [1.5, 2]
    assert [line.number for chunk in chunks for line in chunk.bad] == [2, 3]
    for read, body in ((read_json, f'[{{"x": {HUGE}}}]'), (read_ndjson, f'{{"x": {HUGE}}}')):
        with pytest.raises(RowError, match="has the number"):
            read(memoryview(body.encode()), SCHEMA, Limits())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # Arrow reads both modulo 2^128: as 7, and as 0.
        (str(2**128 + 7), None),
        ("1" + "0" * 400, None),
        (str(3 * 2**128 + 5) + "E-10", None),
        ("-" + str(2**128 + 7) + "000", None),
        ("9999999999.9999999999", "9999999999.9999999999"),
        ("0" * 50 + "7.25", "7.25"),
        ("-1.5" + "0" * 127, "-1.5"),
        ("0." + "0" * 60, "0"),
        ("1.5E+3", "1500"),
        ("1E-10", "1E-10"),
        ("1E+10", None),
        ("0.00000000001", None),
    ],
)
@pytest.mark.parametrize("neighbour", ["1", "x"], ids=["alone", "beside a bad value"])
def test_digits_of_a_decimal(text: str, value: str | None, neighbour: str) -> None:
    array, failed = convert_text(pa.array(["2", text, None, neighbour]), COLUMN)
    expected = None if value is None else Decimal(value)
    assert array.to_pylist() == [2, expected, None, 1 if neighbour == "1" else None]
    assert failed.keys() == {*([1] if value is None else []), *([3] if neighbour == "x" else [])}
