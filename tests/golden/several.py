"""The worked answers over several streams, as `golden.jsonl` of the specification has them.

A line has a query, the rows of its streams, views, and the answer at some instants, as a multiset.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from client_sdk import Client
from datastem.instants import SECOND, from_micros, to_micros
from datastem.schema import StreamSchema
from querystem.composites import ComposedStream, Composition, compose
from querystem.language import CreateView, bind_query, bind_view, parse_statement
from querystem.query import Query
from querystem.views import ViewDefinition
from tests.golden.stream import Stream
from tests.oracle.comparing import Values

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
_ORIGIN = to_micros(datetime(2015, 7, 15, tzinfo=UTC))


@dataclass(frozen=True)
class Line:
    """A query, its streams, and the answer at each instant, which is in microseconds."""

    name: str
    sql: str
    streams: Mapping[str, Stream]
    answers: Mapping[int, Counter[Values]]
    views: Mapping[str, str]

    @cached_property
    def instants(self) -> list[int]:
        """All at which a row comes or the query is asked."""
        rows = (row["ts"] for stream in self.streams.values() for row in stream.rows)
        return sorted({*rows, *self.answers})

    @property
    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield the time between two instants at which the query is asked, and that before the
        first and after the last: each without its begin and with its end."""
        ends = sorted({*self.answers, self.instants[-1]})
        yield from itertools.pairwise([self.instants[0] - 1, *ends])

    @property
    def statements(self) -> list[str]:
        """The statements that make the views."""
        return [f"CREATE VIEW {name} AS {text}" for name, text in self.views.items()]

    @cached_property
    def query(self) -> Query:
        """The query, bound."""
        definitions: dict[str, StreamSchema | ViewDefinition] = dict(self.schemas)
        for sql in self.statements:
            statement = parse_statement(sql)
            assert isinstance(statement, CreateView)
            definitions[statement.name] = bind_view(sql, statement, definitions.get)
        return bind_query(self.sql, definitions.get)

    @cached_property
    def is_composed(self) -> bool:
        """Whether the engine finds the combinations of the query's FROM ahead of time."""
        numbers = {name: number for number, name in enumerate(self.streams)}
        schemas = self.schemas
        streams = [
            ComposedStream(numbers[leg.stream], schemas[leg.stream]) for leg in self.query.legs
        ]
        return isinstance(compose(self.query, streams), Composition)

    @cached_property
    def written_out(self) -> str | None:
        """The query with the views in it as sub-queries; None where one can't be."""
        sql = self.sql
        for name, view in self.views.items():
            if "REFRESH" in view:
                return None
            sql = re.sub(rf"\bFROM {name}\b", f"FROM ({view}) AS {name}", sql)
        return sql

    @property
    def schemas(self) -> dict[str, StreamSchema]:
        return {name: stream.schema for name, stream in self.streams.items()}

    def is_still(self, after: int, until: int) -> bool:
        """Tells whether no row comes after one instant, up to another."""
        rows = (row["ts"] for stream in self.streams.values() for row in stream.rows)
        return not any(after < ts <= until for ts in rows)


def lines() -> list[Line]:
    """All lines; none where the specification is not beside the repository."""
    path = SHARED / "spec" / "golden.jsonl"
    if not path.exists():
        return []
    return [line_of(json.loads(line)) for line in path.read_text().splitlines() if line]


def line_of(form: Mapping[str, Any]) -> Line:
    """Return the line that is written as `golden.jsonl` has them."""
    auctions = isinstance(form["streams"], str)
    streams = _auctions() if auctions else _streams(form)
    unit, origin = (1, _ORIGIN) if auctions else (SECOND, 0)
    answers = {
        origin + int(at) * unit: Counter(_multiset(rows, form.get("extra")))
        for at, rows in form["at"].items()
    }
    return Line(form["name"], form["sql"], streams, answers, form.get("views", {}))


def _multiset(rows: Iterable[list[Any]], extra: str | None) -> Iterable[Values]:
    """The rows without a last column that is not selected; that of copies says how many."""
    for row in rows:
        values = tuple(row if extra is None else row[:-1])
        yield from itertools.repeat(values, row[-1] if extra == "copies" else 1)


# ---- a store


def define_line(client: Client, line: Line) -> None:
    """Create the streams and views of a line."""
    for sql in (*(stream.sql for stream in line.streams.values()), *line.statements):
        client.define(sql)


def publish_span(client: Client, line: Line, begin: int, end: int) -> None:
    """Publish the rows after `begin` until `end`, and that time has come to `end`."""
    for name, stream in line.streams.items():
        columns = [*stream.schema.arrow.names, *(["_op"] if stream.schema.key else [])]
        rows = [
            {column: row[column] for column in columns}
            for row in sorted(stream.rows, key=lambda row: int(row["ts"]))
            if begin < row["ts"] <= end
        ]
        if rows:
            client.publish(name, rows)
    for name in line.streams:
        client.heartbeat(name, from_micros(end))


def bag(rows: list[dict[str, Any]]) -> Counter[Values]:
    """Return rows as a multiset."""
    return Counter(tuple(row.values()) for row in rows)


# ---- streams


def _streams(form: Mapping[str, Any]) -> dict[str, Stream]:
    valid, keys, deletes = (form.get(name, {}) for name in ("valid", "keys", "deletes"))
    return {
        name: _of_intervals(name, columns, form["streams"][name])
        if name in valid
        else _stream(
            name, columns, form["streams"][name], keys.get(name, ()), deletes.get(name, "")
        )
        for name, columns in form["columns"].items()
    }


def _stream(
    name: str, columns: Sequence[str], rows: Sequence[list[Any]], key: Sequence[str], deletes: str
) -> Stream:
    """`deletes` is a condition, `column IS NULL`: such a row deletes its key."""
    marker = deletes.removesuffix(" IS NULL")
    stream_rows = []
    for row in rows:
        values = dict(zip([*columns, "at"], row, strict=True))
        deleted = bool(marker) and values[marker] is None
        stream_rows.append(values | ({"_op": "delete" if deleted else "row"} if key else {}))
    return Stream(_declared(name, columns, stream_rows, key), stream_rows)


def _of_intervals(name: str, columns: Sequence[str], rows: Sequence[list[Any]]) -> Stream:
    """Rows that are valid from an instant until another: a key each, deleted at the end."""
    changes = []
    for number, (*values, begin, end) in enumerate(rows):
        row = {"number": number, **dict(zip(columns, values, strict=True))}
        changes += [{**row, "at": begin, "_op": "row"}, {**row, "at": end, "_op": "delete"}]
    changes.sort(key=lambda row: row["at"])
    return Stream(_declared(name, ["number", *columns], changes, ["number"]), changes)


def _declared(
    name: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]], key: Sequence[str]
) -> str:
    def kind(column: str) -> str:
        sample = next((row[column] for row in rows if row[column] is not None), "")
        return "BIGINT" if isinstance(sample, int) else "TEXT"

    typed = ", ".join(f"{column} {kind(column)}" for column in columns)
    keyed = f" KEY ({', '.join(key)})" if key else ""
    return f"CREATE STREAM {name} ({typed}, at TIMESTAMP){keyed} ORDERED BY at"


def _auctions() -> dict[str, Stream]:
    """NEXMark's bids, and its auctions as they open (`oa`) and as they close (`ca`)."""
    bids, auctions = (_read(name) for name in ("bid", "auction"))
    columns = {"itemid": "id", "seller": "seller", "start_price": "initial_bid"}
    bid = _chosen(bids, {"itemid": "auction", "price": "price", "bidder": "bidder"}, "date_time")
    opened = _chosen(auctions, columns, "date_time")
    closed = _chosen(auctions, {"itemid": "id"}, "expires")
    return {
        name: Stream(
            _declared(name, [column for column in rows[0] if column != "at"], rows, ()), rows
        )
        for name, rows in (("bid", bid), ("oa", opened), ("ca", closed))
    }


def _read(name: str) -> list[dict[str, str]]:
    with (SHARED / "data" / "nexmark" / f"{name}.csv").open() as opened:
        return list(csv.DictReader(opened))


def _chosen(
    rows: Iterable[Mapping[str, str]], columns: Mapping[str, str], at: str
) -> list[dict[str, Any]]:
    chosen = [
        {name: int(row[source]) for name, source in columns.items()}
        | {"at": datetime.fromisoformat(row[at]).replace(tzinfo=UTC)}
        for row in rows
    ]
    return sorted(chosen, key=lambda row: row["at"])
