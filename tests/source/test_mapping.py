"""From nested fields to rows: paths, what is about a message, and no guessing."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from client_sdk import Column, Stream
from psoup.source.errors import BadSettings
from psoup.source.mapping import MESSAGE_METADATA, RowMapping, check_metadata, load_json

STREAM = Stream(
    "t",
    1,
    (
        Column("k", "BIGINT"),
        Column("price", "DECIMAL(20,10)"),
        Column("city", "TEXT"),
        Column("region", "TEXT"),
    ),
    None,
    None,
    timedelta(0),
    0,
    None,
    "",
    0,
    key=("k",),
)
COLUMNS = {"city": "address.lines[1]", "region": "$headers.region"}


def chunk(mapping: RowMapping, *records: str) -> tuple[list[dict[str, Any]], list[str]]:
    rows = [mapping.row(load_json(r.encode()), {"headers.region": "eu"}) for r in records]
    result = mapping.chunk(rows, range(len(rows)), {})
    bad = [f"{line.record} {line.column}: {line.why}" for line in result.bad]
    return result.table.to_pylist(), bad


def test_paths_and_what_is_about_a_record() -> None:
    mapping = RowMapping(STREAM, COLUMNS)
    rows, bad = chunk(
        mapping,
        '{"k": 1, "price": 0.1234567891, "address": {"lines": ["a", "b"]}, "more": 1}',
        '{"k": 2, "price": null, "address": {"lines": ["a"]}}',
        '{"k": 3, "address": {"lines": [1, {"x": [2.50]}]}}',
        '{"k": 4, "address": 7}',
    )
    assert not bad
    assert rows[0] == {"k": 1, "price": Decimal("0.1234567891"), "city": "b", "region": "eu"}
    assert [row["city"] for row in rows] == ["b", None, '{"x": ["2.50"]}', None]
    assert mapping.left_out == {"more": 1}


def test_nothing_is_guessed_unless_it_is_said() -> None:
    records = ['{"k": "1"}', '{"k": 1.0}', '{"k": true}', '{"k": null}', '{"k": 2, "city": 5}']
    rows, bad = chunk(RowMapping(STREAM, {}), *records)
    assert not rows and len(bad) == 5
    assert "4 city: is not TEXT" in bad
    rows, bad = chunk(RowMapping(STREAM, {}, frozenset({"k"})), *records[:2], '{"k": "x"}')
    assert [row["k"] for row in rows] == [1] and len(bad) == 2


def test_deletes_keep_only_their_key() -> None:
    mapping = RowMapping(STREAM, {"k": "id.number"})
    assert mapping.delete({"id": {"number": 5}, "city": "x"}, {}) == {
        "k": 5,
        "price": None,
        "city": None,
        "region": None,
        "_op": "delete",
    }
    assert mapping.named("k", 7) == {"id": {"number": 7}}


@pytest.mark.parametrize("columns", [{"x": "a"}, {"k": "a..b"}, {"k": "a[x]"}, {"k": ""}])
def test_mistakes_in_columns(columns: dict[str, str]) -> None:
    with pytest.raises(BadSettings):
        RowMapping(STREAM, columns)


@pytest.mark.parametrize("path", ["$nothing", "$lsn", "$headers.", "$headers", "$", "$Key"])
def test_what_a_source_does_not_have_is_refused(path: str) -> None:
    fields = {"k": "a", "city": "$key", "region": "$headers.$x"}
    check_metadata(fields, MESSAGE_METADATA)
    with pytest.raises(BadSettings, match=r"no .*; it has \$headers\.NAME, \$key"):
        check_metadata({**fields, "price": path}, MESSAGE_METADATA)
    with pytest.raises(BadSettings, match="nothing but its fields"):
        check_metadata({"city": "$key"}, frozenset())


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "\ufeff{}", "nul"])
def test_what_is_no_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        load_json(text.encode())
