"""What the newest epoch names: files of rows and of matches, and what they cover."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from psoup.store import DataFile, Epoch, Snapshot, Store
from psoup.store.epochs import GENESIS
from psoup.store.layout import COVERAGE, SEGMENT_BITS
from psoup.store.tables import read_files
from results.stored_matches import StreamCoverage

MatchFiles = Mapping[tuple[int, int], Sequence[DataFile]]


@dataclass(frozen=True, slots=True)
class EpochView:
    """Immutable: an answer keeps the one it began with."""

    epoch: Epoch
    version: int
    stems: Mapping[int, Snapshot]
    matches: Snapshot
    match_files: MatchFiles
    coverage: Mapping[int, StreamCoverage]

    def covering(self, stream_id: int) -> StreamCoverage:
        return self.coverage.get(stream_id) or StreamCoverage.nothing()

    def files_for(self, stream_id: int, block: int, predicate: int) -> list[DataFile]:
        """The files that hold all matches of a predicate in a block."""
        return [
            file
            for file in self.match_files.get((stream_id, block >> SEGMENT_BITS), ())
            if _may_hold(file, "block", block) and _may_hold(file, "predicate_id", predicate)
        ]

    def files_of(self, stream_id: int, predicate: int) -> list[DataFile]:
        """The files that hold all matches of a predicate."""
        return [
            file
            for (stream, _), files in self.match_files.items()
            for file in files
            if stream == stream_id and _may_hold(file, "predicate_id", predicate)
        ]


EMPTY = EpochView(GENESIS, 0, {}, Snapshot(0), {}, {})


def open_view(store: Store, version: int, epoch: Epoch, before: EpochView = EMPTY) -> EpochView:
    """The view of an epoch, by way of an earlier view. `version` is that of the epochs table."""
    stems = {
        stream_id: _advance_stem(store, before, epoch, stream_id) for stream_id in epoch.streams
    }
    matches = _advance(store, before.matches, epoch, "matches", before is EMPTY)
    same = matches.version == before.matches.version and before is not EMPTY
    return EpochView(
        epoch,
        version,
        stems,
        matches,
        before.match_files if same else _by_segment(matches.files.values()),
        _coverage(store, epoch, before),
    )


def _may_hold(file: DataFile, column: str, value: int) -> bool:
    return file.low.get(column, value) <= value <= file.high.get(column, value)


def _advance(store: Store, seen: Snapshot, epoch: Epoch, name: str, fresh: bool) -> Snapshot:
    if fresh:
        return store.snapshot(epoch, name)
    return store.table(name).advance(seen, epoch.versions.get(name, 0))


def _advance_stem(store: Store, before: EpochView, epoch: Epoch, stream_id: int) -> Snapshot:
    seen = before.stems.get(stream_id)
    if seen is None:
        return store.stem_snapshot(epoch, stream_id)
    version = epoch.streams[stream_id].version
    return seen if version == seen.version else store.stem(stream_id).advance(seen, version)


def _by_segment(files: Iterable[DataFile]) -> MatchFiles:
    found: dict[tuple[int, int], list[DataFile]] = {}
    for file in files:
        key = int(file.partition["stream_id"]), int(file.partition["segment"])
        found.setdefault(key, []).append(file)
    return found


def _coverage(store: Store, epoch: Epoch, before: EpochView) -> dict[int, StreamCoverage]:
    old, new = before.epoch.versions.get("coverage", 0), epoch.versions.get("coverage", 0)
    if old == new:
        return {
            stream_id: cover.at(epoch.streams[stream_id].high)
            for stream_id, cover in before.coverage.items()
            if stream_id in epoch.streams
        }
    table = read_files(store.table("coverage"), store.snapshot(epoch, "coverage"), COVERAGE)
    streams = table.column("stream_id")
    return {
        stream_id: StreamCoverage.of(
            table.filter(pc.equal(streams, pa.scalar(stream_id))), mark.high
        )
        for stream_id, mark in epoch.streams.items()
    }
