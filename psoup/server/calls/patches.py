"""Patches: batches that are completed with the current rows of their keys before they are appended.

A patch reads the row that it completes. So the caller needs `read` on the stream, and a row that a
row policy hides is as good as none: otherwise a patch of the column that the policy reads would
show the others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.accept import Limits, check_validity, event_times
from datastem.arrays import Int64s, Mask
from datastem.codec import encode
from datastem.equality import batch_digest, key_digests
from datastem.errors import RowError
from datastem.patches import complete, kept_columns, patch_places
from datastem.schema import StreamSchema
from datastem.types import Kind
from psoup.access.actions import Action
from psoup.answers.rows.key_rows import KeyRows
from psoup.server.call import Call
from psoup.server.core import Core
from psoup.server.permission import Acting
from psoup.write.conditions import ProposedRows
from psoup.write.patches import Completion, usable_rows
from psoup.write.streams import PublishBatch


async def completed(core: Core, call: Call, acting: Acting, batch: PublishBatch) -> PublishBatch:
    """Return a batch with patches as one of whole rows. Raise PermissionDenied, StoreError.

    One whose keys lack current rows is returned without rows: it is refused when it is proposed,
    unless it is a repeat.
    """
    stream = core.follower.state.streams[batch.stream_id]
    acting.demand(core.follower.state, [stream.id], (Action.READ,))

    async def attempt() -> PublishBatch:
        rows = core.maker.key_rows(core.follower.view, stream, acting.principal)
        # A stream that was dropped refuses the batch itself.
        if rows is None:
            return batch
        return await core.in_thread(call, _completed, batch, rows, core.settings.batch)

    return await core.follower.read(attempt)


def _completed(batch: PublishBatch, rows: KeyRows, limits: Limits) -> PublishBatch:
    sent, schema = batch.sent, rows.schema
    assert sent is not None, "only a batch with patches is completed"
    places = patch_places(sent)
    keys = [sent.column(name).take(pa.array(places)) for name in schema.key]
    last = rows.last(key_digests(keys))
    usable = usable_rows(last, rows.hidden(np.unique(last.ids[last.ids >= 0])))
    completion = Completion(places, last, rows.stem.high, usable, None)
    if not usable.all():
        return replace(batch, completion=completion)
    names = kept_columns(sent, schema)
    ids, sources = np.unique(last.ids, return_inverse=True)
    try:
        current = rows.values(ids, {*names, *schema.key}, limits.batch_bytes)
        if current is None:
            raise _too_large(limits)
        usable = _same_keys(keys, current, ids, sources, schema)
        if not usable.all():
            return replace(batch, completion=replace(completion, usable=usable))
        whole = complete(sent, schema, current, sources, limits)
        check_validity(whole, schema)
    except RowError as error:
        return replace(batch, completion=replace(completion, problem=error))
    # What was sent is not too far ahead; what is kept was accepted before.
    low, high = event_times(whole, replace(schema, ahead=_ANY_TIME), 0)
    proposed = ProposedRows.of(whole, schema)
    conditions = batch.conditions
    return replace(
        batch,
        min_ts=low,
        max_ts=high,
        digest=batch_digest(schema.name, whole),
        payload=encode(whole),
        conditions=None if conditions is None else replace(conditions, rows=proposed),
        completion=replace(completion, rows=proposed),
    )


_ANY_TIME = 1 << 62


def _same_keys(
    keys: list[pa.Array],
    current: pa.RecordBatch,
    ids: Int64s,
    sources: Int64s,
    schema: StreamSchema,
) -> Mask:
    """Return a mask of the patches whose row is there and has their key, and not by chance only its
    digest. `sources` has, for each patch, the place of its row in `ids`."""
    if current.num_rows < len(ids):
        # Rows that are lost or erased.
        present = np.isin(ids, current.column("row_id").to_numpy())
        return np.asarray(present[sources])
    same = np.ones(len(sources), np.bool_)
    for name, values in zip(schema.key, keys, strict=True):
        # NaN equals NaN in keys, not here.
        if schema.types[name].kind is not Kind.DOUBLE:
            others = current.column(name).take(pa.array(sources))
            same &= pc.equal(values, others).to_numpy(zero_copy_only=False)
    return same


def _too_large(limits: Limits) -> RowError:
    return RowError(
        "BATCH_TOO_LARGE",
        f"with the values that its patches keep, a batch has more than {limits.batch_bytes:,} "
        "bytes",
        expected=f"at most {limits.batch_bytes} bytes",
        hint="send it in several batches",
    )
