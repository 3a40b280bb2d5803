"""Combinations: the rows of a query's legs become the rows of its source.

A leg's rows are given: those that its window has chosen and its predicate matches. Items of FROM
are joined, branches of UNION ALL put one after the other, queries inside queries answered.

Rows of a From have the columns the query reads, named by `item_column`; `ts`, the greatest of their
parts; and `row_id`, a number that orders combinations of one ts as the row ids of their legs do, in
the order of FROM. So whatever orders rows by (ts, row_id) orders combinations too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.instants import FOR_EVER, SINCE_EVER
from datastem.types import TIMESTAMP
from querystem.evaluate import kept_rows, project, rows_or_groups
from querystem.expressions import Expression, columns_of
from querystem.identity import slides
from querystem.join import JoinStep, join
from querystem.query import From, Item, Leg, Query, SetOperation, item_column
from results.region import time_region
from results.window import CountWindow, TimeWindow, Window


def part_name(number: int) -> str:
    """The column with the row ids of a leg in combinations; no stream can declare such a name."""
    return f"$part{number}"


# ---- what is read of each leg


def leg_reads(query: Query) -> tuple[frozenset[str], ...]:
    """The columns that are read of each leg's rows, in the order of the legs."""
    return tuple(_source_reads(query))


def _source_reads(query: Query) -> Iterator[frozenset[str]]:
    if isinstance(query.source, Leg):
        yield query.reads | {"ts", "row_id"}
        return
    for number, item in enumerate(query.source.items):
        yield from _item_reads(item, _read_of(number, query, query.source.on))


def _item_reads(item: Item, names: frozenset[str]) -> Iterator[frozenset[str]]:
    match item:
        case Leg():
            yield names | {"ts", "row_id"}
        case Query():
            yield from _source_reads(item)
        case SetOperation(_, queries):
            for query in queries:
                yield from _source_reads(query)


def _read_of(number: int, query: Query, on: Expression) -> frozenset[str]:
    """The columns of an item that a query reads."""
    prefix = item_column(number, "")
    names = {*query.reads, *columns_of(on)}
    return frozenset(name[len(prefix) :] for name in names if name.startswith(prefix))


# ---- the rows of a source


@dataclass(frozen=True)
class Combining:
    """Makes the rows of sources, at one NOW.

    `most_pairs` bounds the pairs of rows that are looked at for one answer. `steps` collects how
    the items were joined.
    """

    now: int
    most_pairs: int
    steps: list[JoinStep]

    def source_rows(
        self, query: Query, legs: Iterable[pa.RecordBatch], parts: bool = False
    ) -> pa.RecordBatch:
        """The rows of a query's source. `legs` are the rows of each leg, by ascending id, with the
        columns that `leg_reads` tells.

        With `parts` combinations have the row ids of their legs, as columns `part_name(n)`. Raises
        TooManyPairs.
        """
        return self._source(query, iter(legs), parts)

    def _source(self, query: Query, legs: Iterator[pa.RecordBatch], parts: bool) -> pa.RecordBatch:
        if isinstance(query.source, Leg):
            return next(legs)
        found = self._combined(query, query.source, legs)
        names = [name for name in query.reads if name not in ("ts", "row_id")]
        columns = {name: found.columns[name] for name in names}
        if "row_id" in query.reads or parts:
            columns["ts"] = pa.array(found.ts).view(TIMESTAMP.arrow)
            columns["row_id"] = pa.array(_place(found.parts, len(found.ts)))
        if parts:
            columns |= {part_name(n): pa.array(one) for n, one in enumerate(found.parts)}
        if not columns:
            # Rows of which nothing is read are still counted.
            columns["row_id"] = pa.array(np.arange(len(found.ts)))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _combined(self, query: Query, source: From, legs: Iterator[pa.RecordBatch]) -> _Rows:
        items = [self._item(item, legs) for item in source.items]
        inputs = [
            _named(number, item, _read_of(number, query, source.on))
            for number, item in enumerate(items)
        ]
        joined = join(inputs, source.on, self.most_pairs)
        self.steps.extend(joined.steps)
        columns: dict[str, pa.Array] = {}
        for one, places in zip(inputs, joined.places, strict=True):
            wanted = [name for name in one.schema.names if name in query.reads]
            shown = one.select(wanted).take(pa.array(places))
            columns |= dict(zip(wanted, shown.columns, strict=True))
        taken = [item.at(places) for item, places in zip(items, joined.places, strict=True)]
        ts = np.maximum.reduce([one.ts for one in taken])
        return _Rows(columns, ts, tuple(part for one in taken for part in one.parts))

    def _item(self, item: Item, legs: Iterator[pa.RecordBatch]) -> _Rows:
        match item:
            case Leg():
                return _leg_rows(next(legs))
            case Query():
                return self._query(item, legs)
            case SetOperation(_, queries):
                branches = [self._query(query, legs) for query in queries]
                return _united(item, branches)

    def _query(self, query: Query, legs: Iterator[pa.RecordBatch]) -> _Rows:
        """The rows of a query inside a query."""
        rows = self._source(query, legs, parts=True)
        if not slides(query):
            kept = kept_rows(query, rows_or_groups(query, [rows]))
            places = np.arange(kept.num_rows)
            return _Rows(_outputs(query, kept), np.full(kept.num_rows, SINCE_EVER), (places,))
        ts = rows.column("ts")
        columns = {"ts": ts} | _outputs(query, rows)
        found = _Rows(columns, ts.view(pa.int64()).to_numpy(), parts_of(query, rows))
        return found if query.over is None else found.within(query.over, self.now)


@dataclass(frozen=True)
class _Rows:
    """The rows of an item: their columns, instants, and the row ids of the legs in each."""

    columns: Mapping[str, pa.Array]
    ts: Int64s
    parts: tuple[Int64s, ...]

    def at(self, places: Int64s) -> _Rows:
        """Instants and row ids of some rows, without their columns."""
        return _Rows({}, self.ts[places], tuple(part[places] for part in self.parts))

    def within(self, window: Window, now: int) -> _Rows:
        """The rows that a window over a query holds."""
        ids = _place(self.parts, len(self.ts))
        match window:
            case TimeWindow():
                held = time_region(window, now, None, FOR_EVER).holds(self.ts, ids)
                places = np.flatnonzero(held)
            case CountWindow():
                past = np.flatnonzero(self.ts <= now)
                places = past[np.lexsort((ids[past], self.ts[past]))][-window.rows :]
            case _:
                raise AssertionError("rows of a query inside a query have no row id")
        columns = {name: column.take(pa.array(places)) for name, column in self.columns.items()}
        taken = self.at(places)
        return _Rows(columns, taken.ts, taken.parts)


def _leg_rows(rows: pa.RecordBatch) -> _Rows:
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    ts = rows.column("ts").view(pa.int64()).to_numpy()
    return _Rows(columns, ts, (rows.column("row_id").to_numpy(),))


def _outputs(query: Query, rows: pa.RecordBatch) -> dict[str, pa.Array]:
    outputs = project(query, rows)
    return dict(zip(outputs.schema.names, outputs.columns, strict=True))


def parts_of(query: Query, rows: pa.RecordBatch) -> tuple[Int64s, ...]:
    """The row ids of the legs in each row of a query's source."""
    if isinstance(query.source, Leg):
        return (rows.column("row_id").to_numpy(),)
    names = [name for name in rows.schema.names if name.startswith(part_name(0)[:-1])]
    return tuple(rows.column(name).to_numpy() for name in names)


def _named(number: int, item: _Rows, reads: Collection[str]) -> pa.RecordBatch:
    """The columns of an item that are read, by the names they have in its From."""
    names = [name for name in item.columns if name in reads]
    columns = [item.columns[name] for name in names]
    if not columns:
        columns, names = [pa.nulls(len(item.ts))], [""]
    return pa.RecordBatch.from_arrays(columns, names=[item_column(number, name) for name in names])


def _united(operation: SetOperation, branches: Sequence[_Rows]) -> _Rows:
    """UNION ALL: a row is named by its branch, and by its parts there."""
    width = max(len(branch.parts) for branch in branches)
    names = [[column.name for column in query.columns] for query in operation.queries]
    columns = {"ts": pa.concat_arrays([branch.columns["ts"] for branch in branches])}
    for same in zip(*names, strict=True):
        parts = [branch.columns[name] for branch, name in zip(branches, same, strict=True)]
        columns[same[0]] = pa.concat_arrays(parts)
    numbers = np.repeat(np.arange(len(branches)), [len(branch.ts) for branch in branches])
    padded = zip(*(_padded(branch, width) for branch in branches), strict=True)
    ts = np.concatenate([branch.ts for branch in branches])
    return _Rows(columns, ts, (numbers, *(np.concatenate(part) for part in padded)))


def _padded(branch: _Rows, width: int) -> list[Int64s]:
    missing = width - len(branch.parts)
    return [*branch.parts, *[np.full(len(branch.ts), -1)] * missing]


def _place(parts: Sequence[Int64s], count: int) -> Int64s:
    """A number for each combination that orders them by their parts.

    The parts are the digits of one number, where that has room; else combinations are sorted.
    """
    if not count:
        return np.empty(0, np.int64)
    lows = [int(part.min()) for part in parts]
    spans = [int(part.max()) - low + 1 for part, low in zip(parts, lows, strict=True)]
    if np.prod(np.array(spans, object)) < FOR_EVER:
        number = np.zeros(count, np.int64)
        for part, low, span in zip(parts, lows, spans, strict=True):
            number = number * span + (part - low)
        return number
    place = np.empty(count, np.int64)
    place[np.lexsort(tuple(reversed(parts)))] = np.arange(count)
    return place
