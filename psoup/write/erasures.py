"""The proposal that erases rows."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s
from psoup.lookup import find_stream
from psoup.store import Position, RowsErased, StreamState
from psoup.store.state.erasures import SALT_BYTES, ids_to_text
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft, Stale, check_bound
from results.masking import masked

# About how many bytes a run of ids takes in the log.
_RUN_BYTES = 8


@dataclass(frozen=True, eq=False)
class Erase:
    """Proposal to erase the rows with these ascending ids from the stream `stream_id` of a name,
    found with the columns of the packed position `altered_at`. `key` is the digest of their stream
    key, None in a stream without one. Without ids it only refuses the key from then on."""

    tenant: str
    owner: str
    name: str
    stream_id: int
    ids: Int64s
    key: int | None
    altered_at: int = 0
    chain: Chain | None = None

    @property
    def nbytes(self) -> int:
        return HEADER_BYTES + _RUN_BYTES * len(self.ids)

    def propose(self, draft: CommitDraft) -> tuple[StreamState, Position]:
        stream = find_stream(draft.state, self.tenant, self.name)
        if stream.id != self.stream_id:
            raise Stale
        check_bound(draft.state, [stream.id], self.altered_at)
        erasures = draft.state.erased(stream.id)
        salt = erasures.salt or secrets.token_bytes(SALT_BYTES)
        event = RowsErased(stream.id, ids_to_text(self.ids), _digest(self.key, salt), salt.hex())
        return stream, draft.append(self.tenant, self.owner, event)


def _digest(key: int | None, salt: bytes) -> int | None:
    return None if key is None else int(masked(np.array([key], np.int64), salt)[0])
