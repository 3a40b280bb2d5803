"""What the settings of the Spark session must do."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from psoup.store import Store
from tests.support.engine.author import READINGS, Author, readings
from tests.support.engine.pump import Pump

pytestmark = pytest.mark.spark

ROWS, FLIPS = 4000, 12


def test_spark_s_own_reader_detects_flipped_bits(
    store: Store, author: Author, spark: SparkSession
) -> None:
    values = np.random.default_rng(1).normal(size=ROWS)
    stream = author.create(READINGS)
    author.publish(stream, readings(list(range(ROWS)), values.tolist()))
    Pump(store, spark).step()
    stem = store.stem(stream)
    (file,) = stem.snapshot().files.values()
    path = stem.path_of(file)
    intact = path.read_bytes()
    offset, length = _pages(path, "value")

    def total() -> float:
        rows = spark.read.format("delta").load(str(stem.root))
        return float(rows.agg(sql.sum("value")).collect()[0][0])

    assert total() == pytest.approx(values.sum())
    chance = random.Random(2)
    for _ in range(FLIPS):
        damaged = bytearray(intact)
        # Not in the first bytes, which are the page's header.
        damaged[offset + chance.randrange(length // 4, length)] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(Py4JJavaError, match="CRC checksum verification failed"):
            total()


def _pages(path: Path, name: str) -> tuple[int, int]:
    """Return where the pages of a column begin, and their length."""
    group = pq.read_metadata(path).row_group(0)
    columns = (group.column(index) for index in range(group.num_columns))
    (column,) = (column for column in columns if column.path_in_schema == name)
    start = column.dictionary_page_offset or column.data_page_offset
    return start, column.total_compressed_size
