"""What a task tells the driver: the files it wrote, and the payloads it could not read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import pyarrow as pa

from psoup.store.datafile import DataFile

SQL_SCHEMA = "tbl string, file string, problem string"
_ARROW = pa.schema([("tbl", pa.string()), ("file", pa.string()), ("problem", pa.string())])


@dataclass(frozen=True, slots=True)
class Written:
    """A file, synced and waiting for its commit. `table` is a name as the ledger has it."""

    table: str
    file: DataFile


@dataclass(frozen=True, slots=True)
class Undecodable:
    """The ids of this payload stay empty."""

    problem: str


Outcome = Written | Undecodable


def to_batch(outcomes: Iterable[Outcome]) -> pa.RecordBatch:
    rows = [_row(outcome) for outcome in outcomes]
    return pa.RecordBatch.from_pylist(rows, schema=_ARROW)


def from_rows(rows: Iterable[tuple[str, str, str | None]]) -> list[Outcome]:
    """What `to_batch` made, as Spark's rows."""
    return [
        Written(table, DataFile(**json.loads(file))) if problem is None else Undecodable(problem)
        for table, file, problem in rows
    ]


def by_table(outcomes: Iterable[Outcome]) -> dict[str, list[DataFile]]:
    """The files to commit, table by table."""
    files: dict[str, list[DataFile]] = {}
    for outcome in outcomes:
        if isinstance(outcome, Written):
            files.setdefault(outcome.table, []).append(outcome.file)
    return files


def _row(outcome: Outcome) -> dict[str, str | None]:
    match outcome:
        case Written(table, file):
            return {"tbl": table, "file": json.dumps(asdict(file)), "problem": None}
        case Undecodable(problem):
            return {"tbl": None, "file": None, "problem": problem}
