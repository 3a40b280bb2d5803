"""Which batches are accepted and refused, and what the digest depends on."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastem.accept import Limits, accept
from datastem.codec import decode, encode, query_view, stem_schema
from datastem.errors import DecodeError, RowError
from datastem.instants import DAY, HOUR, MAX_INSTANT, MIN_INSTANT
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, BOOLEAN, DATE, DOUBLE, TEXT, TIMESTAMP, Type, decimal_type

CLOCK = 20_000 * DAY
LIMITS = Limits()


def accept_column(type_: Type, array: pa.Array | pa.ChunkedArray) -> pa.Array:
    schema = StreamSchema("s", (Column("a", type_),))
    return accept(pa.table({"a": array}), schema, CLOCK, LIMITS).batch.column(0)


def refuse_column(type_: Type, array: pa.Array | pa.ChunkedArray) -> RowError:
    with pytest.raises(RowError) as caught:
        accept_column(type_, array)
    assert caught.value.field == "a"
    return caught.value


def raw_text(*values: bytes) -> pa.Array:
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


TAKEN: list[tuple[Type, pa.Array, list[Any]]] = [
    (BIGINT, pa.array([1, None, -3], pa.int8()), [1, None, -3]),
    (BIGINT, pa.array([2**63 - 1, 0], pa.uint64()), [2**63 - 1, 0]),
    (BIGINT, pa.nulls(2), [None, None]),
    (BIGINT, pa.array([5, 6, 5]).dictionary_encode(), [5, 6, 5]),
    (DOUBLE, pa.array([1.5, None], pa.float32()), [1.5, None]),
    (DOUBLE, pa.array([1.5, None], pa.float16()), [1.5, None]),
    (DOUBLE, pa.array([2**60, -(2**63), None]), [2.0**60, -(2.0**63), None]),
    (DOUBLE, pa.array([2**63], pa.uint64()), [2.0**63]),
    (BOOLEAN, pa.array([True, None, False]), [True, None, False]),
    (TEXT, pa.array(["é", None, ""], pa.large_string()), ["é", None, ""]),
    (TEXT, pa.array(["é", None, "a longer one than inline"], pa.string_view()),
     ["é", None, "a longer one than inline"]),
    (TEXT, pa.array(["x", None, "x"]).dictionary_encode(), ["x", None, "x"]),
    (decimal_type(5, 2), pa.array([1, None]), [decimal.Decimal("1.00"), None]),
    (decimal_type(5, 2), pa.array([decimal.Decimal("999.990"), None], pa.decimal256(50, 3)),
     [decimal.Decimal("999.99"), None]),
    (DATE, pa.array([86_400_000, None], pa.int64()).view(pa.date64()),
     [datetime.date(1970, 1, 2), None]),
    (DATE, pa.array([datetime.date(9999, 12, 31)]), [datetime.date(9999, 12, 31)]),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "sent", "expected"), TAKEN, ids=lambda v: str(v)[:20])
def test_compatible_types_are_taken(type_: Type, sent: pa.Array, expected: list[Any]) -> None:
    got = accept_column(type_, sent)
    got.validate(full=True)
    assert got.type == type_.arrow
    assert got.to_pylist() == expected
    assert accept_column(type_, sent.slice(1)).to_pylist() == expected[1:]


@pytest.mark.parametrize(
    ("type_", "sent", "reason", "row"),
    [
        (BIGINT, pa.array([1.0]), "WRONG_TYPE", -1),
        (BIGINT, pa.array(["1"]), "WRONG_TYPE", -1),
        (BIGINT, pa.array([True]), "WRONG_TYPE", -1),
        (BIGINT, pa.array([1, 2**63], pa.uint64()), "OUT_OF_RANGE", 1),
        (DOUBLE, pa.array([1, 2**53 + 1]), "NOT_EXACT", 1),
        (DOUBLE, pa.array([2**63 - 1]), "NOT_EXACT", 0),
        (DOUBLE, pa.array([2**64 - 1], pa.uint64()), "NOT_EXACT", 0),
        (DOUBLE, pa.array([decimal.Decimal("1.5")]), "WRONG_TYPE", -1),
        (BOOLEAN, pa.array([1]), "WRONG_TYPE", -1),
        (TEXT, pa.array([b"a"]), "WRONG_TYPE", -1),
        (TEXT, pa.array([["a"]]), "WRONG_TYPE", -1),
        (TEXT, pa.array([1]).dictionary_encode(), "WRONG_TYPE", -1),
        (TEXT, raw_text(b"ok", b"fine", b"\xff", b"ok"), "INVALID_UTF8", 2),
        (TEXT, pa.array(["", "x" * (LIMITS.value_bytes + 1)]), "VALUE_TOO_LONG", 1),
        (decimal_type(5, 2), pa.array([1, 1000]), "NOT_EXACT", 1),
        (decimal_type(5, 2), pa.array([decimal.Decimal("1.001")]), "NOT_EXACT", 0),
        (decimal_type(5, 2), pa.array([1.0]), "WRONG_TYPE", -1),
        (TIMESTAMP, pa.array([0, 1], pa.int64()).view(pa.timestamp("ns")), "TOO_FINE", 1),
        (TIMESTAMP, pa.array([MAX_INSTANT + 1]).view(pa.timestamp("us")), "OUT_OF_RANGE", 0),
        (TIMESTAMP, pa.array([0, 2**62]).view(pa.timestamp("s")), "OUT_OF_RANGE", 1),
        (TIMESTAMP, pa.array(["2020-01-01"]), "WRONG_TYPE", -1),
        (TIMESTAMP, pa.array([datetime.date(2020, 1, 1)]), "WRONG_TYPE", -1),
        (DATE, pa.array([1], pa.int64()).view(pa.date64()), "MALFORMED_ARROW", -1),
        (DATE, pa.array([2**31 - 1], pa.int32()).view(pa.date32()), "OUT_OF_RANGE", 0),
    ],
    ids=lambda v: str(v)[:20],
)
def test_lossy_values_are_refused(type_: Type, sent: pa.Array, reason: str, row: int) -> None:
    error = refuse_column(type_, sent)
    assert (error.reason, error.row) == (reason, row)
    assert str(error)


@pytest.mark.parametrize(
    "type_", [BOOLEAN, BIGINT, DOUBLE, decimal_type(9, 2), TEXT, TIMESTAMP, DATE], ids=str
)
def test_a_column_of_nothing_but_null_fits_every_type(type_: Type) -> None:
    schema = StreamSchema("s", (Column("a", type_),))
    untyped, typed = (
        accept(pa.table({"a": pa.nulls(3, kind)}), schema, CLOCK, LIMITS)
        for kind in (pa.null(), type_.arrow)
    )
    assert untyped.batch.column(0).to_pylist() == [None] * 3
    assert untyped.digest == typed.digest


def test_doubles_keep_what_they_are() -> None:
    payload_nan = np.array([0x7FF8000000000001], dtype=np.uint64).view(np.float64)
    got = accept_column(DOUBLE, pa.array([float("inf"), -0.0, payload_nan[0]])).to_numpy()
    assert got[0] == np.inf
    assert np.signbit(got[1])
    assert got[2:].view(np.uint64)[0] == np.array([np.nan]).view(np.uint64)[0]


def test_timestamps_without_a_zone_are_utc() -> None:
    naive = pa.array([MIN_INSTANT, MAX_INSTANT, None]).view(pa.timestamp("us"))
    assert accept_column(TIMESTAMP, naive).view(pa.int64()).to_pylist() == [
        MIN_INSTANT,
        MAX_INSTANT,
        None,
    ]
    coarse = pa.array([7]).view(pa.timestamp("ms", tz="Europe/Berlin"))
    assert accept_column(TIMESTAMP, coarse).view(pa.int64()).to_pylist() == [7000]


def test_a_dictionary_cannot_grow_past_the_limit() -> None:
    bomb = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(300, np.int8)), ["x" * LIMITS.value_bytes]
    )
    assert refuse_column(TEXT, bomb).reason == "BATCH_TOO_LARGE"


TRADES = StreamSchema(
    "trades",
    (Column("symbol", TEXT), Column("price", DOUBLE), Column("at", TIMESTAMP)),
    ordered_by="at",
    ahead=HOUR,
)


def trades(**changes: Any) -> pa.Table:
    instants = pa.array([CLOCK - 5, CLOCK]).view(pa.timestamp("us"))
    return pa.table({"symbol": ["a", "b"], "price": [1.0, 2.0], "at": instants, **changes})


def test_event_time_bounds_are_reported() -> None:
    accepted = accept(trades(), TRADES, CLOCK, LIMITS)
    assert (accepted.min_ts, accepted.max_ts) == (CLOCK - 5, CLOCK)
    empty = accept(trades().slice(0, 0), TRADES, CLOCK, LIMITS)
    assert (empty.batch.num_rows, empty.max_ts) == (0, None)


@pytest.mark.parametrize(
    ("sent", "reason", "field", "row"),
    [
        (trades(extra=[1, 2]), "EXTRA_COLUMN", "extra", -1),
        (trades(ts=[1, 2]), "EXTRA_COLUMN", "ts", -1),
        (trades().drop_columns(["price"]), "MISSING_COLUMN", "price", -1),
        (trades().append_column("price", pa.array([1, 2])), "DUPLICATE_COLUMN", "price", -1),
        (trades(at=pa.array([0, None]).view(pa.timestamp("us"))), "NULL_EVENT_TIME", "at", 1),
        (trades(at=pa.array([0, CLOCK + HOUR + 1]).view(pa.timestamp("us"))),
         "TOO_FAR_AHEAD", "at", 1),
    ],
)  # fmt: skip
def test_bad_batches_are_refused_whole(sent: pa.Table, reason: str, field: str, row: int) -> None:
    with pytest.raises(RowError) as caught:
        accept(sent, TRADES, CLOCK, LIMITS)
    assert (caught.value.reason, caught.value.field, caught.value.row) == (reason, field, row)


def test_too_many_rows() -> None:
    with pytest.raises(RowError, match="3 rows; at most 2"):
        accept(pa.table({"a": [1, 2, 3]}), StreamSchema("s", (Column("a", BIGINT),)), CLOCK,
               Limits(rows=2))  # fmt: skip


ROWS = st.lists(
    st.tuples(
        st.none() | st.text(max_size=5),
        st.none() | st.floats(),
        st.none() | st.booleans(),
        st.none() | st.integers(-(10**6), 10**6),
    ),
    max_size=12,
)
MIXED = StreamSchema(
    "m", (Column("t", TEXT), Column("d", DOUBLE), Column("b", BOOLEAN), Column("i", BIGINT))
)


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    names, types = ["t", "d", "b", "i"], [pa.string(), pa.float64(), pa.bool_(), pa.int64()]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[]] * 4
    return pa.table({n: pa.array(c, t) for n, c, t in zip(names, columns, types, strict=True)})


@settings(max_examples=150, deadline=None)
@given(ROWS, st.integers(0, 12), st.integers(0, 3))
def test_digest_sees_values_only(rows: list[tuple[Any, ...]], cut: int, pad: int) -> None:
    table = table_of(rows)
    plain = accept(table, MIXED, CLOCK, LIMITS)
    padded = pa.concat_tables([table_of([("junk", 9.0, True, 9)] * pad), table]).slice(pad)
    cut = min(cut, len(rows))
    chunked = pa.concat_tables([padded.slice(0, cut), padded.slice(cut)])
    encoded = chunked.select(["i", "b", "d", "t"])
    encoded = encoded.set_column(3, "t", encoded["t"].dictionary_encode())
    encoded = encoded.set_column(0, "i", encoded["i"].cast(pa.int32()))
    reencoded = accept(encoded, MIXED, CLOCK, LIMITS)
    assert reencoded.digest == plain.digest
    assert encode(reencoded.batch) == encode(plain.batch)


@settings(max_examples=100, deadline=None)
@given(ROWS, ROWS)
def test_digest_tells_values_apart(first: list[tuple[Any, ...]], second: list[Any]) -> None:
    accepted, another = (accept(table_of(rows), MIXED, CLOCK, LIMITS) for rows in (first, second))
    same = repr(accepted.batch.to_pylist()) == repr(another.batch.to_pylist())
    assert (accepted.digest == another.digest) == same


def test_digest_ignores_what_lies_under_a_null() -> None:
    dirty = pa.Array.from_buffers(
        pa.int64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([7, 99]))]
    )
    schema = StreamSchema("s", (Column("a", BIGINT),))
    digests = {
        accept(pa.table({"a": array}), schema, CLOCK, LIMITS).digest
        for array in (dirty, pa.array([7, None]))
    }
    assert len(digests) == 1


def test_rows_come_back_as_stem_rows() -> None:
    accepted = accept(trades(), TRADES, CLOCK, LIMITS)
    rows = decode(TRADES, encode(accepted.batch), 40, CLOCK + 1, 77)
    assert rows.schema == stem_schema(TRADES)
    assert rows.column("_row_id").to_pylist() == [40, 41]
    assert rows.column("_ts").equals(rows.column("at"))
    assert set(rows.column("_position").to_pylist()) == {77}
    view = query_view(rows)
    assert view.schema.names == ["symbol", "price", "at", "ts", "row_id"]
    assert view.column("symbol").to_pylist() == ["a", "b"]


def test_arrival_time_is_the_stamp() -> None:
    schema = StreamSchema("s", (Column("a", BIGINT),))
    accepted = accept(pa.table({"a": [1, 2]}), schema, CLOCK, LIMITS)
    rows = decode(schema, encode(accepted.batch), 0, CLOCK, 0)
    assert rows.column("_ts").view(pa.int64()).to_pylist() == [CLOCK, CLOCK]


def test_payloads_that_do_not_decode() -> None:
    good = encode(accept(trades(), TRADES, CLOCK, LIMITS).batch)
    foreign = encode(accept(pa.table({"a": [1]}), StreamSchema("s", (Column("a", BIGINT),)),
                          CLOCK, LIMITS).batch)  # fmt: skip
    for payload in (b"", b"not arrow", good[:-40], good[: len(good) // 2], foreign):
        with pytest.raises(DecodeError):
            decode(TRADES, payload, 0, CLOCK, 0)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2000), st.binary(min_size=1, max_size=4))
def test_damage_is_an_error_or_rows_but_never_a_crash(at: int, junk: bytes) -> None:
    good = encode(accept(trades(), TRADES, CLOCK, LIMITS).batch)
    at %= len(good)
    damaged = good[:at] + junk + good[at + len(junk) :]
    try:
        rows = decode(TRADES, damaged, 0, CLOCK, 0)
    except DecodeError:
        return
    rows.validate(full=True)
