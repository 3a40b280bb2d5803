"""Answers as DataFrames: one task that receives Arrow batches while it hands them on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from client_sdk import AnswerStream, Client, QueryProblem
from psoup.spark.options import SparkOptions

_OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}


@dataclass(frozen=True)
class SparkQuestion:
    """What is read: the rows of a stream, the answer of a registration, or of a query."""

    stream: str = ""
    key: str = ""
    sql: str = ""
    window: str = ""

    @classmethod
    def of(cls, options: SparkOptions) -> SparkQuestion:
        """Raises ValueError unless exactly one of them is named."""
        question = cls(*(options.get(name) for name in ("stream", "key", "sql", "window")))
        if sum(map(bool, (question.stream, question.key, question.sql))) != 1:
            raise ValueError('give one of .option("stream", …), ("key", …) and ("sql", …)')
        if question.window and not question.key:
            raise ValueError("window is for key")
        return question

    def schema(self, client: Client) -> pa.Schema:
        """Return the columns of the answer."""
        if self.stream:
            return client.stream(self.stream).schema
        if self.key:
            columns = client.registration(self.key).columns
            return pa.schema([(column.name, column.arrow) for column in columns])
        with client.ask_stream(self.sql) as answer:
            return answer.header.schema


@dataclass
class AnswerReader(DataSourceReader):
    """Reads an answer in one task. Filters on columns of a stream are left to the store, if
    `spark.sql.python.filterPushdown.enabled` is true.
    """

    options: SparkOptions
    names: Sequence[str]
    conditions: list[str] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take the filters that the store evaluates; return the others."""
        for item in filters:
            if not self._take(item):
                yield item

    def _take(self, item: Filter) -> bool:
        path: tuple[str, ...] = getattr(item, "attribute", ())
        if not self.options.get("stream") or len(path) != 1 or path[0] not in self.names:
            return False
        # In braces, for the present name of the column.
        name = f"{{{path[0]}}}"
        if isinstance(item, In):
            if not item.value:
                return False
            labels = [self._parameter(value) for value in item.value]
            self.conditions.append(f"{name} IN ({', '.join(labels)})")
        elif type(item) in _OPERATORS:
            value = self._parameter(item.value)  # type: ignore[attr-defined]
            self.conditions.append(f"{name} {_OPERATORS[type(item)]} {value}")
        else:
            return False
        return True

    def _parameter(self, value: Any) -> str:
        label = f"p{len(self.parameters)}"
        self.parameters[label] = value
        return f":{label}"

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the answer as it is when the task runs."""
        question = SparkQuestion.of(self.options)
        with self.options.client() as client, self._answer(client, question) as answer:
            for batch in answer:
                yield batch.select(list(self.names))

    def _answer(self, client: Client, question: SparkQuestion) -> Any:
        if question.key:
            return client.invoke_stream(question.key, window=question.window or None)
        if question.sql:
            return client.ask_stream(question.sql)
        where = " AND ".join(self.conditions)

        def text(present: Mapping[str, str]) -> str:
            conditions = where.format_map(present)
            selection = f'{select_list(self.names, present)} FROM "{question.stream}"'
            return f"SELECT {selection}{f' WHERE {conditions}' if conditions else ''}"

        names = self.names
        return ask_columns(client, question.stream, names, text, parameters=self.parameters)


def ask_columns(
    client: Client,
    stream: str,
    names: Sequence[str],
    text: Callable[[Mapping[str, str]], str],
    **options: Any,
) -> AnswerStream:
    """Return the answer of a text over columns of a stream, made of their present names by those
    that Spark has. A column may have been renamed since Spark has looked.
    """
    present = {name: f'"{name}"' for name in names}
    try:
        return client.ask_stream(text(present), **options)
    except QueryProblem as problem:
        if problem.reason != "UNKNOWN_COLUMN":
            raise
        renamed = client.stream(stream).present_names
        if renamed.keys().isdisjoint(names):
            raise
    present |= {name: f'"{renamed[name]}"' for name in names if name in renamed}
    return client.ask_stream(text(present), **options)


def select_list(names: Sequence[str], present: Mapping[str, str]) -> str:
    """Return columns as SELECT has them, named as Spark does."""
    return ", ".join(f'{present[name]} AS "{name}"' for name in names)
