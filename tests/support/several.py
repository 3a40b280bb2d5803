"""The vectorised evaluation of a query over several streams, without a server."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from querystem.combine import Combining, LegInput, leg_reads
from querystem.evaluate import answer_of, matching_rows, rows_in_window
from querystem.legs import Leg
from querystem.query import Query
from tests.oracle.clocks import Clocks, Known
from tests.oracle.comparing import Values
from tests.oracle.keyed import Keyed
from tests.oracle.strategies import to_batch
from tests.oracle.trees import World
from tests.support.keyed import current_rows_in_window

MOST_PAIRS = 20_000_000


def pure_answer(query: Query, world: World) -> list[Values]:
    """Return the rows of each leg, combined and answered by the parts that every server and client
    use.

    Equal legs have one input, as in a server.
    """
    times = world.clocks(query)
    inputs = dict[tuple[Leg, frozenset[str]], LegInput]()
    for leg, reads in zip(query.legs, leg_reads(query), strict=True):
        if (leg, reads) not in inputs:
            inputs[leg, reads] = _leg_input(leg, reads, world, times)
    legs = [inputs[key] for key in zip(query.legs, leg_reads(query), strict=True)]
    now = 0 if times.now is None else times.now
    rows = Combining(now, MOST_PAIRS, []).source_rows(query, legs)
    return [tuple(row.values()) for row in answer_of(query, [rows]).to_pylist()]


def _leg_input(leg: Leg, reads: frozenset[str], world: World, times: Clocks) -> LegInput:
    if leg.as_of is None:
        return _leg_rows(leg, world.streams[leg.stream], times, reads)
    return KnownVersions(leg, world.streams[leg.stream], world.streams.get(leg.as_of.stream))


@dataclass(frozen=True)
class KnownVersions:
    """The rows that a keyed stream had, looked up one by one; `other` has the rows whose positions
    bound the known ones."""

    leg: Leg
    known: Known
    other: Known | None

    def find(self, keys: Sequence[pa.Array], instants: Int64s, rows: Int64s | None) -> Int64s:
        key_values = zip(*(key.to_pylist() for key in keys), strict=True)
        before = [None] * len(instants) if rows is None else rows.tolist()
        row_ids = [
            self._find(list(key), instant, row)
            for key, instant, row in zip(key_values, instants.tolist(), before, strict=True)
        ]
        return np.array(row_ids, np.int64)

    def _find(self, key: list[Any], instant: int, row: int | None) -> int:
        rows = self.known.seen
        if row is not None and self.other is not None:
            position = self.other.rows[row]["position"]
            rows = [version for version in rows if version["position"] <= position]
        names = self.known.schema.key
        current = Keyed(names).current(rows, instant)
        return next((r["row_id"] for r in current if [r[n] for n in names] == key), -1)

    def rows(self, ids: Int64s, reads: frozenset[str]) -> pa.RecordBatch:
        chosen = [row for row in self.known.rows if row["row_id"] in set(ids.tolist())]
        batch = to_batch(self.known.schema, sorted(chosen, key=lambda row: row["row_id"]))
        matching = pa.concat_batches(matching_rows(self.leg.where, [batch]))
        return matching.select([name for name in matching.schema.names if name in reads])


def _leg_rows(leg: Leg, stream: Known, times: Clocks, reads: Collection[str]) -> pa.RecordBatch:
    batch = to_batch(stream.schema, stream.rows)
    matching = pa.concat_batches(matching_rows(leg.where, _chosen(leg, stream, times, batch)))
    order = pa.compute.sort_indices(matching.column("row_id"))
    return matching.take(order).select([name for name in matching.schema.names if name in reads])


def _chosen(leg: Leg, stream: Known, times: Clocks, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    now, retain, high = times.of(stream), stream.schema.retain, stream.high
    if now is None or times.now is None:
        return [batch.slice(0, 0)]
    reached = now if stream.reached is None else max(now, stream.reached)
    if stream.schema.key:
        ops = pa.array([row["_op"] for row in stream.rows], pa.string())
        keyed = Keyed(stream.schema.key, high, reached)
        parts = [batch.append_column("_op", ops)]
        return current_rows_in_window(leg.window, parts, now, retain, keyed)
    batch = batch if high is None else batch.slice(0, high)
    oldest = None if retain is None else reached - retain + 1
    return rows_in_window(leg.window, [batch], now, oldest, batch.num_rows)
