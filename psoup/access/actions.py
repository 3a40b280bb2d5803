"""The actions that roles and grants allow, on all objects of a tenant or on one of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from psoup.access.principal import Principal
from psoup.store import State
from psoup.store.state.access import grant_id


class Action(Enum):
    DEFINE = "define"
    PUBLISH = "publish"
    REGISTER = "register"
    READ = "read"
    ADMINISTER = "administer"


_ALL = frozenset(Action)
# Roles that need no grant. An operator is an administrator of every tenant, and of the store. A
# monitor reads how the store is, on a web port, and makes no calls.
BUILT_IN: Mapping[str, frozenset[Action]] = {
    "operator": _ALL,
    "administrator": _ALL,
    "developer": frozenset({Action.DEFINE, Action.PUBLISH, Action.REGISTER, Action.READ}),
    "publisher": frozenset({Action.PUBLISH}),
    "reader": frozenset({Action.REGISTER, Action.READ}),
    "monitor": frozenset(),
}
OPERATOR, MONITOR = "operator", "monitor"
# Roles that see all tenants, so that only an operator gives them.
STORE_ROLES = frozenset({OPERATOR, MONITOR})


def operates(caller: Principal) -> bool:
    """Return True if a caller is an operator of the store."""
    return caller.anyone or OPERATOR in caller.roles


def monitors(caller: Principal) -> bool:
    """Return True if a caller may read the metrics of the store, and what it lacks."""
    return operates(caller) or MONITOR in caller.roles


def only_monitors(caller: Principal) -> bool:
    """Return True if a caller may do nothing else, whatever its owner was granted."""
    return caller.roles == {MONITOR}


def may(state: State, caller: Principal, action: Action, object_id: int = 0) -> bool:
    """Return True if a caller may do something with a stream or view of its own tenant, or with all
    of them (0)."""
    if caller.anyone or any(action in BUILT_IN.get(role, ()) for role in caller.roles):
        return True
    grants = state.access.grants
    if not grants:
        return False
    for granted_on in {object_id, 0}:
        if grant_id(granted_on, action.value, "owner", caller.tenant, caller.owner) in grants:
            return True
        for role in caller.roles:
            if grant_id(granted_on, action.value, "role", caller.tenant, role) in grants:
                return True
    return False


def administers(state: State, caller: Principal) -> bool:
    """Return True if a caller may administer its tenant; row policies do not bind it."""
    return may(state, caller, Action.ADMINISTER)


def is_bound(state: State, stream_id: int, caller: Principal) -> bool:
    """Return True if row policies of a stream bind a caller."""
    return stream_id in state.access.by_stream and not administers(state, caller)


def unreadable(state: State, stream_ids: Iterable[int], caller: Principal) -> frozenset[int]:
    """Return those of the streams that a caller may read only through a view."""
    if may(state, caller, Action.READ):
        return frozenset()
    return frozenset(
        stream_id for stream_id in stream_ids if not may(state, caller, Action.READ, stream_id)
    )


def reads_all(state: State, stream_id: int, caller: Principal) -> bool:
    """Return True if a caller may read every row of a stream, and so know their number."""
    readable = may(state, caller, Action.READ, stream_id)
    return readable and not is_bound(state, stream_id, caller)
