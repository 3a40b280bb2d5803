"""The rows that conditions of a group of proposals are checked with, read before it is proposed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from datastem.keyed_rows import KeyedRows
from datastem.schema import StreamSchema
from psoup.store import State
from psoup.write.conditions import NO_NEW_ROWS, NewRows, ProposedRows
from psoup.write.draft import Proposal
from psoup.write.streams import PublishBatch


class KeyedTail(Protocol):
    """The state at the end of the log, and the keyed rows of its streams."""

    @property
    def state(self) -> State: ...

    @property
    def version(self) -> int: ...

    async def keyed_rows(self, stream_id: int, low: int) -> KeyedRows:
        """Return the rows of a keyed stream with ids from `low` on, of all commits up to
        `version`."""


async def read_new_rows(tail: KeyedTail, proposals: Iterable[Proposal[Any]]) -> NewRows:
    """Return the rows that the proposals' conditions and patches are checked with.

    They are those of the tail's version at the return, so the caller must not wait before it
    proposes. Nothing is read, and nothing waited for, if no proposal has conditions.
    """
    batches = [proposal for proposal in proposals if isinstance(proposal, PublishBatch)]
    lows: dict[int, int] = {}
    for batch in batches:
        high = batch.checked_from
        if high is not None and not _is_dropped(tail.state, batch.stream_id):
            lows[batch.stream_id] = min(high, lows.get(batch.stream_id, high))
    if not lows:
        return NO_NEW_ROWS
    proposed = await _proposed(
        tail.state, [b for b in batches if b.stream_id in lows and b.payload]
    )
    while True:
        version = tail.version
        accepted = {stream_id: await _read(tail, stream_id, low) for stream_id, low in lows.items()}
        # A commit of another server may have been applied meanwhile.
        if tail.version == version:
            return NewRows(accepted, proposed)


def _is_dropped(state: State, stream_id: int) -> bool:
    return state.streams[stream_id].dropped


async def _proposed(state: State, batches: Iterable[PublishBatch]) -> dict[bytes, ProposedRows]:
    """Return the rows of batches by digest. Those of batches with checks are known."""
    proposed: dict[bytes, ProposedRows] = {}
    payloads: dict[bytes, tuple[bytes, StreamSchema]] = {}
    for batch in batches:
        if batch.completion is not None and batch.completion.rows is not None:
            proposed[batch.digest] = batch.completion.rows
        elif batch.conditions is not None:
            proposed[batch.digest] = batch.conditions.rows
        else:
            payloads[batch.digest] = batch.payload, state.streams[batch.stream_id].schema
    # Digests of keys are made one by one, so many of them take long.
    return proposed | (await asyncio.to_thread(_decoded, payloads) if payloads else {})


def _decoded(payloads: Mapping[bytes, tuple[bytes, StreamSchema]]) -> dict[bytes, ProposedRows]:
    return {digest: ProposedRows.decoded(*batch) for digest, batch in payloads.items()}


async def _read(tail: KeyedTail, stream_id: int, low: int) -> KeyedRows | Exception:
    """Return rows, or the error of reading them, which concerns some proposals only."""
    try:
        return await tail.keyed_rows(stream_id, low)
    except Exception as error:
        return error
