"""The rows of erased keys in a store that is restored.

An erasure names the rows that the store had then. A back-up that is older may have rows of the key
that retention had removed by then, so it is searched for the key's digest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.equality import key_digests
from datastem.schema import StreamSchema
from psoup.store.delta.reading import reader
from psoup.store.epochs import Epoch
from psoup.store.log.decoding import rows_of
from psoup.store.log.events import Data, Entry, StreamAltered, StreamCreated
from psoup.store.state.erasures import NO_IDS
from psoup.store.state.losses import Hole
from psoup.store.state.state import State
from psoup.store.store import Store
from results.masking import masked


@dataclass
class KeySearch:
    """The search for rows by their stream keys in a store that nobody writes. `state` is that of
    the end of its log, `epoch` its newest. A stream is read when it is searched first."""

    store: Store
    epoch: Epoch
    state: State
    _keys: dict[int, tuple[Int64s, Int64s]] = field(default_factory=dict)

    def rows(self, stream_id: int, digest: int, salt: bytes) -> Int64s:
        """Return the ids of the rows whose stream key has a digest under `salt`, ascending. Raise
        StoreError."""
        if stream_id not in self._keys:
            self._keys[stream_id] = self._read(self.state.streams[stream_id].schema, stream_id)
        ids, keys = self._keys[stream_id]
        return np.sort(ids[masked(keys, salt) == digest])

    def _read(self, schema: StreamSchema, stream_id: int) -> tuple[Int64s, Int64s]:
        """Return the ids of all rows of a keyed stream, and the digest of the key of each."""
        tables = [*self._stored(schema, stream_id), *self._logged.get(stream_id, ())]
        if not tables:
            return NO_IDS, NO_IDS
        ids, keys = [], []
        for table in tables:
            ids.append(table.column("_row_id").to_numpy())
            keys.append(key_digests([_whole(table.column(name)) for name in schema.key]))
        return np.concatenate(ids), np.concatenate(keys)

    def _stored(self, schema: StreamSchema, stream_id: int) -> Iterator[pa.Table]:
        root = self.store.stem(stream_id).root
        # The back-up may lack files whose rows were lost already.
        lost = {hole.file for hole in self.epoch.losses.holes}
        for path, file in self.store.stem_snapshot(self.epoch, stream_id).files.items():
            if f"stems/{stream_id}/{path}" not in lost:
                yield reader(root, file).read(["_row_id", *schema.key])

    @cached_property
    def _logged(self) -> Mapping[int, list[pa.RecordBatch]]:
        """The rows that the epoch has not consumed, by stream. Payloads that can't be decoded have
        none."""
        streams = self.store.state(self.epoch).streams
        schemas = {stream.id: stream.schema for stream in streams.values()}
        batches: dict[int, list[pa.RecordBatch]] = {}
        for entry in self._entries():
            event = entry.event
            if isinstance(event, StreamCreated | StreamAltered):
                schemas[event.stream_id] = event.schema
            elif isinstance(event, Data) and event.rows and schemas[event.stream_id].key:
                rows = rows_of(entry, event, schemas[event.stream_id], "")
                if not isinstance(rows, Hole):
                    batches.setdefault(event.stream_id, []).append(rows)
        return batches

    def _entries(self) -> Iterator[Entry]:
        start = self.epoch.log_version
        for version in range(start + 1, self.store.log.latest_version(start) + 1):
            yield from self.store.log.read(version)


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
