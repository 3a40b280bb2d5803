"""The rows of a publish out of the log, if they are the ones that were accepted."""

from __future__ import annotations

import logging

import pyarrow as pa

from datastem.codec import decode
from datastem.errors import DecodeError
from datastem.schema import StreamSchema
from psoup.store.events import Data, Entry
from psoup.store.losses import Hole

log = logging.getLogger("psoup.store")


def rows_of(entry: Entry, event: Data, schema: StreamSchema, file: str) -> pa.RecordBatch | Hole:
    """The stem rows of an event, or a hole where they can't be had: the payload is gone, does not
    decode, or holds other values than its digest says. `file` is where the event was read."""
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
