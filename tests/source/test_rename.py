"""Sources into a stream whose columns were renamed and dropped: files, records and settings may
have the former names still."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from client_sdk import Column, Stream
from psoup.source.connectors.postgres.catalog import TableColumn, TableMapping, TableShape
from psoup.source.errors import BadInput, BadSettings
from psoup.source.mapping import RowMapping
from psoup.source.readers import Options, read

STREAM = Stream(
    "t",
    1,
    (Column("k", "BIGINT", former=("id",)), Column("price", "DOUBLE", former=("cost", "value"))),
    None,
    None,
    timedelta(0),
    0,
    None,
    "",
    0,
    key=("k",),
    dropped=("note",),
)
ROW = {"k": 1, "price": 1.5}


def rows_of(path: Path, options: Options | None = None) -> list[dict[str, Any]]:
    chunks = list(read(path, STREAM, options or Options(), lambda position: None))
    assert not any(chunk.bad for chunk in chunks)
    return [row for chunk in chunks for row in chunk.table.to_pylist()]


@pytest.mark.parametrize("names", [("k", "price"), ("id", "price"), ("id", "cost"), ("k", "value")])
def test_files_with_any_names(tmp_path: Path, names: tuple[str, str]) -> None:
    record = dict(zip(names, (1, 1.5), strict=True))
    for name, more in (("a", {}), ("b", {"note": "x"})):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(record | more))
        header, values = ",".join([*record, *more]), ",".join(["1", "1.5", *more.values()])
        (tmp_path / f"{name}.csv").write_text(f"{header}\n{values}\n")
        pa.parquet.write_table(
            pa.table({k: [v] for k, v in (record | more).items()}), f"{tmp_path}/{name}.parquet"
        )
        for form in ("jsonl", "csv", "parquet"):
            assert rows_of(tmp_path / f"{name}.{form}") == [ROW]


def test_patches_and_lines_of_either_name(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1, "cost": 1.5, "note": "x"}\n{"k": 1, "price": 1.5}\n')
    assert rows_of(path) == [ROW, ROW]
    path.write_text('{"id": 1, "cost": 1.5, "_op": "patch"}\n{"k": 2, "_op": "delete"}\n')
    assert [row["k"] for row in rows_of(path)] == [1, 2]
    path.write_text('{"number": 1, "cost": 1.5}\n')
    assert rows_of(path, Options(rename={"number": "id"})) == [ROW]
    (tmp_path / "a.csv").write_text("id,cost,price\n1,2,3\n")
    with pytest.raises(BadInput, match="two columns for price: 'cost' and 'price'"):
        rows_of(tmp_path / "a.csv")


def test_records_and_settings_with_former_names() -> None:
    mapping = RowMapping(STREAM, {})
    for record in (
        ROW,
        {"id": 1, "cost": 1.5},
        {"k": 1, "value": 1.5},
        {"id": 1, "price": 1.5, "cost": 0},
    ):
        assert mapping.row(record, {}) == ROW
    assert not mapping.left_out
    assert mapping.delete({"id": 1}, {}) == {"k": 1, "price": None, "_op": "delete"}
    mapping = RowMapping(STREAM, {"cost": "a.b", "note": "$key"}, frozenset({"value", "note"}))
    assert mapping.row({"id": 1, "a": {"b": 1.5}, "price": 2}, {"key": 7}) == ROW
    assert mapping.chunk([{"k": 1, "price": "1.5"}], [0], {}).table.to_pylist() == [ROW]
    # A path may lead to a field that has the former name of another column.
    assert RowMapping(STREAM, {"price": "id"}).row({"k": 1, "id": 1.5}, {}) == ROW
    with pytest.raises(BadSettings, match="second name of price"):
        RowMapping(STREAM, {"cost": "a", "price": "b"})
    with pytest.raises(BadSettings, match="no column no"):
        RowMapping(STREAM, {"no": "a"})


def test_tables_of_postgresql_with_former_names() -> None:
    def sources(*names: str, paths: dict[str, str] | None = None) -> dict[str, str]:
        columns = {name: TableColumn("bigint", False) for name in names}
        shape = TableShape("t", columns, (frozenset({names[0]}),), "d")
        return TableMapping(STREAM, paths or {}, frozenset({"note"}), shape).sources

    assert sources("k", "price") == {"k": "k", "price": "price"}
    assert sources("id", "cost", "value") == {"k": "id", "price": "value"}
    assert sources("id", "x", paths={"cost": "x", "note": "y"}) == {"k": "id", "price": "x"}
    with pytest.raises(BadSettings, match="no column price for column price"):
        sources("id", "other")
