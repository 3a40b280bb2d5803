"""The authenticator of a server that asks who calls: by bearer token, else by certificate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from psoup.access.keys import PREFIX, id_of
from psoup.access.principal import ANYONE, Principal
from psoup.errors import Unauthenticated
from psoup.server.identity.authenticator import AcceptAnyone, Authenticator
from psoup.server.identity.certificates import CallerCertificates
from psoup.server.identity.key_sets import KeySet
from psoup.server.identity.settings import CERTIFICATES, JWT, KEYS, NONE, IdentitySettings
from psoup.server.identity.static_keys import StaticKeys
from psoup.server.identity.web_tokens import WebTokens
from psoup.server.status_codes import Context
from psoup.store import State

_HEADER = "authorization"
_SCHEME = "bearer "


class Callers:
    """Callers by the credentials that a server accepts. A bearer token precedes the certificate of
    the connection.

    With `unless_keyless` anyone may call until the store has its first access key. From then on
    this server requires one, also when the last was revoked.
    """

    def __init__(
        self,
        keys: StaticKeys | None = None,
        web_tokens: WebTokens | None = None,
        certificates: CallerCertificates | None = None,
        *,
        unless_keyless: bool = False,
    ) -> None:
        self._keys = keys
        self._web_tokens = web_tokens
        self._certificates = certificates
        self._open = unless_keyless

    async def principal(self, context: Context) -> Principal:
        if self._is_open():
            return ANYONE
        text = _bearer(context)
        if text is not None:
            return await self._principal_of(text)
        if self._certificates is not None:
            principal = self._certificates.principal(context)
            if principal is not None:
                return principal
        raise Unauthenticated(
            "this store asks who calls, and the call does not say",
            hint=f"show {self._accepted()}: Client(credentials=…), or PSOUP_TOKEN or --token-file "
            "for psoup",
        )

    def check(self, caller: Principal) -> None:
        for mode in (self._keys, self._web_tokens, self._certificates):
            if mode is not None and mode.made(caller):
                mode.check(caller)
                return
        if not self._is_open():
            raise Unauthenticated("this store requires a key by now", hint="call again with a key")

    def refresh(self) -> None:
        if self._web_tokens is not None:
            self._web_tokens.refresh()

    def modes(self) -> tuple[str, ...]:
        if self._is_open():
            return ()
        has = {KEYS: self._keys, JWT: self._web_tokens, CERTIFICATES: self._certificates}
        return tuple(name for name, mode in has.items() if mode is not None)

    def _is_open(self) -> bool:
        # One way only: revoking the last key must not open the store to anyone.
        if self._open and self._keys is not None and self._keys.any:
            self._open = False
        return self._open

    async def _principal_of(self, text: str) -> Principal:
        if self._keys is not None and (text.startswith(PREFIX) or self._web_tokens is None):
            return await self._keys.principal(text)
        if self._web_tokens is not None:
            return await self._web_tokens.principal(text)
        raise Unauthenticated("this server takes no bearer tokens", hint=f"show {self._accepted()}")

    def _accepted(self) -> str:
        words = {KEYS: "a key (psk_…)", JWT: "a JWT", CERTIFICATES: "a client certificate"}
        return " or ".join(words[mode] for mode in self.modes())


def _bearer(context: Context) -> str | None:
    """Return the bearer token of a call. Raise Unauthenticated for any other authorization, or
    two."""
    values = [value for name, value in context.invocation_metadata() or () if name == _HEADER]
    if not values:
        return None
    (first, *more) = values
    if more or not isinstance(first, str) or first[: len(_SCHEME)].lower() != _SCHEME:
        raise Unauthenticated(
            "the call's authorization can't be read", hint="send `authorization: Bearer TOKEN`"
        )
    return first[len(_SCHEME) :].strip()


def shown_credential(context: Context) -> str:
    """Return the name of a refused credential: the id of an access key, or only its kind. The name
    holds no secret."""
    values = [value for name, value in context.invocation_metadata() or () if name == _HEADER]
    if values:
        text = values[0] if isinstance(values[0], str) else ""
        id_ = id_of(text[len(_SCHEME) :].strip())
        return "a token" if id_ is None else f"key {id_}"
    return "a certificate" if context.auth_context().get("x509_pem_cert") else ""


def authenticator(
    settings: IdentitySettings,
    state: Callable[[], State],
    now: Callable[[], int],
    catch_up: Callable[[], Awaitable[None]],
) -> Authenticator:
    """Make the authenticator of a server. Raise ValueError or OSError if the keys of JWTs can't be
    read."""
    if NONE in settings.auth:
        return AcceptAnyone()
    keys = StaticKeys(state, now, catch_up)
    if not settings.auth:
        return Callers(keys, unless_keyless=True)
    web_tokens = None
    if settings.jwt is not None:
        key_set = KeySet(settings.jwt.keys)
        key_set.load()
        web_tokens = WebTokens(settings.jwt, key_set, now)
    return Callers(
        keys if KEYS in settings.auth else None,
        web_tokens,
        CallerCertificates(now) if CERTIFICATES in settings.auth else None,
    )
