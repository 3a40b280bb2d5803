"""delta-spark's commands on a store's tables, as docs/how-to/spark-cluster.md describes them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from psoup.engine.repair.recover import open_ledger
from psoup.store import CorruptStore, Store
from tests.support.engine.author import READINGS, Author, above, readings
from tests.support.engine.pump import Pump

pytestmark = pytest.mark.spark


@pytest.fixture
def stem(store: Store, author: Author, spark: SparkSession) -> str:
    """The name of a stem with three files of two rows."""
    stream = author.create(READINGS)
    author.register(stream, above(1.0))
    pump = Pump(store, spark)
    for number in range(3):
        author.publish(stream, readings([1, 2], [float(number), 5.0]))
        pump.step()
    return f"stems/{stream}"


def test_history_and_earlier_versions_can_be_read(
    store: Store, spark: SparkSession, stem: str
) -> None:
    table = f"delta.`{store.root / stem}`"
    history = spark.sql(f"DESCRIBE HISTORY {table}").collect()
    assert [row["operation"] for row in history] == ["APPEND"] * 3 + ["CREATE TABLE"]
    for version in range(4):
        rows = spark.sql(f"SELECT * FROM {table} VERSION AS OF {version}")
        assert rows.count() == 2 * version
    # Reading has changed nothing.
    Pump(store, spark).run()


def test_a_copy_is_no_store_any_more_after_optimize(
    store: Store, spark: SparkSession, stem: str, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(store.root, copy)
    table = f"delta.`{copy / stem}`"
    before = spark.sql(f"SELECT * FROM {table}").count()
    spark.sql(f"OPTIMIZE {table}")
    assert spark.sql(f"SELECT * FROM {table}").count() == before
    assert spark.sql(f"DESCRIBE HISTORY {table}").collect()[0]["operation"] == "OPTIMIZE"
    with pytest.raises(CorruptStore, match=stem):
        open_ledger(Store.open(copy, sync=False))
    # The store itself is as it was.
    Pump(store, spark).run()


@pytest.mark.long
def test_vacuum_deletes_files_that_its_log_does_not_name(
    store: Store, spark: SparkSession, stem: str, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(store.root, copy)
    folder = copy / stem
    named = {path for path in folder.glob("*.parquet")}
    unnamed = [folder / name for name in ("later.parquet", "notes.txt")]
    for path in unnamed:
        path.write_bytes(b"x")
    check = "spark.databricks.delta.retentionDurationCheck.enabled"
    spark.conf.set(check, "false")
    try:
        spark.sql(f"VACUUM delta.`{folder}` RETAIN 0 HOURS")
    finally:
        spark.conf.unset(check)
    assert {path for path in folder.glob("*.parquet")} == named
    assert not any(path.exists() for path in unnamed)
