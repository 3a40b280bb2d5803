"""Rows are converted strictly, and what is wrong is named before anything is sent."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk import Column, LimitExceeded, RowProblem, Stream
from client_sdk._wire.ipc import payloads, to_ipc
from client_sdk._wire.rows import has_conditions, to_table

COLUMNS = {
    "flag": "BOOLEAN",
    "count": "BIGINT",
    "ratio": "DOUBLE",
    "price": "DECIMAL(6,2)",
    "name": "TEXT",
    "at": "TIMESTAMP",
    "day": "DATE",
}


def a_stream(ordered_by: str | None = None, key: tuple[str, ...] = (), **columns: str) -> Stream:
    described = tuple(Column(name, type_) for name, type_ in (columns or COLUMNS).items())
    return Stream("s", 1, described, ordered_by, None, timedelta(hours=1), 0, None, "", 0, key)


def single_value(type_: str, value: Any) -> Any:
    """The value after a round through a one-column table."""
    return to_table([{"x": value}], a_stream(x=type_)).column("x")[0].as_py()


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("BOOLEAN", False, False),
        ("BIGINT", 2**63 - 1, 2**63 - 1),
        ("BIGINT", np.int32(7), 7),
        ("DOUBLE", 3, 3.0),
        ("DOUBLE", np.float32(0.5), 0.5),
        ("DOUBLE", float("inf"), float("inf")),
        ("DECIMAL(6,2)", Decimal("1.5"), Decimal("1.50")),
        ("DECIMAL(6,2)", 9999, Decimal("9999.00")),
        ("TEXT", "", ""),
        ("TIMESTAMP", datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)),
        (
            "TIMESTAMP",
            datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
            datetime(2026, 1, 1, tzinfo=UTC),
        ),
        ("TIMESTAMP", pd.Timestamp("2026-01-01 00:00:00.000001"), datetime(2026, 1, 1, 0, 0, 0, 1)),
        ("DATE", date(2026, 1, 1), date(2026, 1, 1)),
    ],
)
def test_a_value_that_fits_arrives_as_it_is(type_: str, value: Any, expected: Any) -> None:
    got = single_value(type_, value)
    if isinstance(expected, datetime):
        expected = expected.replace(tzinfo=UTC)
    assert got == expected


@pytest.mark.parametrize("type_", COLUMNS.values())
def test_none_is_null_in_every_type(type_: str) -> None:
    assert single_value(type_, None) is None


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("BOOLEAN", 1),
        ("BOOLEAN", "true"),
        ("BIGINT", True),
        ("BIGINT", 1.0),
        ("BIGINT", 2**63),
        ("BIGINT", "1"),
        ("DOUBLE", True),
        ("DOUBLE", 2**60 + 1),
        ("DOUBLE", "1.5"),
        ("DECIMAL(6,2)", 1.5),
        ("DECIMAL(6,2)", Decimal("1.555")),
        ("DECIMAL(6,2)", Decimal("12345.6")),
        ("DECIMAL(6,2)", Decimal("NaN")),
        ("TEXT", b"x"),
        ("TEXT", "\ud800"),
        ("TIMESTAMP", date(2026, 1, 1)),
        ("TIMESTAMP", "2026-01-01"),
        ("TIMESTAMP", pd.Timestamp("2026-01-01 00:00:00.000000001")),
        ("DATE", datetime(2026, 1, 1)),
    ],
)
def test_a_value_that_does_not_fit_is_named(type_: str, value: Any) -> None:
    with pytest.raises(RowProblem) as caught:
        to_table([{"x": None}, {"x": value}], a_stream(x=type_))
    assert (caught.value.row, caught.value.field) == (1, "x")
    assert caught.value.detail.expected == type_


def test_a_value_of_another_type_says_what_to_use() -> None:
    stream = a_stream(x="DECIMAL(6,2)")
    with pytest.raises(RowProblem, match=r"str is not DECIMAL\(6,2\); use decimal.Decimal or int"):
        to_table([{"x": "1.50"}], stream)
    with pytest.raises(RowProblem, match="float is not DECIMAL.*; use decimal.Decimal"):
        to_table([{"x": 1.5}], stream)


def test_missing_and_extra_columns_are_named() -> None:
    stream = a_stream(a="BIGINT", b="BIGINT")
    with pytest.raises(RowProblem, match="row 1: missing b; unknown c"):
        to_table([{"a": 1, "b": 1}, {"a": 1, "c": 2}], stream)
    with pytest.raises(RowProblem, match="columns: unknown c"):
        to_table(pa.table({"a": [1], "b": [1], "c": [1]}), stream)
    with pytest.raises(RowProblem, match="twice"):
        to_table(pa.Table.from_arrays([pa.array([1])] * 3, names=["a", "b", "b"]), stream)


def test_the_event_time_is_never_null() -> None:
    stream = a_stream("at", at="TIMESTAMP")
    with pytest.raises(RowProblem) as caught:
        to_table([{"at": datetime(2026, 1, 1)}, {"at": None}], stream)
    assert (caught.value.reason, caught.value.row) == ("NULL_EVENT_TIME", 1)


@pytest.mark.parametrize("rows", [{"a": 1}, "text", b"bytes"])
def test_rows_that_are_not_rows_are_a_type_error(rows: Any) -> None:
    with pytest.raises(TypeError):
        to_table(rows, a_stream(a="BIGINT"))


def test_arrow_columns_are_found_by_name_and_widened() -> None:
    stream = a_stream(a="BIGINT", b="TEXT", c="TIMESTAMP", d="DOUBLE", e="DECIMAL(6,2)")
    table = pa.table(
        {
            "e": pa.array([Decimal("1.5")], pa.decimal128(3, 1)),
            "d": pa.array([0.5], pa.float32()),
            "c": pa.array([datetime(2026, 1, 1)], pa.timestamp("ms")),
            "b": pa.array(["x"]).dictionary_encode(),
            "a": pa.array([1], pa.uint8()),
        }
    )
    assert to_table(table, stream).schema == stream.schema
    assert to_table(table.to_batches()[0], stream).to_pylist() == [
        {
            "a": 1,
            "b": "x",
            "c": datetime(2026, 1, 1, tzinfo=UTC),
            "d": 0.5,
            "e": Decimal("1.50"),
        }
    ]


@pytest.mark.parametrize(
    ("array", "type_"),
    [
        (pa.array(["1"]), "BIGINT"),
        (pa.array([1.0]), "BIGINT"),
        (pa.array([1]), "TEXT"),
        (pa.array([1]), "TIMESTAMP"),
        (pa.array([b"x"]), "TEXT"),
    ],
)
def test_arrow_of_another_kind_is_refused_as_a_column(array: pa.Array, type_: str) -> None:
    with pytest.raises(RowProblem) as caught:
        to_table(pa.table({"x": array}), a_stream(x=type_))
    assert (caught.value.reason, caught.value.field) == ("WRONG_TYPE", "x")


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=50))
def test_the_first_arrow_value_that_does_not_fit_is_found(values: list[int]) -> None:
    table = pa.table({"x": pa.array(values, pa.uint64())})
    bad = [index for index, value in enumerate(values) if value >= 2**63]
    if not bad:
        assert to_table(table, a_stream(x="BIGINT")).column("x").to_pylist() == values
        return
    with pytest.raises(RowProblem) as caught:
        to_table(table, a_stream(x="BIGINT"))
    assert caught.value.row == bad[0]


def test_pandas_means_null_where_it_says_nan() -> None:
    frame = pd.DataFrame(
        {
            "count": [1.0, np.nan],
            "name": ["x", None],
            "at": pd.to_datetime(["2026-01-01", None]),
            "price": [Decimal("1.25"), pd.NA],
        }
    )
    stream = a_stream(count="BIGINT", name="TEXT", at="TIMESTAMP", price="DECIMAL(6,2)")
    assert to_table(frame, stream).to_pylist() == [
        {
            "count": 1,
            "name": "x",
            "at": datetime(2026, 1, 1, tzinfo=UTC),
            "price": Decimal("1.25"),
        },
        {"count": None, "name": None, "at": None, "price": None},
    ]


def test_pandas_values_that_do_not_fit_are_named() -> None:
    with pytest.raises(RowProblem) as caught:
        to_table(pd.DataFrame({"x": [1.0, 1.5]}), a_stream(x="BIGINT"))
    assert (caught.value.row, caught.value.field) == (1, "x")


@given(
    st.lists(st.text("ab☃", max_size=40), min_size=1, max_size=60),
    st.integers(600, 2000),
    st.integers(1, 20),
)
def test_cut_payloads_are_the_table_again(texts: list[str], limit: int, rows: int) -> None:
    table = to_table([{"x": text} for text in texts], a_stream(x="TEXT"))
    parts = [pa.ipc.open_stream(payload).read_all() for payload in payloads(table, limit, rows)]
    assert pa.concat_tables(parts).equals(table)
    assert all(len(to_ipc(part)) <= limit and part.num_rows <= rows for part in parts)


def test_one_row_above_the_limit_is_refused() -> None:
    table = to_table([{"x": "long" * 1000}], a_stream(x="TEXT"))
    with pytest.raises(LimitExceeded, match="one row"):
        list(payloads(table, 1000, 10))


KEYED = a_stream(key=("name",), ordered_by="at", name="TEXT", count="BIGINT", at="TIMESTAMP")
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "rows",
    [
        [{"name": "a", "at": AT, "_op": "delete"}],
        pa.table({"name": ["a"], "at": pa.array([AT]), "_op": ["delete"]}),
        pd.DataFrame({"name": ["a"], "at": [AT], "_op": ["delete"]}),
    ],
    ids=["dicts", "arrow", "pandas"],
)
def test_a_delete_needs_its_key_and_its_time(rows: Any) -> None:
    table = to_table(rows, KEYED).to_pylist()
    assert table == [{"name": "a", "count": None, "at": AT, "_op": "delete"}]


@pytest.mark.parametrize(
    ("rows", "field"),
    [
        ([{"name": "a", "at": AT, "_op": "row"}], "count"),
        ([{"count": 1, "at": AT, "_op": "delete"}], "name"),
        ([{"name": "a", "_op": "delete"}], "at"),
        (
            pa.table({"name": ["a", "b"], "at": pa.array([AT, AT]), "_op": ["delete", "row"]}),
            "count",
        ),
    ],
)
def test_only_a_delete_may_leave_columns_out(rows: Any, field: str) -> None:
    with pytest.raises(RowProblem) as caught:
        to_table(rows, KEYED)
    assert caught.value.field == field


def test_what_a_row_does_comes_along_only_where_it_was_given() -> None:
    plain = [{"name": "a", "count": 1, "at": AT}]
    assert to_table(plain, KEYED).column_names == ["name", "count", "at"]
    mixed = to_table([*plain, {**plain[0], "_op": "row"}], KEYED)
    assert mixed.column("_op").to_pylist() == [None, "row"]


@pytest.mark.parametrize(
    "rows",
    [
        [
            {"name": "a", "count": 1, "at": AT, "_expected": 5},
            {"name": "b", "at": AT, "_op": "delete", "_expected": -1},
            {"name": "c", "count": 1, "at": AT},
        ],
        pd.DataFrame(
            {
                "name": ["a", "b", "c"],
                "count": [1, None, 1],
                "at": [AT] * 3,
                "_op": [None, "delete", None],
                "_expected": [5, -1, None],
            }
        ),
    ],
    ids=["dicts", "pandas"],
)
def test_what_a_row_expects_comes_along(rows: Any) -> None:
    table = to_table(rows, KEYED)
    assert table.column_names == ["name", "count", "at", "_op", "_expected"]
    assert table.column("_expected").to_pylist() == [5, -1, None]
    assert has_conditions(table) and not has_conditions(table.slice(2))


@pytest.mark.parametrize(
    ("stream", "expected", "reason"),
    [
        (KEYED, -2, "BAD_VALUE"),
        (KEYED, "5", "BAD_VALUE"),
        (
            a_stream(ordered_by="at", name="TEXT", count="BIGINT", at="TIMESTAMP"),
            5,
            "EXPECTED_WITHOUT_KEY",
        ),
    ],
)
def test_a_wrong_condition_is_named(stream: Stream, expected: Any, reason: str) -> None:
    row = {"name": "a", "count": 1, "at": AT}
    with pytest.raises(RowProblem) as caught:
        to_table([row, {**row, "_expected": expected}], stream)
    assert (caught.value.reason, caught.value.row, caught.value.field) == (reason, 1, "_expected")
