"""Columns that are added to a stream: batches without them, their digests, rows of any age."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from datastem.accept import Accepted, Limits, accept
from datastem.blocks import BLOCK_ROWS, SplitRows
from datastem.codec import decode, encode, stem_schema
from datastem.constants import Constant
from datastem.errors import DecodeError, RowError
from datastem.memory import Memory
from datastem.schema import Column, StreamSchema
from datastem.segments import RowSegment
from datastem.stem import DataStem
from datastem.types import BIGINT, BOOLEAN, DATE, DOUBLE, TEXT, TIMESTAMP, Type, decimal_type

LIMITS = Limits()
FIRST = StreamSchema("t", (Column("a", BIGINT),))
VALUES: Sequence[tuple[Type, Sequence[Constant]]] = (
    (BIGINT, (0, -1, 2**63 - 1)),
    (DOUBLE, (0.0, -0.0, 1.5, float("nan"))),
    (BOOLEAN, (False, True)),
    (TEXT, ("", "x", "ü")),
    (decimal_type(9, 2), (Decimal("0.00"), Decimal("-1.50"))),
    (TIMESTAMP, (datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, 3, 4, 5, 6, UTC))),
    (DATE, (date(1970, 1, 1), date(2026, 1, 2))),
)


def grown(dice: random.Random, columns: int) -> list[StreamSchema]:
    """Return the schemas of a stream that gets columns of random types and defaults."""
    schemas = [FIRST]
    for number in range(columns):
        type_, values = dice.choice(VALUES)
        default = dice.choice((None, *(value for value in values if value == value)))
        column = Column(f"c{number}", type_, since=10 * (number + 1), default=default)
        schemas.append(replace(schemas[-1], columns=(*schemas[-1].columns, column)))
    return schemas


def table_of(
    schema: StreamSchema, rows: Sequence[dict[str, Any]], names: Sequence[str]
) -> pa.Table:
    fields = [schema.arrow.field(name) for name in names]
    return pa.Table.from_pylist([*rows], schema=pa.schema(fields))


def accepted(schema: StreamSchema, table: pa.Table) -> Accepted:
    return accept(table, schema, 0, LIMITS)


def texts_of(rows: pa.RecordBatch, names: Sequence[str]) -> list[str]:
    """Return rows as texts, in which -0.0 is not 0.0 and NaN is NaN."""
    return list(map(repr, rows.select(list(names)).to_pylist()))


@pytest.mark.parametrize("seed", range(40))
def test_a_batch_is_the_same_on_both_sides_of_an_alter(seed: int) -> None:
    dice = random.Random(seed)
    schemas = grown(dice, 6)
    newest = schemas[-1]
    for _ in range(20):
        version = dice.randrange(len(schemas))
        schema, later = schemas[version], schemas[dice.randrange(version, len(schemas))]
        rows: list[dict[str, Any]] = [
            {"a": number, **{c.name: c.default for c in newest.columns[1:]}} for number in range(3)
        ]
        for column in schema.columns[1:]:
            values = next(values for type_, values in VALUES if type_ == column.type)
            if dice.random() < 0.5:
                for row in rows:
                    row[column.name] = dice.choice((None, column.default, *values))
        sent = [
            column.name
            for column in schema.columns
            if not column.is_optional
            or dice.random() < 0.5
            or any(repr(row[column.name]) != repr(column.default) for row in rows)
        ]
        first = accepted(schema, table_of(schema, rows, sent))
        again = accepted(later, table_of(later, rows, [column.name for column in later.columns]))
        assert first.digest == again.digest == first.request_digest == again.request_digest
        position = 10 * version + 5
        whole = table_of(newest, rows, newest.arrow.names).combine_chunks().to_batches()[0]
        for batch in (first, again):
            decoded = decode(newest, encode(batch.batch), 0, 0, position, digest=batch.digest)
            assert decoded.schema == stem_schema(newest)
            assert texts_of(decoded, newest.arrow.names) == texts_of(whole, newest.arrow.names)


def test_what_is_not_the_default_is_another_batch() -> None:
    schema = replace(FIRST, columns=(*FIRST.columns, Column("c", DOUBLE, since=1, default=0.0)))
    plain = accepted(schema, pa.table({"a": [1, 2]}))
    for values in ([0.0, 1.0], [-0.0, -0.0], [None, 0.0], [float("nan"), 0.0]):
        batch = accepted(schema, pa.table({"a": [1, 2], "c": pa.array(values, pa.float64())}))
        assert batch.digest != plain.digest
        rows = decode(schema, encode(batch.batch), 0, 0, 5, digest=batch.digest)
        assert repr(rows.column("c").to_pylist()) == repr(values)


def test_a_column_that_was_added_later_is_not_read_from_a_batch() -> None:
    """A dropped name may come back: a batch of the earlier column does not fill the later one."""
    old = replace(FIRST, columns=(*FIRST.columns, Column("c", BIGINT, since=10)))
    batch = accepted(old, pa.table({"a": [1], "c": [7]}))
    later = replace(
        FIRST,
        columns=(*FIRST.columns, Column("c", TEXT, since=30, default="new")),
        dropped=(Column("c", BIGINT, since=10),),
    )
    rows = decode(later, encode(batch.batch), 0, 0, 20, digest=batch.digest)
    assert rows.column("c").to_pylist() == ["new"]
    with pytest.raises(DecodeError):
        decode(later, encode(batch.batch), 0, 0, 40, digest=batch.digest)


def test_only_added_columns_may_be_missing() -> None:
    schema = replace(FIRST, columns=(*FIRST.columns, Column("c", BIGINT, since=1)))
    with pytest.raises(RowError, match="column a"):
        accept(pa.table({"c": [1]}), schema, 0, LIMITS)
    batch = accepted(schema, pa.table({"a": [1], "c": [2]})).batch
    for payload in (batch.select(["c"]), pa.RecordBatch.from_pydict({"a": [1], "d": [2]})):
        with pytest.raises(DecodeError):
            decode(schema, encode(payload), 0, 0, 5)


def test_columns_that_were_left_out_count_for_the_size_of_a_batch() -> None:
    added = tuple(Column(f"c{number}", BIGINT, since=1) for number in range(100))
    schema = replace(FIRST, columns=(*FIRST.columns, *added))
    with pytest.raises(RowError) as refused:
        accept(pa.table({"a": range(10_000)}), schema, 0, Limits(batch_bytes=1 << 20))
    assert refused.value.reason == "BATCH_TOO_LARGE"


def test_deletes_leave_added_columns_out() -> None:
    added = Column("c", BIGINT, since=1, default=5)
    schema = replace(FIRST, columns=(*FIRST.columns, Column("b", TEXT), added), key=("a",))
    batch = accepted(schema, pa.table({"a": [1], "_op": ["delete"]}))
    assert batch.batch.schema.names == ["_op", "a", "b"]


# ---- blocks


@pytest.mark.parametrize("seed", range(10))
def test_rows_in_memory_get_the_columns_that_are_added(seed: int) -> None:
    dice = random.Random(seed)
    schemas = grown(dice, 4)
    stem = DataStem(Memory(1 << 30), _no_files)
    high, version = 0, 0
    for step in range(30):
        if version + 1 < len(schemas) and dice.random() < 0.2:
            version += 1
            schema = schemas[version]
            stem.alter(stem_schema(schema).names, schema.optional)
        # Also rows that were decoded before the column came.
        decoded_with = schemas[max(0, version - dice.randrange(2))]
        count = dice.choice((1, 3, 200, BLOCK_ROWS // 3))
        batch = accepted(schemas[0], pa.table({"a": np.arange(high, high + count)})).batch
        rows = decode(decoded_with, encode(batch), high, step, 10 * version + 5)
        stem.insert(SplitRows.of(rows), high, high + count)
        high += count
        parts = list(stem.view().probe(None, 1 << 60))
        assert sum(part.rows.num_rows for part in parts) == high
        for part in parts:
            assert part.rows.schema == stem_schema(schemas[version])
            ids = part.rows.column("a").to_numpy()
            assert (ids == part.ids).all()
            for column in schemas[version].columns[1:]:
                assert column.is_default(part.rows.column(column.name))


def test_an_earlier_view_keeps_its_columns() -> None:
    schema = replace(FIRST, columns=(*FIRST.columns, Column("c", BIGINT, since=10, default=3)))
    stem = DataStem(Memory(1 << 30), _no_files)
    batch = accepted(FIRST, pa.table({"a": [1, 2]})).batch
    stem.insert(SplitRows.of(decode(FIRST, encode(batch), 0, 0, 1)), 0, 2)
    before = stem.view()
    stem.alter(stem_schema(schema).names, schema.optional)
    (old,), (new,) = before.probe(None, 1 << 60), stem.view().probe(None, 1 << 60)
    assert "c" not in old.rows.schema.names
    assert new.rows.column("c").to_pylist() == [3, 3]


def _no_files(
    segments: Sequence[RowSegment], lo: int, hi: int, names: Sequence[str] | None = None
) -> pa.RecordBatch:
    raise AssertionError("all rows are in memory")
