"""Callers who show a static key of the store: looked up in the state on each call, so that a key
is worth nothing as soon as this server has read of its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache

from datastem.instants import format_instant
from psoup.access.keys import id_of, is_text_of, read_claims
from psoup.access.principal import Principal
from psoup.errors import Unauthenticated
from psoup.store import State
from psoup.store.state.access import Key

_LABEL = "key "
_HINT = "ask an administrator of the tenant for a new one: `psoup key create`"


class StaticKeys:
    """`state` gives the newest state, which `catch_up` reads up to the end of the log, and `now`
    the present instant."""

    def __init__(
        self,
        state: Callable[[], State],
        now: Callable[[], int],
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._state = state
        self._now = now
        self._catch_up = catch_up

    @property
    def any(self) -> bool:
        """Whether the store has a key, expired or not."""
        return bool(self._state().access.keys)

    async def principal(self, text: str) -> Principal:
        """The caller who shows a text. Raises Unauthenticated, for a key that is not known only by
        the newest state: another server may just have made it."""
        id_ = id_of(text)
        if id_ is not None and id_ not in self._state().access.keys:
            await self._catch_up()
        key = self._state().access.keys.get(id_ or "")
        if not is_text_of(key, text):
            raise Unauthenticated("the key is none of this store, or was revoked", hint=_HINT)
        assert key is not None
        self._check_time(key)
        return _principal(key)

    def check(self, caller: Principal) -> None:
        """Raises Unauthenticated where the key of a caller has ended."""
        key = self._state().access.keys.get(caller.credential.removeprefix(_LABEL))
        if key is None:
            raise Unauthenticated("the key was revoked", hint=_HINT)
        self._check_time(key)

    def _check_time(self, key: Key) -> None:
        if key.expires is not None and self._now() >= key.expires:
            when = format_instant(key.expires)
            raise Unauthenticated(f"the key {key.id} expired at {when}", hint=_HINT)

    @staticmethod
    def made(caller: Principal) -> bool:
        """Tells whether a caller was told by a key."""
        return caller.credential.startswith(_LABEL)


@lru_cache(4096)
def _principal(key: Key) -> Principal:
    return Principal(
        key.tenant,
        key.owner,
        frozenset(key.roles),
        read_claims(key.claims),
        f"{_LABEL}{key.id}",
        key.expires,
    )
