"""The refusal of rows whose stream key was erased lately: edits that were queued on a device."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from datastem.arrays import Int64s
from datastem.equality import key_digests
from datastem.schema import StreamSchema
from psoup.errors import KeyErased
from psoup.store.state.erasures import StreamErasures
from psoup.write.conditions import ProposedRows


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """The outcome of a check of a batch's keys against the first `seen` erasures of its stream."""

    seen: int = 0
    refusal: KeyErased | None = None


UNCHECKED = KeyCheck()


def check_keys(
    batch: pa.RecordBatch, schema: StreamSchema, erasures: StreamErasures, now: int
) -> KeyCheck:
    """Check the rows of an accepted batch. Costs nothing in a stream without erasures."""
    if not erasures.records or not schema.key:
        return KeyCheck(len(erasures.records))
    keys = key_digests([batch.column(name) for name in schema.key])
    return _check(keys, schema, erasures, now)


def check_payload(
    payload: bytes, schema: StreamSchema, erasures: StreamErasures, now: int
) -> KeyCheck:
    """Check the rows of an encoded batch."""
    if not schema.key:
        return KeyCheck(len(erasures.records))
    return _check(ProposedRows.decoded(payload, schema).keys, schema, erasures, now)


def _check(keys: Int64s, schema: StreamSchema, erasures: StreamErasures, now: int) -> KeyCheck:
    refused, seen = erasures.refused(keys, now), len(erasures.records)
    if not len(refused):
        return KeyCheck(seen)
    error = KeyErased(
        f"row {int(refused[0])}: its key was erased from {schema.name}, and no row of it is "
        "accepted for 90 days",
        row=int(refused[0]),
        field=schema.labelled.key[0],
        hint="drop the edit; a person who comes back gets another key",
    )
    return KeyCheck(seen, error)
