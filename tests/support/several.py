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
from querystem.query import Leg, Query
from tests.oracle.clocks import Clocks, Known
from tests.oracle.comparing import Values
from tests.oracle.keyed import Keyed
from tests.oracle.strategies import to_batch
from tests.oracle.trees import World
from tests.support.keyed import current_rows_in_window

MOST_PAIRS = 20_000_000


def pure_answer(query: Query, world: World) -> list[Values]:
    """The rows of each leg, combined and answered by the parts that every server and client use.

    Equal legs have one input, as in a server.
    """
    times = world.clocks(query)
    made = dict[tuple[Leg, frozenset[str]], LegInput]()
    for leg, reads in zip(query.legs, leg_reads(query), strict=True):
        if (leg, reads) not in made:
            made[leg, reads] = _leg_input(leg, reads, world, times)
    legs = [made[key] for key in zip(query.legs, leg_reads(query), strict=True)]
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
    say what was known."""

    leg: Leg
    known: Known
    other: Known | None

    def find(self, keys: Sequence[pa.Array], instants: Int64s, rows: Int64s | None) -> Int64s:
        asked = zip(*(key.to_pylist() for key in keys), strict=True)
        before = [None] * len(instants) if rows is None else rows.tolist()
        found = [
            self._find(list(key), instant, row)
            for key, instant, row in zip(asked, instants.tolist(), before, strict=True)
        ]
        return np.array(found, np.int64)

    def _find(self, key: list[Any], instant: int, row: int | None) -> int:
        rows = self.known.seen
        if row is not None and self.other is not None:
            position = self.other.rows[row]["position"]
            rows = [one for one in rows if one["position"] <= position]
        names = self.known.schema.key
        current = Keyed(names).current(rows, instant)
        return next((r["row_id"] for r in current if [r[n] for n in names] == key), -1)

    def rows(self, ids: Int64s, reads: frozenset[str]) -> pa.RecordBatch:
        chosen = [row for row in self.known.rows if row["row_id"] in set(ids.tolist())]
        batch = to_batch(self.known.schema, sorted(chosen, key=lambda row: row["row_id"]))
        found = pa.concat_batches(matching_rows(self.leg.where, [batch]))
        return found.select([name for name in found.schema.names if name in reads])


def _leg_rows(leg: Leg, known: Known, times: Clocks, reads: Collection[str]) -> pa.RecordBatch:
    batch = to_batch(known.schema, known.rows)
    found = pa.concat_batches(matching_rows(leg.where, _chosen(leg, known, times, batch)))
    order = pa.compute.sort_indices(found.column("row_id"))
    return found.take(order).select([name for name in found.schema.names if name in reads])


def _chosen(leg: Leg, known: Known, times: Clocks, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    now, retain, high = times.of(known), known.schema.retain, known.high
    if now is None or times.now is None:
        return [batch.slice(0, 0)]
    reached = now if known.reached is None else max(now, known.reached)
    if known.schema.key:
        ops = pa.array([row["_op"] for row in known.rows], pa.string())
        keyed = Keyed(known.schema.key, high, reached)
        parts = [batch.append_column("_op", ops)]
        return current_rows_in_window(leg.window, parts, now, retain, keyed)
    batch = batch if high is None else batch.slice(0, high)
    oldest = None if retain is None else reached - retain + 1
    return rows_in_window(leg.window, [batch], now, oldest, batch.num_rows)
