"""The walk over a query's tree: from the rows of its legs to the rows of its source.

Rows of a From have the columns the query reads, named by `item_column`; `ts`, the greatest of their
parts; and `row_id`, a number that orders combinations of one ts as the row ids of their legs do, in
the order of FROM. So code that orders rows by (ts, row_id) orders combinations too.
"""

from __future__ import annotations

import operator
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
from querystem.expressions import TRUE, Expression, at_instant, columns_of
from querystem.identity import parts_of, row_ids
from querystem.join import JoinRoom, JoinStep, join, semi_join, without_items
from querystem.kernel import matches
from querystem.legs import AsOf, Leg
from querystem.query import Item, Query
from querystem.refresh import PartKind
from querystem.sources import From, LeftJoin, SetOperation, SubQuery, part_name, subquery_column
from results.masking import masked

# The rows of a leg; or all versions of them, if they are looked up.
LegInput: TypeAlias = pa.RecordBatch | LegColumns | Versions
Legs: TypeAlias = Iterator[LegInput]
JoiningPart: TypeAlias = From | LeftJoin | SubQuery
# Returns the combinations of a query's FROM with the columns of these names, if they are computed
# elsewhere.
StoredCombinations: TypeAlias = Callable[[frozenset[str]], ItemRows]


@dataclass(frozen=True, slots=True)
class JoinRun:
    """How the inputs of one part of a query's tree were joined: the first of them, then the step
    for each other input."""

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
        """Return whether it is the answer of an equal part from the same inputs, at the same
        NOW."""
        same = now == self.now and len(inputs) == len(self.inputs)
        # Inputs are compared by identity: equal rows in two batches would take long to recognise.
        same = same and all(map(operator.is_, inputs, self.inputs))
        return same and part == self.part


@dataclass(frozen=True)
class Combining:
    """The rows of sources at one NOW. Inner queries with refresh points are at `nows`, in the order
    of the text.

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
        stored: StoredCombinations | None = None,
    ) -> pa.RecordBatch:
        """Return the rows of a query's source. `legs` are the rows of each leg, by ascending id,
        with the columns that `leg_reads` returns; without the legs of FROM if its combinations are
        `stored`.

        With `parts` combinations have the numbers that name them, as columns `part_name(n)`. Raise
        TooManyPairs, TooManyBytes.
        """
        inputs = list(legs)
        # An answer is reused only for the very same input objects. Legs that occur once can have no
        # second use, so parts that read them are not kept.
        self._repeated[:] = [leg for n, leg in enumerate(inputs) if _is_among(leg, inputs[:n])]
        return self._source(query, iter(inputs), parts, stored)

    def _source(
        self, query: Query, legs: Legs, parts: bool, stored: StoredCombinations | None = None
    ) -> pa.RecordBatch:
        if isinstance(query.source, Leg):
            return _leg_batch(legs, query.reads | {"ts", "row_id"})
        rows = self._from(query.source, query.reads, legs, stored)
        columns = {name: rows.columns[name] for name in query.reads - {"ts", "row_id"}}
        # A batch without columns has no length, so a query that reads nothing gets `ts` and
        # `row_id`.
        if "row_id" in query.reads or parts or not columns:
            columns["ts"] = pa.array(rows.ts).view(TIMESTAMP.arrow)
            columns["row_id"] = pa.array(place_of(rows.parts, len(rows)))
        if parts:
            columns |= {part_name(n): pa.array(part) for n, part in enumerate(rows.parts)}
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    # ---- FROM

    def _from(
        self,
        source: From,
        reads: Collection[str],
        legs: Legs,
        stored: StoredCombinations | None = None,
    ) -> ItemRows:
        names = from_reads(source, reads)
        rows = stored(names) if stored else self.combinations(source, names, legs)
        # Each subquery's value becomes a column of the combinations, which WHERE then reads like
        # any other column.
        for number, subquery in enumerate(source.subqueries):
            column = {subquery_column(number): self._value(subquery, rows, legs)}
            rows = ItemRows({**rows.columns, **column}, rows.ts, rows.parts)
        return _matching(rows, self._present(source.where), reads)

    def _present(self, expression: Expression) -> Expression:
        """Return an expression of the query with its NOW put in."""
        return at_instant(expression, None if self.now == SINCE_EVER else self.now)

    def combinations(self, source: From, names: frozenset[str], legs: Legs) -> ItemRows:
        """Return the combinations of a From, before queries inside expressions are answered.

        Items are joined; then rows of keyed streams are looked up, for what has been joined.
        """
        if not source.items:
            return _matching(ItemRows.placeholder(), source.on, names)
        # reads[n] are the columns of item n by its own names: those that the join compares and
        # those that the clauses above take.
        read = names.union(columns_of(source.on))
        reads = [side_reads(n, reads=read) for n in range(len(source.items))]
        items, versions = list[AnyRows](), dict[int, Versions]()
        for number, item in enumerate(source.items):
            if isinstance(item, Leg) and item.as_of is not None:
                versions[number] = _versions(legs)
                # The placeholder is one row that no factor reads. It joins with every combination
                # and changes none.
                items.append(ItemRows.placeholder())
            else:
                items.append(self._item(item, reads[number], legs))
        # Factors that read a looked-up item wait until its rows are there; `on` is the rest.
        on, later = without_items(source.on, versions)
        compared = frozenset(columns_of(on))
        inputs = [rows.batch(n, side_reads(n, reads=compared)) for n, rows in enumerate(items)]
        places = self.places(source, inputs, on)
        for number, item_versions in versions.items():
            as_of = _as_of(source.items[number])
            # The combinations are assembled again for each item: the lookup before has dropped
            # those without a row.
            joined = side_by_side(items, places, lookup_reads(source.items))
            looked_up = look_up(as_of, item_versions, joined.whole(), reads[number])
            present = np.flatnonzero(looked_up.places >= 0)
            items[number] = looked_up.rows
            # `places` of all items are narrowed alike, so that index k stays the same combination
            # in each.
            places = [item_places[present] for item_places in places]
            places[number] = looked_up.places[present]
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
        """Return combinations of rows; raise TooManyBytes if there is no room for them."""
        # The bytes are reserved before the rows are copied, so that the join fails before memory
        # runs out.
        row_bytes = sum(item.row_bytes(number, names) for number, item in enumerate(items))
        self.room.take(round(row_bytes * len(places[0])))
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
        # The left side also needs the columns that rows of a keyed stream are looked up by.
        by = lookup_reads((item.right,))
        sides = side_reads(0, item.on, reads=reads | by), side_reads(1, item.on, reads=reads)
        left_rows = self._from(item.left, sides[0], legs)
        if isinstance(item.right, Leg) and item.right.as_of is not None:
            looked_up = look_up(
                item.right.as_of, _versions(legs), left_rows.batch(0, sides[0]), sides[1]
            )
            right_rows: AnyRows = looked_up.rows
            pairs = looked_up.pairs
            # ON is evaluated only for pairs that exist. A left row whose partner fails ON stays,
            # alone.
            both = side_by_side([left_rows, right_rows], pairs, {*columns_of(item.on)})
            true = np.flatnonzero(matches(self._present(item.on), both.whole()))
            pairs_found: Sequence[Int64s] = [rows[true] for rows in pairs]
        else:
            right_rows = self._item(item.right, sides[1], legs)
            inputs = [left_rows.batch(0, sides[0]), right_rows.batch(1, sides[1])]
            pairs_found = self.places(item, inputs, self._present(item.on))
        # A left row without a pair is kept once: its place on the right is −1, which gives NULLs.
        partnered = np.zeros(len(left_rows), np.bool_)
        partnered[pairs_found[0]] = True
        alone = np.flatnonzero(~partnered)
        no_rows = np.full(len(alone), -1)
        places = np.concatenate([pairs_found[0], alone]), np.concatenate([pairs_found[1], no_rows])
        return self.beside([left_rows, right_rows], places, reads)

    # ---- queries inside queries

    def _query(self, query: Query, legs: Legs) -> ItemRows:
        """Return the rows of a query that is an item, or stands in an expression."""
        return self._once(query, [next(legs) for _ in query.legs])

    def _once(self, part: Query | SetOperation, inputs: Sequence[LegInput]) -> ItemRows:
        for answered in self._answered:
            if answered.is_of(part, inputs, self.now):
                # The points of the queries inside are used up, though nothing is computed.
                for _ in range(_inner_points(part)):
                    next(self.nows, None)
                return answered.answer
        legs = iter(inputs)
        if isinstance(part, Query):
            answer = self._rows(part, legs)
        else:
            queries = [self._query(query, legs) for query in part.queries]
            answer = united(part, queries, self.mask)
        # Only if every leg occurs again can this part be answered again from the same inputs.
        if all(_is_among(leg, self._repeated) for leg in inputs):
            self._answered.append(_Answered(part, inputs, self.now, answer))
        return answer

    def _inner_now(self, query: Query) -> int:
        """Return NOW inside a query: its own refresh point, if it has points."""
        return self.now if query.refresh is None else next(self.nows, self.now)

    def _rows(self, query: Query, legs: Legs) -> ItemRows:
        # The copy has another NOW; it shares `runs`, `room`, `nows` and the kept answers with this
        # one.
        inside = replace(self, now=self._inner_now(query))
        rows = inside._source(query, legs, parts=True)
        query = query.at_instant(inside.now)
        if not query.timed:
            answer_rows = kept_rows(query, rows_or_groups(query, [rows]))
            outputs = project(query, answer_rows)
            ids = row_ids(query, answer_rows, outputs)
            if query.distinct or query.grouping is not None:
                ids = masked(ids, self.mask)
            return ItemRows(_columns(outputs), np.full(len(ids), SINCE_EVER), (ids,))
        ts = rows.column("ts")
        columns = {"ts": ts, **_columns(project(query, rows))}
        timed_rows = ItemRows(columns, ts.view(pa.int64()).to_numpy(), parts_of(query, rows))
        return timed_rows if query.over is None else timed_rows.within(query.over, self.now)

    def _value(self, subquery: SubQuery, outer: ItemRows, legs: Legs) -> pa.Array:
        """Return the value of a query inside an expression, for each combination."""
        inner = self._query(subquery.query, legs)
        present = subquery.mapped(self._present)
        return value_of(present, outer, inner, _SubQueryJoins(self, subquery))


@dataclass(frozen=True, slots=True)
class _SubQueryJoins:
    """The joins of a query inside an expression with the combinations of the query around it."""

    combining: Combining
    subquery: SubQuery

    def pairs(self, sides: Sequence[pa.RecordBatch], on: Expression) -> Sequence[Int64s]:
        return self.combining.places(self.subquery, sides, on)

    def partnered(self, sides: Sequence[pa.RecordBatch], on: Expression) -> Mask:
        combining = self.combining
        semi_joined = semi_join(sides, on, combining.most_pairs, combining.room)
        combining.runs.append(JoinRun(self.subquery, 0, semi_joined.steps))
        return semi_joined.mask


def _inner_points(part: Query | SetOperation) -> int:
    """Return how many queries of a part, itself among them, have refresh points."""
    queries = (part,) if isinstance(part, Query) else part.queries
    parts = [refreshed for query in queries for refreshed in query.refreshed_parts]
    return sum(refreshed.kind is not PartKind.LEG for refreshed in parts)


def _is_among(leg: LegInput, legs: Sequence[LegInput]) -> bool:
    return any(leg is candidate for candidate in legs)


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
