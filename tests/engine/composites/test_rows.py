"""Rows by id, runs by hash and admitted rows, as a worker reads them, with and without a cache."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from datastem.caches import LruCache
from datastem.codec import INSTANT
from datastem.instants import FOR_EVER
from psoup.engine.composites.admitting import matching_ids, piece_files
from psoup.engine.composites.lookup.probes import HashProbes
from psoup.engine.composites.rows import JoinState, RowEnds, StemRows
from psoup.engine.composites.runs import bucket_edges, sorted_rows
from psoup.engine.steps import pieces
from psoup.engine.steps.worker import CLOSURE_BOUNDS, MATCH_BOUNDS, write_segments
from psoup.store.delta.files import DataFile, write_data_file
from psoup.store.layout import CLOSURES, JOINS, MATCHES
from results.bitmaps import encode
from tests.support.lengths import short_first

BUDGETS = [1, 1 << 30]


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("seed", short_first(range(5)))
def test_rows_by_id(tmp_path: Path, seed: int, budget: int) -> None:
    rng = random.Random(seed)
    stored = sorted(rng.sample(range(3000), 1000))
    values = {row: rng.choice([None, row * 2]) for row in stored}
    files, begin = [], 0
    while begin < len(stored):
        file_ids = stored[begin : begin + rng.randint(1, 400)]
        begin += len(file_ids)
        table = pa.table(
            {"_row_id": file_ids, "v": pa.array([values[row] for row in file_ids], pa.int64())}
        )
        files.append(
            write_data_file(
                tmp_path, table, bounds=["_row_id"], sync=False, row_group_rows=rng.randint(1, 99)
            )
        )
    rng.shuffle(files)
    rows = StemRows(tmp_path, files, LruCache(budget))
    for _ in range(10):
        requested = sorted(rng.sample(range(3000), rng.choice([0, 1, 30, 900])))
        ids, fetched = rows.fetch(np.array(requested, np.int64), ["v"])
        expected = [row for row in requested if row in values]
        assert ids.tolist() == expected
        assert fetched.column("v").to_pylist() == [values[row] for row in expected]


@pytest.mark.parametrize("budget", BUDGETS)
def test_runs_by_hash(tmp_path: Path, budget: int) -> None:
    rng = np.random.default_rng(1)
    hashes = np.sort(rng.integers(0, 1 << 63, 5000))
    sides = rng.integers(0, 2, len(hashes))
    columns = [
        pa.array(hashes >> 57),
        pa.array(sides.astype(np.int32)),
        pa.array(hashes),
        pa.array(np.arange(len(hashes))),
        pa.array(np.arange(len(hashes))).view(INSTANT),
        pa.array(np.arange(len(hashes))),
    ]
    table = sorted_rows(pa.Table.from_arrays(columns, schema=JOINS))
    file = write_data_file(tmp_path, table, sync=False, cuts=bucket_edges(table, 100))
    state = JoinState(tmp_path, [file], LruCache(budget))
    probes = hashes[100:101]
    runs = list(state.runs(probes >> 57))
    assert len(runs) == 1, "only the bucket that may have it is read"
    lookup = HashProbes(probes, probes >> 57, probes, probes, None)
    (matches,) = lookup.find(runs[0].sides[int(sides[100])])
    _, places = matches.pairs(0, 1)
    assert matches.rows.ids[places].tolist() == [100]
    assert state.ids({0}).tolist() == np.flatnonzero(sides == 0).tolist()


@pytest.mark.parametrize("seed", short_first(range(3)))
def test_rows_that_predicates_let_in(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    matched: dict[int, set[int]] = {}
    files: list[DataFile] = []
    for number in range(6):
        lo, hi = number * 50_000, (number + 1) * 50_000
        rows = []
        for predicate in range(1, 8):
            ids = sorted(rng.sample(range(lo, hi), 40))
            matched.setdefault(predicate, set()).update(ids)
            for first, last in pieces.runs(np.array(ids) >> 16):
                block_ids = np.array(ids[first:last])
                block = int(block_ids[0]) >> 16
                bitmap = encode((block_ids & 0xFFFF).astype(np.uint16))
                rows.append([7, block >> 4, predicate, block, lo, hi, len(block_ids), bitmap])
        table = pa.table([list(column) for column in zip(*rows, strict=True)], schema=MATCHES)
        files += write_segments(tmp_path, 7, table, MATCH_BOUNDS, sync=False)
    for _ in range(20):
        predicates = sorted(rng.sample(range(1, 9), rng.randint(0, 4)))
        low, high = sorted(rng.sample(range(300_000), 2))
        chosen_files = piece_files(files, 7, predicates, low, high)
        expected = {row for predicate_id in predicates for row in matched.get(predicate_id, ())}
        admitted = matching_ids(tmp_path, chosen_files, predicates, low, high).tolist()
        assert admitted == sorted(row for row in expected if low <= row < high)
        assert not piece_files(files, 8, predicates, low, high)


def test_ends_that_are_known(tmp_path: Path) -> None:
    rows = [(1, 50, 4), (1, 30, 9), (3, 70, 5), (8, 90, 12)]
    columns = [
        pa.array([2] * 4, pa.int64()),
        pa.array([0] * 4, pa.int64()),
        pa.array([row for row, _, _ in rows], pa.int64()),
        pa.array([end for _, end, _ in rows], pa.int64()).view(INSTANT),
        pa.array([by for _, _, by in rows], pa.int64()),
        pa.array([1] * 4, pa.int64()),
    ]
    table = pa.Table.from_arrays(columns, schema=CLOSURES)
    files = write_segments(tmp_path, 2, table, CLOSURE_BOUNDS, sync=False)
    ids = np.array([0, 1, 3, 8])
    early, late = (RowEnds(tmp_path, files, before, LruCache(1)) for before in (9, 10))
    assert early.ends(ids).tolist() == [FOR_EVER, 50, 70, FOR_EVER]
    assert late.ends(ids).tolist() == [FOR_EVER, 30, 70, FOR_EVER]
