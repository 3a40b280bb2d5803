"""The rows of batches in the log: decoded, and verified by the batch's digest."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa

from datastem.blocks import SplitRows
from datastem.codec import decode
from datastem.errors import DecodeError
from datastem.schema import StreamSchema
from psoup.store.log.events import Data, Entry, StreamAltered, StreamCreated
from psoup.store.state.losses import Hole
from psoup.store.state.state import State

log = logging.getLogger("psoup.store")

# The rows of a commit, or the holes they leave, by the ordinal of their event.
DecodedRows: TypeAlias = dict[int, SplitRows | Hole]


def decode_rows(entries: Sequence[Entry], state: State, file: str = "") -> DecodedRows:
    """Decode the rows of a commit that was read from `file`, and split them by block.

    `state` is the state before the commit. Only the schemas of its streams are read, so another
    thread may advance it.
    """
    defined: dict[int, StreamSchema] = {}
    rows: DecodedRows = {}
    for entry in entries:
        event = entry.event
        if isinstance(event, StreamCreated | StreamAltered):
            defined[event.stream_id] = event.schema
        elif isinstance(event, Data) and event.rows:
            schema = defined.get(event.stream_id) or state.streams[event.stream_id].schema
            decoded = rows_of(entry, event, schema, file)
            rows[entry.position.ordinal] = (
                decoded if isinstance(decoded, Hole) else SplitRows.of(decoded)
            )
    return rows


def rows_of(entry: Entry, event: Data, schema: StreamSchema, file: str) -> pa.RecordBatch | Hole:
    """Return the stem rows of an event, or a hole if the payload is gone, does not decode, or does
    not have its digest. `file` held the event."""
    try:
        if event.payload is None:
            raise DecodeError(f"payload of stream {schema.name} is lost")
        place = entry.position.packed
        rows = decode(
            schema,
            event.payload,
            event.first_row_id,
            entry.stamp,
            place,
            event.before,
            event.reached,
            digest=event.digest,
        )
        if rows.num_rows != event.rows:
            raise DecodeError(
                f"payload of stream {schema.name}: not the {event.rows} rows announced"
            )
        return rows
    except DecodeError as error:
        stop = event.first_row_id + event.rows
        hole = Hole(
            event.stream_id, event.first_row_id, stop, event.min_ts, event.max_ts, f"log/{file}"
        )
        log.error("position %s: %s. LOST: %s", entry.position, error, hole.text(schema.name))
        return hole
