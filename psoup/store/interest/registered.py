"""The reaches of registrations: how far back each of their predicates is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.instants import FOR_EVER, SINCE_EVER
from psoup.store.interest.windows import EVERYTHING, widened, widened_since
from psoup.store.state.state import State
from querystem.clocks import is_apart, is_awaited, is_by_clock
from querystem.query import Query
from querystem.query_json import read_shape
from querystem.reach import leg_begins
from results.window import Bound

_COLUMNS = (
    "query",
    "stream_id",
    "predicate_id",
    "more_legs",
    "trigger_id",
    "more_triggers",
    "composite_id",
    "composite_predicate_id",
)
_MAX_CACHED_FORMS = 4096
# Values for predicates without a window that moves with NOW, and without a fixed one.
NO_BEHIND, NO_SINCE = SINCE_EVER, FOR_EVER
# The number of a stream's own clock among the clocks.
OWN_CLOCK = 0


@dataclass(frozen=True, slots=True)
class Reaches:
    """The windows of predicates, which may repeat: how far `behind` the NOW of its `clocks` a
    moving window reaches, and the instant `since` which a fixed one does."""

    predicates: Int64s
    behind: Int64s
    since: Int64s
    clocks: Int64s

    @classmethod
    def everything(cls, predicates: Int64s) -> Reaches:
        """Return the reaches of predicates that are read over all rows."""
        size = len(predicates)
        whole, none = np.full(size, EVERYTHING), np.full(size, NO_SINCE)
        return cls(predicates, whole, none, np.zeros(size, np.int64))

    @classmethod
    def of_all(cls, several: Iterable[Reaches]) -> Reaches:
        parts = [cls.everything(np.empty(0, np.int64)), *several]
        names = ("predicates", "behind", "since", "clocks")
        columns = [np.concatenate([getattr(part, name) for part in parts]) for name in names]
        return cls(*columns)

    def take(self, places: Int64s) -> Reaches:
        columns = (self.predicates, self.behind, self.since, self.clocks)
        return Reaches(*(column[places] for column in columns))


class Clocks:
    """The clocks of windows: a stream's own, or the slowest of several streams."""

    def __init__(self) -> None:
        self._streams: list[frozenset[int]] = [frozenset()]
        self._numbers: dict[frozenset[int], int] = {}

    def number(self, streams: frozenset[int]) -> int:
        if streams not in self._numbers:
            self._numbers[streams] = len(self._streams)
            self._streams.append(streams)
        return self._numbers[streams]

    def streams(self, number: int, stream_id: int) -> frozenset[int]:
        """Return the streams of a clock, for a window over the stream `stream_id`."""
        return self._streams[number] if number else frozenset({stream_id})

    def slowest(self, numbers: Iterable[int], stream_id: int) -> int:
        """Return the clock that is never ahead of any of these."""
        several = set(numbers)
        if len(several) == 1:
            return several.pop()
        return self.number(
            frozenset().union(*(self.streams(number, stream_id) for number in several))
        )


class RegisteredReaches:
    """A reader of the reaches of registrations. It caches the query forms that it has parsed."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._shapes: dict[str, Query | None] = {}

    def of(self, state: State, rows: Int64s) -> Reaches:
        """Return the reaches of the predicates of some registrations, given their rows."""
        registrations, _ = state.columns
        table = registrations.take(rows, _COLUMNS)
        forms, codes = _forms(table)
        more = _lists(table, "more_legs")
        counts = more.value_lengths().fill_null(0).to_numpy()
        parts = list(_everything(table))
        # Registrations with the same number of legs together, so that their legs form a matrix.
        for count in np.unique(counts).tolist():
            places = np.flatnonzero(counts == count)
            legs = more.take(pa.array(places)).flatten()
            streams = _matrix(table, "stream_id", legs, places, count)
            predicates = _matrix(table, "predicate_id", legs, places, count)
            composed = table.column("composite_id").to_numpy()[places] != 0
            shapes = np.column_stack([codes[places], composed, streams])
            parts.append(self._by_shape(state, forms, shapes, predicates))
        return Reaches.of_all(parts)

    def _by_shape(
        self, state: State, forms: Sequence[str], shapes: Int64s, predicates: Int64s
    ) -> Reaches:
        """Return the reaches of registrations with the same number of legs.

        A row of `shapes` has the number of a form, 1 if a composite holds the join, and the legs'
        streams. Few rows are distinct.
        """
        different, indexes = _distinct(shapes)
        read = [
            self._legs(state, forms[code], bool(composed), streams)
            for code, composed, *streams in different.tolist()
        ]
        # From (shapes, legs, 3) to (registrations, legs, 3), then one line for each leg, in the
        # order of `predicates.ravel()`.
        values = np.array(read, np.int64).reshape(len(different), -1, 3)[indexes].reshape(-1, 3)
        return Reaches(predicates.ravel(), values[:, 0], values[:, 1], values[:, 2])

    def _legs(
        self, state: State, form: str, composed: bool, streams: Sequence[int]
    ) -> list[tuple[int, int, int]]:
        """Return (behind, since, clock) of each leg of a query."""
        schemas = [state.streams[stream].schema for stream in streams]
        query = None if composed else self._shape(form)
        if query is None or len(query.legs) != len(streams):
            return [(EVERYTHING, NO_SINCE, OWN_CLOCK)] * len(streams)
        clock = self._clock(query, state, streams)
        by_clock = is_by_clock(query.moving, schemas)
        return [
            (EVERYTHING, NO_SINCE, OWN_CLOCK)
            if schema.key
            else (*_reach(begin), OWN_CLOCK if is_apart(schema, by_clock) or by_clock else clock)
            for begin, schema in zip(leg_begins(query), schemas, strict=True)
        ]

    def _clock(self, query: Query, state: State, streams: Sequence[int]) -> int:
        """Return the clock of a query over event time: the streams that it waits for."""
        slow_streams = {
            stream
            for stream, moving in zip(streams, query.moving, strict=True)
            if is_awaited(state.streams[stream].schema, moving)
        }
        return self._clocks.number(frozenset(slow_streams)) if len(slow_streams) > 1 else OWN_CLOCK

    def _shape(self, form: str) -> Query | None:
        """Return the query of a form; None if it can't be parsed, which an invoke reports."""
        if len(self._shapes) >= _MAX_CACHED_FORMS:
            self._shapes.clear()
        if form not in self._shapes:
            try:
                self._shapes[form] = read_shape(form)
            except (KeyError, TypeError, ValueError):
                self._shapes[form] = None
        return self._shapes[form]


def _reach(begin: Bound | None) -> tuple[int, int]:
    if begin is None:
        return EVERYTHING, NO_SINCE
    if begin.relative:
        return widened(-begin.offset), NO_SINCE
    return NO_BEHIND, widened_since(begin.offset)


def _everything(table: pa.Table) -> Iterator[Reaches]:
    """Yield the reaches of predicates of triggers and composites, for which every row counts."""
    triggers = table.column("trigger_id").to_numpy()
    composites = table.column("composite_predicate_id").to_numpy()
    more = _lists(table, "more_triggers").flatten().field("predicate_id").to_numpy()
    for predicates in (triggers[triggers > 0], composites[composites > 0], more):
        yield Reaches.everything(predicates)


def _forms(table: pa.Table) -> tuple[list[str], Int64s]:
    encoded = table.column("query").combine_chunks()
    encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    codes: Int64s = encoded.indices.to_numpy().astype(np.int64)
    return encoded.dictionary.to_pylist(), codes


def _lists(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _matrix(table: pa.Table, name: str, legs: pa.Array, places: Int64s, more: int) -> Int64s:
    """Return a matrix of a column's values: a row for each registration, a column for each of its
    legs."""
    first = table.column(name).to_numpy()[places]
    later_legs = legs.field(name).to_numpy(zero_copy_only=False).reshape(len(places), more)
    return np.column_stack([first, later_legs]).astype(np.int64)


def _distinct(shapes: Int64s) -> tuple[Int64s, Int64s]:
    """Return the different rows of a matrix, and for each row the number of the one it equals."""
    # A sort per column takes a sixth of the time of np.unique over whole rows.
    numbers = np.zeros(len(shapes), np.int64)
    for column in shapes.T:
        values, codes = np.unique(column, return_inverse=True)
        # Neither factor exceeds the number of rows, so the product fits into 64 bits.
        numbers = np.unique(numbers * len(values) + codes, return_inverse=True)[1]
    first = np.unique(numbers, return_index=True)[1]
    return shapes[first], numbers
