"""People who open a store's folder see what each table and each of its columns is."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from datastem.schema import Column, StreamSchema
from datastem.types import DOUBLE, TEXT, TIMESTAMP
from psoup.store import DeltaFolder, Store
from psoup.store.definitions import (
    combinations_table,
    joins_table,
    stem_table,
    system_table,
)
from psoup.store.delta.files import write_data_file
from psoup.store.layout import SEGMENTED, TABLES

TRADES = StreamSchema(
    "trades",
    (Column("symbol", TEXT), Column("price", DOUBLE), Column("at", TIMESTAMP)),
    ordered_by="at",
    key=("symbol",),
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.open(tmp_path / "store", create=True)
    store.create_stem(11, TRADES)
    store.create_composite(12, 3)
    return store


def comments(folder: DeltaFolder) -> dict[str, str]:
    """Return the comment of each column, as deltalake reads it; empty if there is none."""
    fields = deltalake.DeltaTable(folder.root).schema().fields
    return {field.name: str(field.metadata.get("comment", "")) for field in fields}


def name(folder: DeltaFolder) -> str | None:
    return deltalake.DeltaTable(folder.root).metadata().name


@pytest.mark.parametrize("table", TABLES)
def test_every_column_has_a_comment(store: Store, table: str) -> None:
    folder = store.table(table)
    assert name(folder) == table
    assert list(comments(folder)) == TABLES[table].names and all(comments(folder).values())
    partition = deltalake.DeltaTable(folder.root).metadata().partition_columns
    assert partition == (["stream_id", "segment"] if table in SEGMENTED else [])


def test_a_stem_is_named_after_its_stream(store: Store) -> None:
    folder = store.stem(11)
    assert name(folder) == "stem of trades"
    assert all(comments(folder).values())
    assert comments(folder)["symbol"] == "declared as TEXT; part of the stream key"
    assert comments(folder)["price"] == "declared as DOUBLE"
    assert comments(folder)["at"] == "declared as TIMESTAMP; the event time"


def test_tables_of_composites_are_named(store: Store) -> None:
    stem, joins = store.stem(12), store.joins(12)
    assert name(stem) == "combinations of composite 12"
    assert name(joins) == "rows by join key of composite 12"
    assert all(comments(stem).values()) and all(comments(joins).values())


def test_the_description_holds_the_identity_of_the_store_alone(store: Store) -> None:
    folders = [*map(store.table, TABLES), store.stem(11), store.stem(12), store.joins(12)]
    described = [folder.root.name for folder in folders if folder.description]
    assert described == ["log"]
    assert json.loads(store.table("log").description)["store"] == store.id


def test_checkpoints_and_restarts_keep_names_and_comments(store: Store) -> None:
    folder = store.stem(12)
    before = name(folder), comments(folder)
    folder.checkpoint()
    folder.restart(combinations_table(12, 3), 5)
    assert folder.latest_version() == 6
    assert (name(folder), comments(folder)) == before


def test_data_files_have_no_comments(store: Store) -> None:
    folder = store.table("reached")
    written = write_data_file(folder.root, TABLES["reached"].empty_table())
    schema = pq.read_schema(folder.root / written.path)
    assert all("comment" not in str(field.metadata) for field in schema)


def test_definitions_have_the_columns_of_the_layout() -> None:
    for table in TABLES:
        assert system_table(table).schema.equals(TABLES[table])
    assert "_key" in stem_table(TRADES).schema.names
    assert joins_table(1).schema.names[0] == "bucket"


def test_spark_reads_names_and_comments(store: Store, spark: SparkSession) -> None:
    for folder in (store.stem(11), store.table("catalog"), store.table("epochs")):
        path = f"delta.`{folder.root}`"
        fields = spark.read.format("delta").load(str(folder.root)).schema.fields
        assert {field.name: field.metadata["comment"] for field in fields} == comments(folder)
        assert spark.sql(f"DESCRIBE DETAIL {path}").collect()[0]["name"] == name(folder)
        described = {
            row["col_name"]: row["comment"] for row in spark.sql(f"DESCRIBE {path}").collect()
        }
        assert described.items() >= comments(folder).items()
