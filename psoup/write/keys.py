"""Proposals that create and revoke access keys; and both without a server, for programs that may
write the store's folder."""

from __future__ import annotations

from dataclasses import dataclass

from psoup.errors import NoSuchAccessKey
from psoup.store import Conflict, Entry, Position, State, Store
from psoup.store.log.access_events import AccessEnded, AccessEvent, AccessPut
from psoup.store.state.access import Key
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft
from psoup.write.quotas import check_objects
from psoup.write.timepiece import system_clock


@dataclass(frozen=True, slots=True)
class CreateKey:
    """Proposal to create an access key, on behalf of the owner `by` who requested it."""

    key: Key
    by: str
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> Position:
        check_objects(draft.state, "keys", self.key.tenant, self.key.owner)
        return draft.append(self.key.tenant, self.by, AccessPut((self.key,)))


@dataclass(frozen=True, slots=True)
class RevokeKey:
    """Proposal to revoke an access key of a tenant."""

    tenant: str
    by: str
    id: str
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> tuple[Key, Position]:
        key = find_key(draft.state, self.tenant, self.id)
        event = AccessEnded((("key", self.id),))
        return key, draft.append(self.tenant, self.by, event)


def find_key(state: State, tenant: str, id_: str) -> Key:
    """Return an access key of a tenant. Raise NoSuchAccessKey, also for a key of another tenant."""
    key = state.access.keys.get(id_)
    if key is None or key.tenant != tenant:
        raise NoSuchAccessKey(
            f"there is no access key {id_[:32]!r}", hint="`psoup key list` shows the access keys"
        )
    return key


# ---- without a server


def last_state(store: Store) -> State:
    """Return the state at the end of the log, read from the folder."""
    return store.last_state(store.epochs.latest()[1])


def append_key(store: Store, key: Key) -> Position:
    """Append an access key to the log; return its position."""
    return _append(store, key.tenant, AccessPut((key,)))


def append_revocation(store: Store, tenant: str, id_: str) -> Position:
    """Append the end of an access key; return the position. Raise NoSuchAccessKey if it is
    unknown."""
    find_key(last_state(store), tenant, id_)
    return _append(store, tenant, AccessEnded((("key", id_),)))


def _append(store: Store, tenant: str, event: AccessEvent) -> Position:
    """Append one event with the last stamp of the log: only servers' clocks move the stamps.

    The entry has this machine's clock for the audit. Without a server's name it confirms no jump.
    """
    while True:
        version = store.log.latest_version() + 1
        stamp = store.log.last_stamp(store.epochs.latest()[1], version)
        position = Position(version, 0)
        entry = Entry(position, stamp, tenant, "", event, clock=system_clock())
        try:
            store.log.append(version, [entry])
            return position
        except Conflict:
            # A server was faster: take the next version.
            continue
