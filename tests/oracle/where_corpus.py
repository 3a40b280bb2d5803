"""The single-table queries of `where.jsonl.gz`, written in our language.

They come from SQLite. What is translated, and nothing else:
- `/` between integers, which truncates there, is `div`;
- INTEGER is BIGINT and FLOAT is DOUBLE, also in CAST;
- ALL, DISTINCT and ORDER BY go: answers are compared as bags, made sets where DISTINCT stood;
- the name of a stream in FROM has no alias, so columns stand without a qualifier.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.generator import Generator

from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, DOUBLE, TEXT
from querystem.expressions import Scalar
from tests.oracle.strategies import to_batch

_TYPES = {"INTEGER": BIGINT, "FLOAT": DOUBLE, "TEXT": TEXT}

Answer = list[tuple[str, ...]]


@dataclass(frozen=True)
class Table:
    """Rows are numbered from 0, in `ts` too."""

    schema: StreamSchema
    rows: list[dict[str, Any]]

    @cached_property
    def batch(self) -> pa.RecordBatch:
        return to_batch(self.schema, self.rows)


@dataclass(frozen=True)
class Case:
    """One query; `expected` is sorted and written as SQLite's test writes it."""

    file: str
    sql: str
    table: Table
    expected: Answer
    _types: str
    _is_distinct: bool

    def shown(self, answer: list[tuple[Scalar, ...]]) -> Answer:
        """Return an answer of ours in the form of `expected`."""
        written = [
            tuple(_shown(value, kind) for value, kind in zip(row, self._types, strict=True))
            for row in answer
        ]
        return sorted(set(written)) if self._is_distinct else sorted(written)


def load(path: Path, every: int = 1) -> Iterator[Case]:
    """One in `every`, in the order of the file."""
    number = itertools.count()
    with gzip.open(path, "rt") as lines:
        for line in lines:
            part = json.loads(line)
            tables = {name: _table(name, form) for name, form in part["tables"].items()}
            for query in part["queries"]:
                if next(number) % every == 0:
                    yield _case(part["file"], query, tables)


def _table(name: str, form: dict[str, Any]) -> Table:
    declared = form["ddl"].partition("(")[2].rstrip(")").split(",")
    parts = [column.split() for column in declared]
    columns = tuple(Column(words[0], _TYPES[words[1]]) for words in parts)
    names = [column.name for column in columns]
    rows = [
        {**dict(zip(names, row, strict=True)), "ts": place, "row_id": place}
        for place, row in enumerate(form["rows"])
    ]
    return Table(StreamSchema(name, columns), rows)


def _case(file: str, query: dict[str, Any], tables: dict[str, Table]) -> Case:
    tree = sqlglot.parse_one(query["sql"], read="sqlite")
    named = tree.find(exp.Table)
    assert named is not None
    table = tables[named.name]
    is_distinct = bool(tree.args.get("distinct"))
    expected = sorted(tuple(row) for row in query["rows"])
    sql = _Writer().generate(_translated(tree, table.schema))
    return Case(file, sql, table, expected, query["types"], is_distinct)


def _translated(tree: exp.Expr, schema: StreamSchema) -> exp.Expr:
    for clause in ("order", "distinct", "kind"):
        tree.set(clause, None)
    for table in tree.find_all(exp.Table):
        table.set("alias", None)
    for column in tree.find_all(exp.Column):
        column.set("table", None)
    for kind in tree.find_all(exp.DataType):
        kind.replace(exp.DataType.build("BIGINT"))
    for quotient in list(tree.find_all(exp.Div)):
        if _is_integer(quotient, schema):
            quotient.replace(exp.IntDiv(this=quotient.this, expression=quotient.expression))
    return tree


def _is_integer(node: exp.Expr, schema: StreamSchema) -> bool:
    columns = all(schema.types[column.name] == BIGINT for column in node.find_all(exp.Column))
    return columns and all(literal.is_int for literal in node.find_all(exp.Literal))


class _Writer(Generator):
    TRANSFORMS = {
        **Generator.TRANSFORMS,
        exp.IntDiv: lambda self, node: self.binary(node, "DIV"),
    }


def _shown(value: Scalar, kind: str) -> str:
    """SQLite's test writes a TEXT as 0 if it expects an integer."""
    if value is None:
        return "NULL"
    if kind == "I":
        return "0" if isinstance(value, str) else str(int(value))  # type: ignore[arg-type]
    return f"{value:.3f}" if kind == "R" else str(value)
