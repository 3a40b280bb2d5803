"""Reads the predicates of a stream and probes them, as the first task of a new worker does; prints
the processor seconds of both."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pyarrow as pa

from benchmarks.cluster.store import DOMAIN, FIRST_ROWS, POINTS
from datastem.schema import OP
from psoup.engine.matching.predicates import predicates_of
from psoup.engine.steps import pieces


def main() -> None:
    root, version, stream = sys.argv[1:]
    rows = _rows()
    started = time.process_time()
    predicates = predicates_of(root)
    predicates.advance(int(version))
    index = predicates.stem(int(stream)).index
    read = time.process_time() - started
    matches = sum(table.num_rows for table in pieces.probe(index, int(stream), rows))
    probed = time.process_time() - started - read
    assert matches
    print(json.dumps([read, probed]))


def _rows() -> pa.RecordBatch:
    rng, ids = np.random.default_rng(1), np.arange(FIRST_ROWS)
    columns = {column.name: rng.integers(0, DOMAIN, FIRST_ROWS) for column in POINTS.columns}
    ts = pa.array(ids).view(pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_pydict(
        {"_row_id": ids, "_ts": ts, OP: np.zeros(FIRST_ROWS, np.int8), **columns}
    )


if __name__ == "__main__":
    main()
