"""The rows of the log: decoded as they come, and again when they have left memory since."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from datastem.blocks import BLOCK_ROWS
from datastem.codec import empty_rows
from datastem.memory import Memory
from datastem.schema import StreamSchema
from datastem.segments import Inserts, RowSegment
from datastem.stem import SegmentReader
from psoup.store import CorruptStore, CreateStream, Data, Entry, Hole, State
from psoup.store.decoding import rows_of

# The decoded rows of a commit, or the hole they leave, by the ordinal of their event.
Rows: TypeAlias = dict[int, pa.RecordBatch | Hole]


def decode_rows(entries: Sequence[Entry], state: State, file: str = "") -> Rows:
    """The rows of a commit that was read from `file`, or the holes they leave.

    `state` is the one before the commit. It is only looked at, so it may move on meanwhile.
    """
    created: dict[int, StreamSchema] = {}
    rows: Rows = {}
    for entry in entries:
        event = entry.event
        if isinstance(event, CreateStream):
            created[event.stream_id] = event.schema
        elif isinstance(event, Data) and event.rows:
            schema = created.get(event.stream_id) or state.streams[event.stream_id].schema
            rows[entry.position.ordinal] = rows_of(entry, event, schema, file)
    return rows


class StemReader:
    """Reads the rows of one stream: from the stem's files, and from the log what is only there.

    A place of Inserts is the version of a commit. Thread-safe. The commit read last is kept under
    the memory's budget where it has more than a block, for the next block will ask for it again.

    `known` tells which holes were there when the commit was first read: they have no rows.
    """

    def __init__(
        self,
        memory: Memory,
        stream_id: int,
        schema: StreamSchema,
        read_files: SegmentReader,
        read_log: Callable[[int], Sequence[Entry]],
        known: Callable[[Hole], bool],
    ) -> None:
        self._memory = memory
        self._stream_id = stream_id
        self._schema = schema
        self._read_files = read_files
        self._read_log = read_log
        self._known = known
        self._last: tuple[int, list[pa.RecordBatch]] = (0, [])

    def read(
        self, segments: Sequence[RowSegment], lo: int, hi: int, names: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Raises FileNotFoundError, or LogTrimmed, where the engine has gone on since; CorruptStore
        where rows were lost since."""
        logged = [segment for segment in segments if isinstance(segment.source, Inserts)]
        if not logged:
            return self._read_files(segments, lo, hi, names)
        stored = [segment for segment in segments if segment not in logged]
        batches = [self._read_files(stored, lo, hi, names)]
        for segment in logged:
            first, stop = max(lo, segment.row_lo), min(hi, segment.row_hi)
            for version in segment.source.places(first, stop):
                batches += [_between(batch, first, stop) for batch in self._commit(version)]
        schema = batches[0].schema
        return pa.concat_batches([batch.select(schema.names) for batch in batches])

    def _commit(self, version: int) -> list[pa.RecordBatch]:
        """The rows of the stream in one commit of the log."""
        kept, batches = self._last
        if kept == version:
            return batches
        batches = [
            self._decode(entry, entry.event)
            for entry in self._read_log(version)
            if isinstance(entry.event, Data)
            and entry.event.stream_id == self._stream_id
            and entry.event.rows
        ]
        if sum(batch.num_rows for batch in batches) > BLOCK_ROWS:
            self._last = version, batches
            self._memory.hold((self, 0), sum(batch.nbytes for batch in batches))
        return batches

    def _decode(self, entry: Entry, event: Data) -> pa.RecordBatch:
        file = f"version {entry.position.version}"
        rows = rows_of(entry, event, self._schema, file)
        if not isinstance(rows, Hole):
            return rows
        if not self._known(rows):
            raise CorruptStore(f"the answer needs lost {rows.text(self._schema.name)}", rows.file)
        return empty_rows(self._schema)

    def forget(self) -> None:
        self._memory.drop((self, 0))
        self.evict(0)

    def evict(self, number: int) -> None:
        """The memory's word that others need the room."""
        self._last = (0, [])


def _between(batch: pa.RecordBatch, lo: int, hi: int) -> pa.RecordBatch:
    """The rows with ids in `[lo, hi)`."""
    ids = batch.column("_row_id").to_numpy()
    first, stop = np.searchsorted(ids, [lo, hi]).tolist()
    return batch.slice(first, stop - first)
