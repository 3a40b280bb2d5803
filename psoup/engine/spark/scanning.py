"""Rows of a stem as a frame of Spark, read by the verified reader.

Spark's own reader would check no page checksum, and would take the files that a commit of Delta
names. A scan takes exactly the files it is given: those of the ledger, without lost ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from datastem.blocks import BLOCK_BITS
from datastem.schema import Column
from psoup.engine.spark.jobs import Damaged
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import DataFileGone, reader, single_batch
from psoup.store.errors import CorruptStore

# Row ids of one partition: a task takes less than half a second. Row groups end at the edges of
# blocks, so no two partitions read the same one.
SCAN_ROWS = 4 << BLOCK_BITS

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class StemScan:
    """The rows `[lo, hi)` of the stem in folder `root`, in these files; `columns` are read, of
    which files may lack the `optional` ones."""

    root: str
    files: tuple[DataFile, ...]
    lo: int
    hi: int
    columns: tuple[str, ...]
    optional: Mapping[str, Column] = field(default_factory=dict)

    def partitions(self) -> list[StemScan]:
        """Return a scan for every SCAN_ROWS row ids that have a file."""
        # The files of each partition, by its number.
        parts: dict[int, list[DataFile]] = {}
        for file in sorted((f for f in self.files if f.low), key=lambda f: f.low["_row_id"]):
            first = max(self.lo, file.low["_row_id"])
            last = min(self.hi - 1, file.high["_row_id"])
            if first <= last:
                for number in range(first // SCAN_ROWS, last // SCAN_ROWS + 1):
                    parts.setdefault(number, []).append(file)
        return [self._part(number, files) for number, files in sorted(parts.items())]

    def _part(self, number: int, files: Iterable[DataFile]) -> StemScan:
        lo, hi = max(self.lo, number * SCAN_ROWS), min(self.hi, (number + 1) * SCAN_ROWS)
        return replace(self, files=tuple(files), lo=lo, hi=hi)

    def batches(self) -> Batches:
        """Yield the rows, one batch for each file. Raise CorruptStore or DataFileGone."""
        for file in self.files:
            source = reader(Path(self.root), file, self.optional)
            yield single_batch(source.between("_row_id", self.lo, self.hi, self.columns))


class Damages:
    """The damaged files that tasks of frames have met. A task that meets one yields no more rows
    and reports it here, because an error in a task of a frame reaches the driver as text only."""

    def __init__(self, spark: SparkSession) -> None:
        self._files = spark.sparkContext.accumulator(list[Damaged](), _Lists())

    def check(self) -> None:
        """Raise CorruptStore if a task has met a damaged file. Call it after each action."""
        for damaged in self._files.value:
            raise CorruptStore(damaged.problem, damaged.file)

    def frame(
        self,
        spark: SparkSession,
        scan: StemScan,
        transform: Callable[[Batches], Batches],
        schema: pa.Schema,
    ) -> DataFrame:
        """Return a frame with what `transform` yields, in tasks, for the batches of a scan."""
        parts = scan.partitions()
        work = partial(_scan, parts, transform, self._files)
        numbers = spark.range(0, len(parts), 1, max(len(parts), 1))
        return numbers.mapInArrow(work, from_arrow_schema(schema))


class _Lists(AccumulatorParam[list[Damaged]]):
    """An accumulator that collects lists."""

    def zero(self, value: list[Damaged]) -> list[Damaged]:
        return []

    def addInPlace(  # noqa: N802
        self, value1: list[Damaged], value2: list[Damaged]
    ) -> list[Damaged]:
        return value1 + value2


def _scan(
    parts: list[StemScan],
    transform: Callable[[Batches], Batches],
    damages: Accumulator[list[Damaged]],
    numbers: Batches,
) -> Batches:
    """Yield the transformed rows of the parts with these numbers. Runs in an executor."""
    try:
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                yield from transform(parts[number].batches())
    except (CorruptStore, DataFileGone) as error:
        damages.add([Damaged(error.file, str(error))])
