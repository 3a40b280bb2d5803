"""Epochs made by hand, through the store's own commits: what the engine leaves, without Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.blocks import BLOCK_BITS, BLOCK_MASK, SplitRows
from datastem.codec import are_rows, query_view, stem_schema, with_optional
from psoup.store import (
    CompositeMark,
    DataFile,
    Epoch,
    Position,
    State,
    Store,
    StreamMark,
    Touched,
)
from psoup.store.delta.files import write_data_file
from psoup.store.heartbeats import Heartbeat, heartbeat_rows, heartbeats
from psoup.store.layout import COVERAGE, ENGINE_TABLES, MATCHES, combinations_schema
from psoup.store.log.decoding import decode_rows
from psoup.store.state.quarantine import QuarantineEntry
from psoup.store.tables import changed_rows, read_files
from querystem.composites import Shape
from querystem.expressions import from_json
from querystem.kernel import matches
from querystem.sources import item_column
from results.bitmaps import decode, encode


class HandMadeEngine:
    """Keeps its whole state in memory; one of these per store, from its first epoch on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.state = State()
        self._epochs = 0
        self._epoch: Epoch | None = None
        self._versions = dict.fromkeys(ENGINE_TABLES, 0)
        self._stems: dict[int, int] = {}
        self._log = 0
        self._covered: dict[int, int] = {}
        self._rows: dict[int, list[pa.RecordBatch]] = {}
        self.composites: dict[int, CompositeMark] = {}
        self._combined: dict[int, set[tuple[int, ...]]] = {}

    def step(self, upto: int | None = None) -> Epoch:
        """Consume the log up to a version. Predicates are matched over rows from now on only."""
        goal = self._store.log.latest_version() if upto is None else upto
        touched, stamp = Touched(), self.state.clock
        beats: list[Heartbeat] = []
        marks = {key: stream.high for key, stream in self.state.streams.items()}
        rows: dict[int, list[pa.RecordBatch]] = {}
        for version in range(self._log + 1, goal + 1):
            entries = self._store.log.read(version)
            decoded = decode_rows(entries, self.state)
            beats += heartbeats(entries)
            for entry in entries:
                self.state.apply(entry, touched)
                stamp = entry.stamp
                if entry.position.ordinal in decoded:
                    stream_id = entry.event.stream_id  # type: ignore[union-attr]
                    split = decoded[entry.position.ordinal]
                    assert isinstance(split, SplitRows)
                    rows.setdefault(stream_id, []).append(split.rows)
        self._log = goal
        self._cover_new(marks)
        for stream_id, narrow in rows.items():
            schema = self.state.streams[stream_id].schema
            names = stem_schema(schema).names
            parts = [with_optional(part, names, schema.optional) for part in narrow]
            self._write_rows(stream_id, pa.concat_batches(parts))
            self._rows.setdefault(stream_id, []).extend(parts)
        for name, table in changed_rows(self.state, touched, self.state.position).items():
            self._append(name, table)
        if beats:
            self._append("reached", heartbeat_rows(beats))
        return self._publish(stamp)

    def set_aside(self, *entries: QuarantineEntry) -> Epoch:
        """Put entries into quarantine. What a predicate covers already stays, and ends here."""
        assert self._epoch is not None
        self.state.quarantine = self.state.quarantine.add(entries)
        folder, snapshot = (
            self._store.table("coverage"),
            self._store.snapshot(self._epoch, "coverage"),
        )
        rows = read_files(folder, snapshot, COVERAGE).to_pylist()
        for row in rows:
            if row["predicate_lo"] in self.state.quarantine.predicates and row["row_hi"] is None:
                row["row_hi"] = self.state.streams[row["stream_id"]].high
        file = write_data_file(folder.root, pa.Table.from_pylist(rows, schema=COVERAGE))
        self._versions["coverage"] += 1
        removed = list(snapshot.files.values())
        folder.commit(self._versions["coverage"], [file], removed, operation="QUARANTINE")
        return self._publish(self._epoch.clock)

    def _cover_new(self, marks: dict[int, int]) -> None:
        done = {*self._covered, *self.state.quarantine.predicates}
        rows = []
        for predicate in self.state.predicates.values():
            if predicate.id not in done and predicate.stream_id in self.state.streams:
                low = marks.get(predicate.stream_id, 0)
                self._covered[predicate.id] = low
                row = {
                    "stream_id": predicate.stream_id,
                    "predicate_lo": predicate.id,
                    "predicate_hi": predicate.id + 1,
                    "row_lo": low,
                    "row_hi": None,
                }
                rows.append(row)
        if rows:
            self._append("coverage", pa.Table.from_pylist(rows, schema=COVERAGE))

    def _write_rows(self, stream_id: int, rows: pa.RecordBatch) -> None:
        stem = self._store.create_stem(stream_id, self.state.streams[stream_id].schema)
        table = pa.Table.from_batches([rows])
        file = write_data_file(stem.root, table, bounds=["_row_id", "_ts"], row_group_rows=5000)
        self._stems[stream_id] = self._stems.get(stream_id, 0) + 1
        stem.commit(self._stems[stream_id], [file], operation="WRITE")
        pieces: list[dict[str, object]] = []
        for predicate in sorted(self.state.predicates.values(), key=lambda value: value.id):
            set_aside = predicate.id in self.state.quarantine.predicates
            if predicate.stream_id == stream_id and not set_aside:
                where = from_json(json.loads(predicate.key))
                ids = rows.column("_row_id").to_numpy()[
                    matches(where, query_view(rows)) & are_rows(rows)
                ]
                pieces += _pieces(stream_id, predicate.id, ids)
        for segment in sorted({int(str(row["segment"])) for row in pieces}):
            in_segment = [row for row in pieces if row["segment"] == segment]
            partition = {"stream_id": str(stream_id), "segment": str(segment)}
            self._append("matches", pa.Table.from_pylist(in_segment, schema=MATCHES), partition)

    def _append(self, name: str, table: pa.Table, partition: dict[str, str] | None = None) -> None:
        folder = self._store.table(name)
        file = write_data_file(folder.root, table, partition=partition, row_group_rows=3)
        self._versions[name] += 1
        folder.commit(self._versions[name], [file], operation="WRITE")

    def _publish(self, stamp: int) -> Epoch:
        self._epochs += 1
        for key, stream in self.state.streams.items():
            if key not in self._stems and not stream.dropped:
                self._store.create_stem(key, stream.schema)
                self._stems[key] = 0
        streams = {
            key: StreamMark.of(stream, self._stems[key])
            for key, stream in self.state.streams.items()
            if key in self._stems
        }
        state = self.state
        self._epoch = Epoch(
            self._epochs, "step", self._log, Position(*state.position), stamp, stamp,
            state.next_predicate_id, dict(self._versions), streams,
            state.leases.outages, state.jumps, composites=dict(self.composites),
            quarantine=state.quarantine,
        )  # fmt: skip
        self._store.epochs.append(self._epochs, self._epoch)
        return self._epoch

    def compose(
        self,
        composite_id: int,
        since: int,
        highs: Sequence[int],
        admitted: Sequence[Collection[int]],
        chance: random.Random,
    ) -> None:
        """Store the combinations of a box of a composite that are not stored yet, in any order; the
        box and `admitted` hold all that they held before. The next step names them."""
        composite = self.state.composites[composite_id]
        shape = Shape.read(composite.legs, composite.factors, composite.span)
        lows = [since, *[0] * (len(highs) - 1)]
        legs = [
            self._admitted(*leg) for leg in zip(composite.legs, lows, highs, admitted, strict=True)
        ]
        combined = _all_combinations(legs, shape)
        stored = self._combined.setdefault(composite_id, set())
        names = [f"_part{number}" for number in range(len(legs))]
        news = [
            row for row in combined.to_pylist() if tuple(row[name] for name in names) not in stored
        ]
        chance.shuffle(news)
        stored.update(tuple(row[name] for name in names) for row in news)
        mark = self.composites.get(composite_id) or CompositeMark.without_box(len(legs))
        version = mark.version
        self._store.create_composite(composite_id, len(legs))
        if news:
            rows = [row | {"_row_id": mark.high + n} for n, row in enumerate(news)]
            table = pa.Table.from_pylist(rows, schema=combinations_schema(len(legs)))
            stem = self._store.stem(composite_id)
            file = write_data_file(stem.root, table, bounds=["_row_id", "_ts"], row_group_rows=7)
            version += 1
            stem.commit(version, [file], operation="WRITE")
        self.composites[composite_id] = replace(
            mark,
            high=mark.high + len(news),
            version=version,
            since=since,
            highs=tuple(highs),
            admitted=tuple(tuple(sorted(ids)) for ids in admitted),
            predicates=self._stored_predicates(composite_id, admitted),
        )

    def _stored_predicates(
        self, composite_id: int, admitted: Sequence[Collection[int]]
    ) -> tuple[tuple[int, int], ...]:
        """Return the ranges of the predicates over a composite all of whose rows are admitted."""
        by_stream: dict[int, set[int]] = {}
        for stream_id, ids in zip(self.state.composites[composite_id].legs, admitted, strict=True):
            # A leg of the query may be any leg of its stream, so all of them must have its rows.
            by_stream[stream_id] = by_stream.get(stream_id, set(ids)) & set(ids)
        stored = {
            registration.composite.predicate_id
            for registration in self.state.registrations.values()
            if registration.composite is not None
            and registration.composite.composite_id == composite_id
            and all(leg.predicate_id in by_stream[leg.stream_id] for leg in registration.legs)
        }
        return tuple((id_, id_ + 1) for id_ in sorted(stored))

    def forget_combinations(self, composite_id: int, limit: int | None = None) -> None:
        """Remove the files of a composite whose combinations have only rows with a ts up to
        `limit`, as retention does; without a limit, all of them, and the box: the composite starts
        again. The next step says so."""
        mark = self.composites[composite_id]
        stem = self._store.stem(composite_id)
        files = stem.snapshot(mark.version).files.values()
        ends = {
            file.path: pa.parquet.read_table(stem.path_of(file)).column("_until").cast(pa.int64())
            for file in files
        }
        old = [file for file in files if limit is None or max(ends[file.path].to_pylist()) <= limit]
        if old:
            mark = replace(mark, version=mark.version + 1)
            stem.commit(mark.version, [], old, operation="FORGET")
        if limit is None:
            self._combined[composite_id].clear()
            empty = CompositeMark.without_box(len(mark.highs), mark.high)
            mark = replace(empty, version=mark.version)
        self.composites[composite_id] = mark

    def _admitted(
        self, stream_id: int, low: int, high: int, predicates: Collection[int]
    ) -> pa.RecordBatch:
        """Return the rows of a leg's box that a local predicate matches, with all columns."""
        rows = pa.concat_batches(self._rows[stream_id])
        ids, view = rows.column("_row_id").to_numpy(), query_view(rows)
        inside = (ids >= low) & (ids < high) & are_rows(rows)
        is_admitted = np.zeros(len(ids), np.bool_)
        for predicate in predicates:
            where = from_json(json.loads(self.state.predicates[predicate].key))
            is_admitted |= matches(where, view)
        return view.append_column("_position", rows.column("_position")).filter(
            pa.array(inside & is_admitted)
        )

    def rewrite(self, stream_id: int) -> list[str]:
        """Merge the files of a stem into one, and remove the old ones from the disk at once."""
        assert self._epoch is not None
        stem = self._store.stem(stream_id)
        old = list(self._store.stem_snapshot(self._epoch, stream_id).files.values())
        table = pa.concat_tables([pa.parquet.read_table(stem.path_of(file)) for file in old])
        file = write_data_file(stem.root, table, bounds=["_row_id", "_ts"], row_group_rows=70_000)
        self._replace(stream_id, [file], old, "merge")
        for old_file in old:
            stem.path_of(old_file).unlink()
        return [old_file.path for old_file in old]

    def _replace(self, stream_id: int, new: list[DataFile], old: list[DataFile], kind: str) -> None:
        """Commit other files of a stem, and the epoch that names them."""
        assert self._epoch is not None
        self._stems[stream_id] += 1
        version = self._stems[stream_id]
        stem = self._store.stem(stream_id)
        stem.commit(version, new, old, operation=kind.upper(), data_change=kind == "retain")
        self._epochs += 1
        mark = replace(self._epoch.streams[stream_id], version=version)
        streams = {**self._epoch.streams, stream_id: mark}
        self._epoch = replace(self._epoch, number=self._epochs, kind=kind, streams=streams)
        self._store.epochs.append(self._epochs, self._epoch)

    def forget(self, stream_id: int, count: int) -> None:
        """Remove the first `count` files from a stem, as retention does."""
        assert self._epoch is not None
        old = list(self._store.stem_snapshot(self._epoch, stream_id).files.values())[:count]
        self._replace(stream_id, [], old, "retain")

    def retain(self, stream_id: int, limit: int) -> bool:
        """Remove the files whose rows all have a ts up to `limit` from a stem, as retention does;
        return True if there were any."""
        if self._epoch is None or stream_id not in self._epoch.streams:
            return False
        files = self._store.stem_snapshot(self._epoch, stream_id).files.values()
        old = [file for file in files if file.high["_ts"] <= limit]
        if old:
            self._replace(stream_id, [], old, "retain")
        return bool(old)

    def cut(self, stream_id: int, row: int) -> None:
        """Forget what was matched over rows below `row`: coverage and pieces in one epoch, and the
        files from the disk at once."""
        if self._epoch is None:
            return
        for name in ("coverage", "matches"):
            folder, written = self._store.table(name), []
            old = list(self._store.snapshot(self._epoch, name).files.values())
            for file in old:
                rows = pa.parquet.ParquetFile(folder.path_of(file)).read()
                table, partition = rows, file.partition
                if name == "coverage" or int(partition["stream_id"]) == stream_id:
                    lows = [_cut(entry, stream_id, row) for entry in rows.to_pylist()]
                    remaining = [entry for entry in lows if entry is not None]
                    table = pa.Table.from_pylist(remaining, schema=rows.schema)
                if table.num_rows:
                    written.append(write_data_file(folder.root, table, partition=partition))
            self._versions[name] += 1
            folder.commit(self._versions[name], written, old, operation="CUT")
            for file in old:
                folder.path_of(file).unlink()
        self._publish(self._epoch.clock)

    def trim(self) -> None:
        """Remove every log file an epoch has consumed, and their commits behind a checkpoint."""
        folder = self._store.log.folder
        files = [file for file in folder.snapshot().files.values()]
        assert self._epoch is not None
        self._store.log.trim(folder.latest_version() + 1, files, self._epoch)
        for file in files:
            folder.path_of(file).unlink()


def _cut(entry: dict[str, Any], stream_id: int, row: int) -> dict[str, Any] | None:
    """Return a row of the coverage, or a piece of the matches, without rows below an id."""
    if "bitmap" not in entry:
        is_cut = entry["stream_id"] == stream_id
        return entry | {"row_lo": max(entry["row_lo"], row)} if is_cut else entry
    base = entry["block"] << BLOCK_BITS
    lows = decode(entry["bitmap"])
    remaining = lows[lows.astype(np.int64) + base >= row]
    return (
        entry | {"count": len(remaining), "bitmap": encode(remaining)} if len(remaining) else None
    )


def _all_combinations(legs: Sequence[pa.RecordBatch], shape: Shape) -> pa.Table:
    """Return all combinations of rows for which a composite's equalities hold and that its span
    allows."""
    sizes = [leg.num_rows for leg in legs]
    places = np.indices(sizes).reshape(len(legs), -1)
    columns = {
        item_column(number, name): leg.column(name).take(pa.array(places[number]))
        for number, leg in enumerate(legs)
        for name in leg.schema.names
    }
    pairs = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    is_combination = np.logical_and.reduce([matches(factor, pairs) for factor in shape.factors])

    def values(name: str) -> np.ndarray:
        return np.stack(
            [
                pairs.column(item_column(n, name)).cast(pa.int64()).to_numpy()
                for n in range(len(legs))
            ]
        )

    ts, ids = values("ts"), values("row_id")
    if shape.span is not None:
        is_combination &= ts.max(axis=0) - ts.min(axis=0) <= shape.span
    parts = {f"_part{number}": ids[number] for number in range(len(legs))}
    times = {"_ts": ts.min(axis=0), "_until": ts.max(axis=0)}
    combined = pa.table({**times, "_position": values("_position").max(axis=0), **parts})
    return combined.filter(pa.array(is_combination))


def _pieces(stream_id: int, predicate: int, ids: np.ndarray) -> list[dict[str, object]]:
    pieces: list[dict[str, object]] = []
    for block in np.unique(ids >> BLOCK_BITS).tolist():
        in_block = ids[ids >> BLOCK_BITS == block]
        pieces.append(
            {
                "stream_id": stream_id,
                "segment": block >> 4,
                "predicate_id": predicate,
                "block": block,
                "lo": int(in_block[0]),
                "hi": int(in_block[-1]) + 1,
                "count": len(in_block),
                "bitmap": encode((in_block & BLOCK_MASK).astype(np.uint16)),
            }
        )
    return pieces
