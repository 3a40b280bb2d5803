"""Edits with `_expected`: what is read before they are appended, and what a refusal shows.

An edit learns by its acceptance that the row it expects is the current one. So the caller must be
one who may read that: it needs `read` on the stream, and a condition on a row that a row policy
hides fails, whatever row is current. A refusal shows the current row only to a caller who may see
it. It can't hide that the key has one from an edit that expects none.
"""

from __future__ import annotations

from datastem.schema import Column
from psoup.access.actions import Action
from psoup.access.principal import Principal
from psoup.answers.rows.key_rows import KeyRows
from psoup.errors import ConflictRow
from psoup.server.call import Call
from psoup.server.core import Core
from psoup.server.permission import Acting
from psoup.server.wire.values import to_rows
from psoup.store import StreamState
from psoup.v1 import psoup_pb2 as pb
from psoup.write.conditions import Conditions

# The bytes of a row that a refusal may show: it travels in HTTP/2 trailers.
_CURRENT_BYTES = 4096


async def prepared(
    core: Core, call: Call, acting: Acting, stream: StreamState, conditions: Conditions
) -> Conditions:
    """Return conditions with the last rows of their keys. Raise PermissionDenied, StoreError."""
    acting.demand(core.follower.state, [stream.id], (Action.READ,))
    if int(conditions.expected.max()) >= core.follower.state.streams[stream.id].high:
        # A row that another server has accepted: its id is no guess.
        await core.follower.catch_up()

    async def attempt() -> Conditions:
        rows = core.maker.key_rows(core.follower.view, stream, acting.principal)
        # A stream that was dropped refuses the batch itself.
        if rows is None:
            return conditions
        return await core.in_thread(call, _prepared, conditions, rows)

    return await core.follower.read(attempt)


def _prepared(conditions: Conditions, rows: KeyRows) -> Conditions:
    last = rows.last(conditions.keys)
    # Only the row that is last now, or a later one, can be current when the batch is appended.
    expected = conditions.expected
    ids = expected[(expected == last.ids) | (expected >= rows.stem.high)]
    return conditions.known(last, rows.stem.high).without(rows.hidden(ids))


async def shown(core: Core, call: Call, principal: Principal, conflict: ConflictRow) -> ConflictRow:
    """Return a conflict with the row that is current, as far as the caller may see it."""
    if conflict.row_id < 0:
        conflict.detail["got"] = str(conflict.row_id)
        return conflict
    stream = core.follower.state.streams[conflict.stream_id]

    async def attempt() -> pb.Rows | None:
        rows = core.maker.key_rows(core.follower.view, stream, principal)
        if rows is None:
            return None
        return await core.in_thread(call, _row, rows, conflict.row_id)

    row = await core.follower.read(attempt)
    if row is not None:
        conflict.detail["got"] = str(conflict.row_id)
        if row.ByteSize() <= _CURRENT_BYTES:
            conflict.detail["current"] = row
    return conflict


def _row(rows: KeyRows, row_id: int) -> pb.Rows | None:
    row = rows.row(row_id)
    if row is None:
        return None
    labels = rows.schema.label
    columns = [Column(labels(name), rows.schema.types[name]) for name in row.schema.names]
    return next(to_rows([row], columns, _CURRENT_BYTES))
