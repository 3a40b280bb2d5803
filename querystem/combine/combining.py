"""The walk over a query's tree: from the rows of its legs to the rows of its source.

Rows of a From have the columns the query reads, named by `item_column`; `ts`, the greatest of their
parts; and `row_id`, a number that orders combinations of one ts as the row ids of their legs do, in
the order of FROM. So whatever orders rows by (ts, row_id) orders combinations too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from datastem.instants import SINCE_EVER
from datastem.types import TIMESTAMP
from querystem.combine.lookups import Versions, look_up
from querystem.combine.reads import from_reads, lookup_reads, side_reads
from querystem.combine.rows import (
    AnyRows,
    ItemRows,
    LegColumns,
    LegItem,
    place_of,
    side_by_side,
)
from querystem.combine.sets import united
from querystem.combine.subqueries import value_of
from querystem.evaluate import kept_rows, project, rows_or_groups
from querystem.expressions import TRUE, Expression, columns_of
from querystem.identity import parts_of, row_ids
from querystem.join import JoinRoom, JoinStep, join, semi_join, without_items
from querystem.kernel import matches
from querystem.query import (
    AsOf,
    From,
    Item,
    LeftJoin,
    Leg,
    Query,
    SetOperation,
    SubQuery,
    part_name,
    subquery_column,
)
from querystem.refresh import PartKind
from results.masking import masked

# Of each leg its rows; or, where they are looked up, all versions of them.
LegInput: TypeAlias = pa.RecordBatch | LegColumns | Versions
Legs: TypeAlias = Iterator[LegInput]
JoiningPart: TypeAlias = From | LeftJoin | SubQuery
# Gives the combinations of a query's FROM with the columns of these names, from wherever they are
# known.
FoundCombinations: TypeAlias = Callable[[frozenset[str]], ItemRows]


@dataclass(frozen=True, slots=True)
class JoinRun:
    """How the inputs of one part of a query's tree were joined: the first of them, and each of the
    others in turn."""

    part: JoiningPart
    first: int
    steps: tuple[JoinStep, ...]


@dataclass(frozen=True, slots=True)
class _Answered:
    """A part of a query's tree, what it was answered from, at which NOW, and its answer."""

    part: Query | SetOperation
    inputs: Sequence[LegInput]
    now: int
    answer: ItemRows

    def is_of(self, part: Query | SetOperation, inputs: Sequence[LegInput], now: int) -> bool:
        """Return whether it is the answer of an equal part from the same inputs, at the same NOW."""
        same = now == self.now and len(inputs) == len(self.inputs)
        same = same and all(one is other for one, other in zip(inputs, self.inputs, strict=True))
        return same and part == self.part


@dataclass(frozen=True)
class Combining:
    """Makes the rows of sources, at one NOW; queries inside that have refresh points are at `nows`,
    in the order of the text, as far as there are any.

    `most_pairs` bounds the pairs of rows that are looked at for one join, `room` the memory that
    all of them take. `runs` collects how inputs were joined. A query or a set operation that
    is there twice, over the same inputs, is answered once. Numbers made from values, which
    name groups and rows of DISTINCT and set operations, are masked with `mask`, if there is one.
    """

    now: int
    most_pairs: int
    runs: list[JoinRun]
    room: JoinRoom = field(default_factory=JoinRoom)
    nows: Iterator[int] = iter(())
    mask: bytes = b""
    _repeated: list[LegInput] = field(default_factory=list)
    _answered: list[_Answered] = field(default_factory=list)

    def source_rows(
        self,
        query: Query,
        legs: Iterable[LegInput],
        parts: bool = False,
        known: FoundCombinations | None = None,
    ) -> pa.RecordBatch:
        """Return the rows of a query's source. `legs` are the rows of each leg, by ascending id,
        with the columns that `leg_reads` tells; without those of FROM where its combinations are
        `known`.

        With `parts` combinations have the numbers that name them, as columns `part_name(n)`. Raise
        TooManyPairs, TooManyBytes.
        """
        inputs = list(legs)
        self._repeated[:] = [one for n, one in enumerate(inputs) if _is_among(one, inputs[:n])]
        return self._source(query, iter(inputs), parts, known)

    def _source(
        self, query: Query, legs: Legs, parts: bool, known: FoundCombinations | None = None
    ) -> pa.RecordBatch:
        if isinstance(query.source, Leg):
            return _leg_batch(legs, query.reads | {"ts", "row_id"})
        found = self._from(query.source, query.reads, legs, known)
        columns = {name: found.columns[name] for name in query.reads - {"ts", "row_id"}}
        if "row_id" in query.reads or parts or not columns:
            columns["ts"] = pa.array(found.ts).view(TIMESTAMP.arrow)
            columns["row_id"] = pa.array(place_of(found.parts, len(found)))
        if parts:
            columns |= {part_name(n): pa.array(one) for n, one in enumerate(found.parts)}
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    # ---- FROM

    def _from(
        self,
        source: From,
        wanted: Collection[str],
        legs: Legs,
        known: FoundCombinations | None = None,
    ) -> ItemRows:
        names = from_reads(source, wanted)
        found = known(names) if known else self.combinations(source, names, legs)
        for number, subquery in enumerate(source.subqueries):
            column = {subquery_column(number): self._value(subquery, found, legs)}
            found = ItemRows({**found.columns, **column}, found.ts, found.parts)
        return _matching(found, source.where, wanted)

    def combinations(self, source: From, names: frozenset[str], legs: Legs) -> ItemRows:
        """Return the combinations of a From, before queries inside expressions have their say.

        Items are joined; then rows of keyed streams are looked up, for what has been joined.
        """
        reads = [side_reads(n, source.on, wanted=names) for n in range(len(source.items))]
        items, versions = list[AnyRows](), dict[int, Versions]()
        for number, item in enumerate(source.items):
            if isinstance(item, Leg) and item.as_of is not None:
                versions[number] = _versions(legs)
                items.append(ItemRows.nobody())
            else:
                items.append(self._item(item, reads[number], legs))
        on, later = without_items(source.on, versions)
        inputs = [rows.batch(n, side_reads(n, on)) for n, rows in enumerate(items)]
        places = self.places(source, inputs, on)
        for number, known in versions.items():
            as_of = _as_of(source.items[number])
            joined = side_by_side(items, places, lookup_reads(source.items))
            found = look_up(as_of, known, joined.whole(), reads[number])
            kept = np.flatnonzero(found.places >= 0)
            items[number], places = found.rows, [one[kept] for one in places]
            places[number] = found.places[kept]
        together = self.beside(items, places, {*names, *columns_of(later)})
        return _matching(together, later, names)

    def places(
        self, part: JoiningPart, inputs: Sequence[pa.RecordBatch], on: Expression
    ) -> Sequence[Int64s]:
        """Return the places of the rows of the combinations for which `on` is true."""
        joined = join(inputs, on, self.most_pairs, self.room)
        self.runs.append(JoinRun(part, joined.first, joined.steps))
        return joined.places

    def beside(
        self, items: Sequence[AnyRows], places: Sequence[Int64s], names: Collection[str]
    ) -> ItemRows:
        """Combinations of rows, for which there is room."""
        each = sum(item.row_bytes(number, names) for number, item in enumerate(items))
        self.room.take(round(each * len(places[0])))
        return side_by_side(items, places, names)

    def _item(self, item: Item, reads: frozenset[str], legs: Legs) -> AnyRows:
        match item:
            case Leg():
                return _leg_item(legs, reads)
            case Query():
                return self._query(item, legs)
            case SetOperation(_, queries):
                inputs = [next(legs) for query in queries for _ in query.legs]
                return self._once(item, inputs)
            case LeftJoin():
                return self._left_join(item, reads, legs)

    def _left_join(self, item: LeftJoin, reads: frozenset[str], legs: Legs) -> ItemRows:
        by = lookup_reads((item.right,))
        sides = side_reads(0, item.on, wanted=reads | by), side_reads(1, item.on, wanted=reads)
        left = self._from(item.left, sides[0], legs)
        if isinstance(item.right, Leg) and item.right.as_of is not None:
            looked_up = look_up(
                item.right.as_of, _versions(legs), left.batch(0, sides[0]), sides[1]
            )
            right: AnyRows = looked_up.rows
            pairs = looked_up.pairs
            both = side_by_side([left, right], pairs, {*columns_of(item.on)})
            true = np.flatnonzero(matches(item.on, both.whole()))
            found: Sequence[Int64s] = [one[true] for one in pairs]
        else:
            right = self._item(item.right, sides[1], legs)
            inputs = [left.batch(0, sides[0]), right.batch(1, sides[1])]
            found = self.places(item, inputs, item.on)
        partnered = np.zeros(len(left), np.bool_)
        partnered[found[0]] = True
        alone = np.flatnonzero(~partnered)
        nobody = np.full(len(alone), -1)
        places = np.concatenate([found[0], alone]), np.concatenate([found[1], nobody])
        return self.beside([left, right], places, reads)

    # ---- queries inside queries

    def _query(self, query: Query, legs: Legs) -> ItemRows:
        """Return the rows of a query that is an item, or stands in an expression."""
        return self._once(query, [next(legs) for _ in query.legs])

    def _once(self, part: Query | SetOperation, inputs: Sequence[LegInput]) -> ItemRows:
        for known in self._answered:
            if known.is_of(part, inputs, self.now):
                for _ in range(_inner_points(part)):
                    next(self.nows, None)
                return known.answer
        legs = iter(inputs)
        if isinstance(part, Query):
            found = self._rows(part, legs)
        else:
            queries = [self._query(query, legs) for query in part.queries]
            found = united(part, queries, self.mask)
        if all(_is_among(one, self._repeated) for one in inputs):
            self._answered.append(_Answered(part, inputs, self.now, found))
        return found

    def _inner_now(self, query: Query) -> int:
        """NOW inside a query: that of its own refresh point, where it has points."""
        return self.now if query.refresh is None else next(self.nows, self.now)

    def _rows(self, query: Query, legs: Legs) -> ItemRows:
        rows = replace(self, now=self._inner_now(query))._source(query, legs, parts=True)
        if not query.timed:
            kept = kept_rows(query, rows_or_groups(query, [rows]))
            outputs = project(query, kept)
            ids = row_ids(query, kept, outputs)
            if query.distinct or query.grouping is not None:
                ids = masked(ids, self.mask)
            return ItemRows(_columns(outputs), np.full(len(ids), SINCE_EVER), (ids,))
        ts = rows.column("ts")
        columns = {"ts": ts, **_columns(project(query, rows))}
        found = ItemRows(columns, ts.view(pa.int64()).to_numpy(), parts_of(query, rows))
        return found if query.over is None else found.within(query.over, self.now)

    def _value(self, subquery: SubQuery, outer: ItemRows, legs: Legs) -> pa.Array:
        """Return the value of a query inside an expression, for each combination."""
        inner = self._query(subquery.query, legs)
        return value_of(subquery, outer, inner, _SubQueryJoins(self, subquery))


@dataclass(frozen=True, slots=True)
class _SubQueryJoins:
    """The joins of a query inside an expression with the combinations it is asked about."""

    combining: Combining
    subquery: SubQuery

    def pairs(self, sides: Sequence[pa.RecordBatch], on: Expression) -> Sequence[Int64s]:
        return self.combining.places(self.subquery, sides, on)

    def partnered(self, sides: Sequence[pa.RecordBatch], on: Expression) -> Mask:
        combining = self.combining
        found = semi_join(sides, on, combining.most_pairs, combining.room)
        combining.runs.append(JoinRun(self.subquery, 0, found.steps))
        return found.mask


def _inner_points(part: Query | SetOperation) -> int:
    """Return how many queries of a part, itself among them, have refresh points."""
    queries = (part,) if isinstance(part, Query) else part.queries
    parts = [one for query in queries for one in query.refreshed_parts]
    return sum(one.kind is not PartKind.LEG for one in parts)


def _is_among(one: LegInput, others: Sequence[LegInput]) -> bool:
    return any(one is other for other in others)


def _columns(outputs: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(outputs.schema.names, outputs.columns, strict=True))


def _matching(rows: ItemRows, where: Expression, names: Collection[str]) -> ItemRows:
    """Return the rows for which a condition is true, with some of their columns."""
    if where == TRUE:
        return rows
    return rows.take(np.flatnonzero(matches(where, rows.whole())), names)


def _leg_item(legs: Legs, reads: frozenset[str]) -> AnyRows:
    rows = next(legs)
    if isinstance(rows, LegColumns):
        return LegItem(rows, reads)
    assert isinstance(rows, pa.RecordBatch), "the leg has a window"
    return ItemRows.of_leg(rows)


def _leg_batch(legs: Legs, reads: frozenset[str]) -> pa.RecordBatch:
    rows = next(legs)
    if isinstance(rows, LegColumns):
        return rows.batch(reads)
    assert isinstance(rows, pa.RecordBatch), "the leg has a window"
    return rows


def _versions(legs: Legs) -> Versions:
    versions = next(legs)
    assert not isinstance(versions, pa.RecordBatch | LegColumns), "the leg's rows are looked up"
    return versions


def _as_of(item: Item) -> AsOf:
    assert isinstance(item, Leg) and item.as_of is not None
    return item.as_of
