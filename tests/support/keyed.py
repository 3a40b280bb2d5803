"""The vectorised evaluation of a query over a keyed stream, without a server."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from datastem.equality import key_digests
from datastem.history import History
from datastem.instants import SINCE_EVER
from datastem.keyed_rows import KeyedRows
from querystem.evaluate import rows_in_window
from results.window import TimeWindow, Window
from tests.oracle.keyed import Keyed


def current_rows_in_window(
    window: Window, parts: Sequence[pa.RecordBatch], now: int, retain: int | None, keyed: Keyed
) -> list[pa.RecordBatch]:
    """Return the current rows that the window holds; the parts have one column more than others,
    `_op`."""
    history = History()
    for part in parts:
        ts, ids = part.column("ts").view(pa.int64()).to_numpy(), part.column("row_id").to_numpy()
        keys = key_digests([part.column(name) for name in keyed.key])
        ops = pa.compute.equal(part.column("_op"), "delete").cast(pa.int8()).to_numpy()
        history = history.insert(KeyedRows(keys, ts, ids, ops), history.high + part.num_rows)
    high = history.high if keyed.high is None else keyed.high
    instant = window.present(now) if isinstance(window, TimeWindow) else now
    reached = now if keyed.reached is None else max(now, keyed.reached)
    cut = SINCE_EVER if retain is None else reached - retain
    row_ids = history.current(high, instant, cut).ids
    current = [part.filter(pa.array(np.isin(part.column("row_id"), row_ids))) for part in parts]
    plain = [part.drop_columns(["_op"]) for part in current]
    return rows_in_window(window, plain, now, None, high)
