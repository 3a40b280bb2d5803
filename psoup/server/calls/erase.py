"""ERASE: from a condition to the rows of one key, and to the event that erases them.

A key is refused first, by an event without rows. So no row of it comes after the rows were looked
for, whichever server publishes. In a stream without a key the rows accepted before the call are
erased. The key's value is in no event, no audit record and no message of the log.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.codec import query_view
from datastem.equality import key_digests
from datastem.schema import StreamSchema
from datastem.stem_view import StemView
from psoup.access.actions import Action
from psoup.errors import BadRequest, RowsLost
from psoup.lookup import TenantStreams
from psoup.server.call import Call
from psoup.server.core import Core
from psoup.server.permission import Acting
from psoup.store import Position, StreamState
from psoup.store.state.erasures import MAX_ERASED_ROWS, NO_IDS
from psoup.write.draft import Stale, check_bound
from psoup.write.erasures import Erase
from querystem.expressions import Expression, Literal, columns_of
from querystem.kernel import matches
from querystem.language import ErasedRows, EraseRows, bind_erase

_ATTEMPTS = 3


async def erase(
    core: Core, call: Call, acting: Acting, sql: str, statement: EraseRows
) -> tuple[StreamState, Position, int]:
    """Erase rows; return their stream, the position of the erasure, and how many they were. Raise
    QueryError, PermissionDenied."""
    for _ in range(_ATTEMPTS):
        await core.follower.catch_up()
        acting.demand(core.follower.state, actions=(Action.ADMINISTER,))
        streams = acting.streams(core.follower.state)
        bound = await core.in_thread(call, _bound, core, sql, statement, streams)
        with contextlib.suppress(Stale):
            return await _erase(core, call, acting, streams.stream(statement.name), bound)
    raise BadRequest("the stream was altered, or dropped and created again, over and over")


def _bound(core: Core, sql: str, statement: EraseRows, streams: TenantStreams) -> ErasedRows:
    limit = core.settings.query_bytes
    return bind_erase(sql, statement, streams.lookup, max_text=limit, names=streams.names)


async def _erase(
    core: Core, call: Call, acting: Acting, stream: StreamState, bound: ErasedRows
) -> tuple[StreamState, Position, int]:
    _check_losses(core, stream)
    subject = acting.tenant, acting.owner, stream.schema.name, stream.id
    altered_at = stream.schema.altered_at
    key = _key(stream.schema, bound.values) if stream.schema.key else None
    if key is not None:
        await core.submit(call, Erase(*subject, NO_IDS, key, altered_at))
        # Rows of the key that were accepted before that are found below.
        await core.follower.catch_up()

    async def attempt() -> Int64s:
        stem = core.follower.view.find_stem(stream.id)
        if stem is None:
            raise Stale
        check_bound(core.follower.state, [stream.id], altered_at)
        return await core.in_thread(call, _ids, stem, bound.where)

    ids = await core.follower.read(attempt)
    if len(ids) > MAX_ERASED_ROWS:
        raise BadRequest(
            f"{len(ids):,} rows have that value; at most {MAX_ERASED_ROWS:,} are erased at once",
            hint="DROP STREAM removes all rows of a stream",
        )
    stream, position = await core.submit(call, Erase(*subject, ids, key, altered_at))
    return stream, position, len(ids)


def _check_losses(core: Core, stream: StreamState) -> None:
    """Raise RowsLost while rows of a stream are lost: rows of the key may come back with them."""
    holes = [hole for hole in core.follower.losses.open if hole.stream_id == stream.id]
    if holes:
        raise RowsLost(
            f"{holes[0].text(stream.schema.name)}; rows of the key may be among them",
            hint="restore the file, or give the rows up with `psoup repair --accept`, then erase",
        )


def _key(schema: StreamSchema, values: Mapping[str, Literal]) -> int:
    """Return the digest of a stream key, as the stem has it."""
    columns = [pa.array([values[name].value], schema.types[name].arrow) for name in schema.key]
    return int(key_digests(columns)[0])


def _ids(stem: StemView, where: Expression) -> Int64s:
    """Return the ids of the rows that match, deletes included, ascending. Only the columns of the
    condition are read."""
    names = ["_row_id", "_ts", *sorted({*columns_of(where)} - {"ts", "row_id"})]
    pieces = [NO_IDS]
    for rows in stem.columns(names, 0):
        if rows.num_rows:
            mask = np.asarray(matches(where, query_view(rows)))
            pieces.append(rows.column("_row_id").to_numpy()[mask])
    return np.concatenate(pieces)


def erasure_note(schema: StreamSchema, count: int) -> str:
    """Return what a person should know about an erasure."""
    rows = "1 row is" if count == 1 else f"{count:,} rows are"
    note = f"{rows} erased from answers; `psoup erase --status` says when they are off the disk"
    if not count:
        note = (
            "no row has that value now; old files may have some that were removed before: `psoup "
            "erase --status` says when those are off the disk"
        )
    return f"{note}; back-ups still have them"
