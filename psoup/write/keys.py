"""Keys as proposals: one comes, one is revoked; and both without a server, by whoever may write the
store's folder."""

from __future__ import annotations

from dataclasses import dataclass

from psoup.errors import NoSuchKey
from psoup.store import Conflict, Entry, Position, State, Store
from psoup.store.log.access_events import AccessEnded, AccessEvent, AccessPut
from psoup.store.state.access import Key
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft
from psoup.write.quotas import check_objects
from psoup.write.timepiece import system_clock


@dataclass(frozen=True, slots=True)
class CreateKey:
    """Adds a key to those of its tenant, in the name of the owner who asked for it."""

    key: Key
    by: str
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> Position:
        check_objects(draft.state, "keys", self.key.tenant, self.key.owner)
        return draft.append(self.key.tenant, self.by, AccessPut((self.key,)))


@dataclass(frozen=True, slots=True)
class RevokeKey:
    """Ends a key of a tenant."""

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
    """Finds a key of a tenant. Raises NoSuchKey, for one of another tenant too."""
    key = state.access.keys.get(id_)
    if key is None or key.tenant != tenant:
        raise NoSuchKey(f"there is no key {id_[:32]!r}", hint="`psoup key list` shows those there")
    return key


# ---- without a server


def last_state(store: Store) -> State:
    """The state at the end of the log, read from the folder."""
    _, epoch = store.epochs.latest()
    state = store.state(epoch)
    for version in range(epoch.log_version + 1, store.log.latest_version(epoch.log_version) + 1):
        for entry in store.log.read(version, payloads=False):
            state.apply(entry)
    return state


def append_key(store: Store, key: Key) -> Position:
    return _append(store, key.tenant, AccessPut((key,)))


def append_revocation(store: Store, tenant: str, id_: str) -> Position:
    """Raises NoSuchKey."""
    find_key(last_state(store), tenant, id_)
    return _append(store, tenant, AccessEnded((("key", id_),)))


def _append(store: Store, tenant: str, event: AccessEvent) -> Position:
    """Appends one event with the last stamp there is: time goes on only by servers' clocks. What
    this machine's clock says is noted for the audit; without a server's name it vouches for
    nothing."""
    while True:
        version = store.log.latest_version() + 1
        stamp = store.log.last_stamp(store.epochs.latest()[1], version)
        position = Position(version, 0)
        entry = Entry(position, stamp, tenant, "", event, clock=system_clock())
        try:
            store.log.append(version, [entry])
            return position
        except Conflict:
            continue
