"""Reads what the engine wrote the plain way, from what the last epoch names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from datastem.blocks import BLOCK_BITS
from psoup.store import Store
from psoup.store.layout import COVERAGE, MATCHES
from psoup.store.tables import read_files
from results.bitmaps import decode
from results.id_sets import union

Meaning = Callable[[dict[str, Any]], bool]


def stem_rows(store: Store, stream_id: int) -> list[dict[str, Any]]:
    """Return the rows of a stem as any reader of Delta tables does: NULL for a column that a file
    lacks."""
    _, epoch = store.epochs.latest()
    snapshot = store.stem_snapshot(epoch, stream_id)
    folder = store.stem(stream_id)
    tables = [pq.ParquetFile(folder.path_of(file)).read() for file in snapshot.files.values()]
    rows = pa.concat_tables(tables, promote_options="default").to_pylist() if tables else []
    return sorted(rows, key=lambda row: int(row["_row_id"]))


def pieces(store: Store) -> list[dict[str, Any]]:
    _, epoch = store.epochs.latest()
    folder = store.table("matches")
    matches = []
    for file in store.snapshot(epoch, "matches").files.values():
        rows = pq.ParquetFile(folder.path_of(file)).read().to_pylist()
        order = [(row["predicate_id"], row["block"]) for row in rows]
        assert order == sorted(order), "a match file is sorted by predicate and block"
        matches += [row | {name: int(at) for name, at in file.partition.items()} for row in rows]
    assert all(set(row) == set(MATCHES.names) for row in matches)
    return matches


def matched(store: Store, predicate: int) -> list[int]:
    """Return the row ids of a predicate; assert what docs/reference/formats say about pieces."""
    return matched_by(store, [predicate])[predicate]


def matched_by(store: Store, predicates: Iterable[int]) -> dict[int, list[int]]:
    """Return the row ids of each of some predicates."""
    pieces_of: dict[int, list[dict[str, Any]]] = {predicate: [] for predicate in predicates}
    for piece in pieces(store):
        if piece["predicate_id"] in pieces_of:
            pieces_of[piece["predicate_id"]].append(piece)
    return {predicate: _row_ids(own) for predicate, own in pieces_of.items()}


def _row_ids(own_pieces: list[dict[str, Any]]) -> list[int]:
    """Return the row ids of one predicate's pieces."""
    ids: list[int] = []
    for piece in own_pieces:
        lows = decode(piece["bitmap"])
        hits = [(piece["block"] << BLOCK_BITS) + low for low in lows.tolist()]
        assert len(hits) == piece["count"] > 0
        assert piece["lo"] <= hits[0] and hits[-1] < piece["hi"]
        assert piece["segment"] == piece["block"] >> 4
        ids += hits
    ranges = sorted((piece["lo"], piece["hi"]) for piece in own_pieces)
    assert all(before[1] <= after[0] for before, after in pairwise(ranges))
    return sorted(ids)


def covered(store: Store, stream_id: int, predicate: int) -> list[tuple[int, int]]:
    return covered_by(store, stream_id, [predicate])[predicate]


def covered_by(
    store: Store, stream_id: int, predicates: Iterable[int]
) -> dict[int, list[tuple[int, int]]]:
    """Return the intervals of rows that each of some predicates has met."""
    _, epoch = store.epochs.latest()
    table = read_files(store.table("coverage"), store.snapshot(epoch, "coverage"), COVERAGE)
    high = (epoch.streams.get(stream_id) or epoch.composites[stream_id]).high
    rows = [row for row in table.to_pylist() if row["stream_id"] == stream_id]
    return {
        predicate: union(
            (row["row_lo"], high if row["row_hi"] is None else row["row_hi"])
            for row in rows
            if row["predicate_lo"] <= predicate < row["predicate_hi"]
        )
        for predicate in predicates
    }


def assert_joined(store: Store, stream_id: int, predicates: dict[int, Meaning]) -> None:
    """Every predicate has met every row, and matched as its meaning says."""
    rows = stem_rows(store, stream_id)
    _, epoch = store.epochs.latest()
    high = epoch.streams[stream_id].high
    coverage = covered_by(store, stream_id, predicates)
    assert coverage == {predicate: [(0, high)] if high else [] for predicate in predicates}
    assert matched_by(store, predicates) == {
        predicate: [row["_row_id"] for row in rows if meaning(row)]
        for predicate, meaning in predicates.items()
    }
