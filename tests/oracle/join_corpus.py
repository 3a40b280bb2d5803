"""The joins of `joins.jsonl.gz`: two to five tables each, with the rows that SQLite found.

Nothing is translated but the types of columns: INTEGER is BIGINT and VARCHAR is TEXT.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, TEXT
from tests.oracle.clocks import Known
from tests.oracle.comparing import Values
from tests.oracle.trees import World


@dataclass(frozen=True)
class JoinCase:
    """A query, and its rows in any order, written as SQLite's test writes them."""

    sql: str
    expected: Counter[tuple[str, ...]]

    def is_answered_by(self, rows: Sequence[Values]) -> bool:
        return Counter(tuple(str(value) for value in row) for row in rows) == self.expected


@dataclass(frozen=True)
class JoinCorpus:
    """Tables as streams, whose rows are numbered from 0, in `ts` too."""

    world: World
    cases: Sequence[JoinCase]

    @property
    def schemas(self) -> Mapping[str, StreamSchema]:
        return {name: by_name.schema for name, by_name in self.world.streams.items()}


def load_joins(path: Path) -> JoinCorpus:
    with gzip.open(path, "rt") as lines:
        (part,) = map(json.loads, lines)
    streams = {name: _stream(name, form) for name, form in part["tables"].items()}
    cases = [
        JoinCase(query["sql"], Counter(tuple(row) for row in query["rows"]))
        for query in part["queries"]
    ]
    return JoinCorpus(World(streams, clock=max(len(case.rows) for case in streams.values())), cases)


def _stream(name: str, form: Mapping[str, Any]) -> Known:
    declared = form["ddl"].partition("(")[2].rpartition(")")[0].split(",")
    words = [column.split() for column in declared]
    columns = [Column(word[0], BIGINT if word[1] == "INTEGER" else TEXT) for word in words]
    names = [column.name for column in columns]
    rows = [
        {**dict(zip(names, row, strict=True)), "ts": place, "row_id": place}
        for place, row in enumerate(form["rows"])
    ]
    return Known(StreamSchema(name, tuple(columns)), rows, len(rows))
