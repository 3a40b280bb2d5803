"""Callers with an access key of the store. It is looked up in the state on each call, so that it
ends as soon as this server has read of its end."""

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
    """The access keys of a store. `state` returns the newest state, which `catch_up` reads up to
    the end of the log, and `now` the present instant."""

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
        """Whether the store has an access key, expired or not."""
        return bool(self._state().access.keys)

    async def principal(self, text: str) -> Principal:
        """Return the caller with the key that a text is. Raise Unauthenticated. Whether a key is
        unknown is decided by the newest state: another server may just have made it."""
        id_ = id_of(text)
        if id_ is not None and id_ not in self._state().access.keys:
            await self._catch_up()
        key = self._state().access.keys.get(id_ or "")
        if not is_text_of(key, text):
            raise Unauthenticated(
                "the access key is unknown to this store, or was revoked", hint=_HINT
            )
        assert key is not None
        self._check_time(key)
        return _principal(key)

    def check(self, caller: Principal) -> None:
        """Raise Unauthenticated if the key of a caller has ended."""
        key = self._state().access.keys.get(caller.credential.removeprefix(_LABEL))
        if key is None:
            raise Unauthenticated("the access key was revoked", hint=_HINT)
        self._check_time(key)

    def _check_time(self, key: Key) -> None:
        if key.expires is not None and self._now() >= key.expires:
            when = format_instant(key.expires)
            raise Unauthenticated(f"the access key {key.id} expired at {when}", hint=_HINT)

    @staticmethod
    def made(caller: Principal) -> bool:
        """Return whether a caller was identified by an access key."""
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
