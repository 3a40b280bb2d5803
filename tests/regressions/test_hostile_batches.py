"""Batches that were refused as failures of the server, not as bad input."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from datastem.accept import Limits, accept
from datastem.errors import RowError
from datastem.schema import Column, StreamSchema
from datastem.types import TEXT, decimal_type
from psoup.server.wire.arrow import read_table
from tests.support.server.process import ipc


def test_a_column_whose_name_is_no_utf8() -> None:
    payload = ipc(pa.table({"abcd": [1]})).replace(b"abcd", b"ab\xff\xfe")
    with pytest.raises(RowError) as refused:
        read_table(payload, Limits())
    assert refused.value.reason == "MALFORMED_ARROW"


def test_a_decimal_with_a_scale_past_all_digits() -> None:
    schema = StreamSchema("s", (Column("n", decimal_type(5, 2)),))
    sent = pa.table({"n": pa.nulls(2, pa.decimal128(5, 277))})
    with pytest.raises(RowError) as refused:
        accept(sent, schema, 0, Limits())
    assert refused.value.reason == "WRONG_TYPE"


def test_views_in_a_buffer_that_is_longer() -> None:
    schema = StreamSchema("s", (Column("t", TEXT),))
    _, views, *_ = pa.array(["ab"], pa.string_view()).buffers()
    longer = pa.py_buffer(views.to_pybytes()[:16] + np.zeros(10, np.int8).tobytes())
    sent = pa.table({"t": pa.Array.from_buffers(pa.string_view(), 1, [None, longer])})
    assert accept(sent, schema, 0, Limits()).batch.column(0).to_pylist() == ["ab"]


def test_a_view_under_null_that_points_nowhere() -> None:
    """Arrow's cast reads what such a view points at, which ended the process."""
    schema = StreamSchema("s", (Column("t", TEXT),))
    far = np.array([[0x00FF0000, 0, 0, 0], [1, ord("a"), 0, 0]], np.int32)
    buffers = [pa.py_buffer(b"\x02"), pa.py_buffer(far), pa.py_buffer(b"x")]
    sent = pa.table({"t": pa.Array.from_buffers(pa.string_view(), 2, buffers)})
    sent.validate(full=True)
    assert accept(sent, schema, 0, Limits()).batch.column(0).to_pylist() == [None, "a"]
