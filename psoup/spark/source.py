"""The data source that Spark knows as `psoup`."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from psoup.spark.options import SparkOptions
from psoup.spark.reading import AnswerReader, SparkQuestion
from psoup.spark.streaming import StreamReader
from psoup.spark.writing import BatchWriter, StreamWriter


class PsoupDataSource(DataSource):
    """Reads a stream (`stream`), an answer (`key`) or a query (`sql`); follows a stream; writes
    into one.
    """

    @classmethod
    def name(cls) -> str:
        return "psoup"

    def schema(self) -> StructType:
        """Return the columns of the answer, or of the stream that is written to."""
        options = SparkOptions.of(self.options)
        with options.client() as client:
            return from_arrow_schema(SparkQuestion.of(options).schema(client))

    def reader(self, schema: StructType) -> AnswerReader:
        return AnswerReader(SparkOptions.of(self.options), schema.fieldNames())

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        return StreamReader(SparkOptions.of(self.options), schema.fieldNames())

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        _refuse_overwrite(overwrite)
        return BatchWriter(SparkOptions.of(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        _refuse_overwrite(overwrite)
        return StreamWriter(SparkOptions.of(self.options))


def _refuse_overwrite(overwrite: Any) -> None:
    if overwrite:
        raise ValueError('rows are added to a stream: use mode("append")')
