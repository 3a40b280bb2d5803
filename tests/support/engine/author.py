"""Writes a store's log the way a server does, without one."""

from __future__ import annotations

import itertools
import json
import secrets
import time
from dataclasses import replace

import pyarrow as pa

from datastem.codec import encode
from datastem.equality import batch_digest
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, BOOLEAN, DOUBLE, TIMESTAMP
from psoup.store import (
    Conflict,
    Data,
    Entry,
    Event,
    LegPredicate,
    Position,
    Register,
    State,
    Store,
    StreamAltered,
    StreamCreated,
    StreamEnded,
    Trigger,
    Unregister,
)
from psoup.write.columns import column_of, renamed, without
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op
from querystem.language import DropColumn, RenameColumn
from querystem.legs import Leg
from querystem.query import Query
from querystem.query_json import query_to_json
from results.window import UNBOUNDED, Window

READINGS = StreamSchema("readings", (Column("sensor", BIGINT), Column("value", DOUBLE)))
# The second stream of joins.
OTHER = StreamSchema("other", READINGS.columns)


def timed(retain: int | None = None) -> StreamSchema:
    """Return a stream with event time."""
    columns = (Column("sensor", BIGINT), Column("at", TIMESTAMP))
    return StreamSchema("timed", columns, ordered_by="at", retain=retain)


def above(limit: float) -> Expression:
    """value > limit"""
    return Call(Op.GT, (ColumnRef("value", DOUBLE), Literal(limit, DOUBLE)), BOOLEAN)


def sensor_is(number: int) -> Expression:
    return Call(Op.EQ, (ColumnRef("sensor", BIGINT), Literal(number, BIGINT)), BOOLEAN)


def fee_is(value: float) -> Expression:
    return Call(Op.EQ, (ColumnRef("fee", DOUBLE), Literal(value, DOUBLE)), BOOLEAN)


def readings(sensors: list[int], values: list[float]) -> pa.RecordBatch:
    arrays = [pa.array(sensors, pa.int64()), pa.array(values, pa.float64())]
    return pa.RecordBatch.from_arrays(arrays, schema=READINGS.arrow)


class Author:
    """Every call is one commit; its ids are those a server would have given."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.state = State()
        self._version = 0
        self._ids = itertools.count(1)
        self._clock = time.time_ns() // 1000

    def new_id(self) -> int:
        """Return an id for a stream, composite or policy: 1, 2, …, so that tests can name them."""
        return next(self._ids)

    def create(self, schema: StreamSchema) -> int:
        stream_id = self.new_id()
        self.append(StreamCreated(stream_id, schema))
        return stream_id

    def drop(self, stream_id: int) -> Position:
        return self.append(StreamEnded(stream_id))

    def register(
        self,
        stream_id: int,
        where: Expression,
        *triggers: Trigger,
        window: Window = UNBOUNDED,
    ) -> tuple[bytes, int]:
        """Return the handle and the predicate's id."""
        stream = self.state.streams[stream_id].schema.name
        query = Query(Leg(stream, where, window), ())
        existing = self.state.predicates.find(stream_id, query.leg.predicate_key)
        predicate = self.state.next_predicate_id if existing is None else existing
        handle = secrets.token_bytes(16)
        form = json.dumps(query_to_json(query))
        key = query.leg.predicate_key
        leg = LegPredicate(stream_id, predicate, key)
        self.append(Register(handle, "", (leg,), "", "{}", form, 0, triggers))
        return handle, predicate

    def unregister(self, handle: bytes) -> Position:
        return self.append(Unregister(handle))

    def publish(self, stream_id: int, rows: pa.RecordBatch, publisher: str = "") -> Position:
        schema = self.state.streams[stream_id].schema
        ts = (
            rows.column(schema.ordered_by).cast(pa.int64()).to_pylist()
            if schema.ordered_by
            else [self._clock + 1]
        )
        digest = batch_digest(schema.name, rows)
        return self.publish_bytes(
            stream_id, encode(rows), rows.num_rows, min(ts), max(ts), publisher, digest
        )

    def publish_bytes(
        self,
        stream_id: int,
        payload: bytes,
        rows: int,
        low: int,
        high: int,
        publisher: str = "",
        digest: bytes = b"d",
    ) -> Position:
        last = self.state.publishers.get(("main", "main", publisher))
        sequence = (last.sequence + 1 if last else 1) if publisher else 0
        stream = self.state.streams[stream_id]
        first, before = stream.high, stream.reached
        return self.append(
            Data(
                stream_id,
                publisher,
                sequence,
                rows,
                first,
                low,
                high,
                before,
                high if before is None else max(before, high),
                digest,
                digest,
                payload,
            )
        )

    def append(self, event: Event) -> Position:
        """Try again if the engine's trimming was faster."""
        self._clock += 1
        while True:
            self._version = self.store.log.latest_version(self._version)
            position = Position(self._version + 1, 0)
            entry = Entry(position, self._clock, "main", "main", event)
            try:
                self.store.log.append(position.version, [entry])
            except Conflict:
                continue
            self.state.apply(entry)
            return position


def alter_columns(author: Author, stream: int, change: RenameColumn | DropColumn) -> StreamSchema:
    """Append what ALTER STREAM does to a column that nothing reads, or that is renamed."""
    state = author.state.streams[stream]
    position = Position(author.state.position.version + 1, 0).packed
    schema, now = state.schema, author.state.clock
    if isinstance(change, RenameColumn):
        schema = renamed(schema, change, position, now, 1000)
    else:
        schema = without(schema, column_of(schema, change.column), change, position, now)
    author.append(StreamAltered(stream, state.version + 1, schema))
    return schema


def add_column(author: Author, stream: int, column: Column) -> StreamSchema:
    """Append what ALTER STREAM does."""
    state = author.state.streams[stream]
    since = Position(author.state.position.version + 1, 0).packed
    schema = replace(state.schema, columns=(*state.schema.columns, replace(column, since=since)))
    author.append(StreamAltered(stream, state.version + 1, schema))
    return schema
