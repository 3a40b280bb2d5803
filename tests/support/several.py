"""The vectorised evaluation of a query over several streams, without a server."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from querystem.combine import Combining, leg_reads
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
    """The rows of each leg, combined and answered by the parts that every server and client use."""
    times = world.clocks(query)
    legs = [
        _leg_rows(leg, world.streams[leg.stream], times, reads)
        for leg, reads in zip(query.legs, leg_reads(query), strict=True)
    ]
    now = 0 if times.now is None else times.now
    rows = Combining(now, MOST_PAIRS, []).source_rows(query, legs)
    return [tuple(row.values()) for row in answer_of(query, [rows]).to_pylist()]


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
