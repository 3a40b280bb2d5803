"""Files of a stem written again: with today's columns, without some rows, killed in between."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import deltalake
import duckdb
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from datastem.schema import Column, FormerLabel
from datastem.types import DOUBLE
from psoup.cli import cli
from psoup.engine.ledger import Ledger, stem_name
from psoup.engine.maintain import rewriting
from psoup.engine.maintain.rewriting import WithoutRows, rewrite_stem, run_with
from psoup.engine.repair.rebuild import rebuild
from psoup.engine.repair.recover import open_ledger
from psoup.store import Position, Store, StreamAltered
from psoup.store.checking import check
from psoup.store.delta.files import write_data_file
from psoup.store.delta.reading import reader
from tests.support.engine.author import READINGS, Author, above, add_column, fee_is, readings
from tests.support.engine.pump import Pump
from tests.support.engine.reading import matched, stem_rows

pytestmark = pytest.mark.spark


class Altered:
    """A stream with three files of two rows without `fee`, and one file of one row with it. The
    first file has a column that no schema has."""

    def __init__(self, store: Store, author: Author, spark: SparkSession) -> None:
        self.store, self.spark, self.author = store, spark, author
        self.stream = author.create(READINGS)
        self.high_handle, self.high = author.register(self.stream, above(1.5))
        pump = Pump(store, spark)
        for number in range(3):
            author.publish(self.stream, readings([1, 2], [float(number), 5.0]))
            pump.step()
        add_column(author, self.stream, Column("fee", DOUBLE, default=1.5))
        author.publish(self.stream, readings([3], [6.0]))
        pump.step()
        _, self.usual = author.register(self.stream, fee_is(1.5))
        pump.run()
        self._add_a_foreign_column()

    def _add_a_foreign_column(self) -> None:
        ledger = open_ledger(self.store)
        root, file = ledger.folder(self.name).root, ledger.files(self.name)[0]
        rows = reader(root, file).whole()
        rows = rows.append_column("gone", pa.array(["secret"] * rows.num_rows))
        added = write_data_file(root, rows, bounds=list(file.low), sync=False)
        ledger.commit(self.name, [added], [file], operation="TEST")
        ledger.publish("test")

    @property
    def name(self) -> str:
        return stem_name(self.stream)

    def paths(self) -> dict[str, list[str]]:
        """Return the columns of each file of the stem, by path."""
        ledger = open_ledger(self.store)
        root = ledger.folder(self.name).root
        return {
            file.path: reader(root, file).metadata.schema.names for file in ledger.files(self.name)
        }

    def read(self) -> list[dict[int, float | None]]:
        """Return what deltalake, Spark and DuckDB read: `fee` by row id."""
        root = self.store.root / self.name
        table = deltalake.DeltaTable(root).to_pyarrow_table()
        frame = self.spark.read.format("delta").load(str(root)).select("_row_id", "fee")
        paths = deltalake.DeltaTable(root).file_uris()
        relation = duckdb.read_parquet(paths, union_by_name=True).select("_row_id, fee")
        return [
            _pairs(tuple(row.values()) for row in table.select(["_row_id", "fee"]).to_pylist()),
            _pairs(map(tuple, frame.collect())),
            _pairs(relation.fetchall()),
        ]


def _pairs(rows: Iterable[tuple[int, float | None]]) -> dict[int, float | None]:
    return dict(sorted(rows))


@pytest.fixture
def altered(store: Store, author: Author, spark: SparkSession) -> Altered:
    return Altered(store, author, spark)


def test_rebuild_writes_all_rows_with_the_columns_of_their_stream(altered: Altered) -> None:
    before, rows = altered.paths(), stem_rows(altered.store, altered.stream)
    assert any("gone" in names for names in before.values())
    assert any("fee" not in names for names in before.values())
    done = CliRunner().invoke(cli, ["rebuild", str(altered.store.root), "--rows"])
    assert done.exit_code == 0, done.output
    after = altered.paths()
    assert not before.keys() & after.keys()
    columns = {tuple(names) for names in after.values()}
    assert len(columns) == 1 and "fee" in (names := columns.pop()) and "gone" not in names
    expected = [{**row, "fee": 1.5} for row in rows]
    for row in expected:
        row.pop("gone", None)
    assert stem_rows(altered.store, altered.stream) == expected
    assert altered.read() == [dict.fromkeys(range(7), 1.5)] * 3
    Pump(altered.store, altered.spark).run()
    assert matched(altered.store, altered.usual) == [*range(7)]
    assert matched(altered.store, altered.high) == [1, 3, 4, 5, 6]
    assert check(Store.open(altered.store.root), 1.0).problems == []


def test_columns_are_renamed_and_dropped(altered: Altered) -> None:
    """The table keeps the first names; a dropped column leaves its schema, and then its files."""
    store, author = altered.store, altered.author
    schema = author.state.streams[altered.stream].schema
    sensor, value, fee = schema.columns
    late = FormerLabel("sensor", Position(author.state.position.version + 2, 0).packed, 1)
    author.unregister(altered.high_handle)
    columns = (replace(sensor, renamed="probe", former=(late,)), fee)
    schema = replace(schema, columns=columns, dropped=(replace(value, former=(late,)),))
    author.append(StreamAltered(altered.stream, 3, schema))
    # A batch that was accepted before, and one that lacks the column.
    author.publish(altered.stream, readings([4], [7.0]))
    author.publish(altered.stream, pa.RecordBatch.from_pydict({"sensor": [4]}))
    pump = Pump(store, altered.spark)
    pump.run()
    table = deltalake.DeltaTable(store.root / altered.name)
    fields = {field.name: field for field in table.schema().fields}
    assert {"sensor", "fee"} < fields.keys() and "value" not in fields
    assert "named probe" in fields["sensor"].metadata["comment"]
    assert matched(store, altered.usual) == [*range(9)]
    assert any("value" in names for names in altered.paths().values())
    done = CliRunner().invoke(cli, ["rebuild", str(store.root), "--rows"])
    assert done.exit_code == 0, done.output
    assert not any("value" in names for names in altered.paths().values())
    assert altered.read() == [dict.fromkeys(range(9), 1.5)] * 3
    assert [row["sensor"] for row in stem_rows(store, altered.stream)][-2:] == [4, 4]
    assert check(Store.open(store.root), 1.0).problems == []


def test_rows_leave_their_files_in_tasks_of_spark(altered: Altered) -> None:
    ledger = open_ledger(altered.store)
    # All rows of one file, and one row of another.
    gone = WithoutRows(np.array([0, 1, 4]))
    rewrite_stem(ledger, altered.stream, kind="test", change=gone, run=run_with(altered.spark))
    assert altered.read() == [dict.fromkeys((2, 3, 5, 6), 1.5)] * 3
    assert len(altered.paths()) == 3


def test_a_rebuild_that_is_killed_is_run_again(
    altered: Altered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "_BATCH_BYTES", 1)
    published: list[str] = []
    publish = Ledger.publish

    def stopping(ledger: Ledger, kind: str, log_version: int | None = None) -> None:
        if len(published) == stop:
            raise KeyboardInterrupt
        published.append(kind)
        publish(ledger, kind, log_version)

    monkeypatch.setattr(Ledger, "publish", stopping)
    for stop in range(7):
        published.clear()
        try:
            rebuild(altered.store.root, rows=True)
        except KeyboardInterrupt:
            problems = check(Store.open(altered.store.root), 1.0).problems
            assert problems == [], (stop, problems)
            assert [row["_row_id"] for row in stem_rows(altered.store, altered.stream)] == [
                *range(7)
            ]
    # An epoch that undoes what the last one had committed may come first.
    assert published[-5:] == ["rebuild", *["rewrite"] * 4]
    assert altered.read() == [dict.fromkeys(range(7), 1.5)] * 3
