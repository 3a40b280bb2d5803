"""Callers with a JWT (RFC 7519) that an issuer has signed.

A verified JWT is cached by its digest until it expires, so that a call need not check a signature.
Whether its key is still one of the issuer is checked each time.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jwt

from datastem.instants import SECOND
from psoup.access.keys import plain_claims
from psoup.access.principal import Principal
from psoup.errors import Unauthenticated
from psoup.server.identity.key_sets import KeySet, VerifyingKey
from psoup.server.identity.settings import JwtSettings
from psoup.texts import NAME_BYTES, is_name

_MAX_BYTES = 8 << 10
_REMEMBERED = 10_000
_LABEL = "jwt "
_HINT = "get a new one from its issuer"
# Claims about the token, which say nothing about the caller.
_REGISTERED = ("iss", "aud", "exp", "nbf", "iat", "jti")
_MAX_SECONDS = 1 << 53
_A_NAME = f"a name of 1 to {NAME_BYTES} bytes, without control characters"


@dataclass(frozen=True, slots=True)
class _Verified:
    principal: Principal
    begins: int
    expires: int
    key: VerifyingKey


class WebTokens:
    """The JWTs of an issuer. `keys` must have been loaded; `now` returns the present instant."""

    def __init__(self, settings: JwtSettings, keys: KeySet, now: Callable[[], int]) -> None:
        self._settings = settings
        self._keys = keys
        self._now = now
        self._skew = int(settings.skew * SECOND)
        self._verified: OrderedDict[bytes, _Verified] = OrderedDict()

    def refresh(self) -> None:
        """Begin to read the keys of the issuer again, however new they are."""
        self._keys.refresh()

    async def principal(self, text: str) -> Principal:
        """Return the caller that a JWT names. Raise Unauthenticated."""
        if len(text) > _MAX_BYTES:
            raise _refused(f"it has {len(text):,} bytes; at most {_MAX_BYTES:,} are taken")
        # The cache holds digests: no usable token stays in memory.
        mark = hashlib.sha256(text.encode()).digest()
        verified = self._verified.get(mark)
        kid = verified.key.id if verified is not None else _kid(text)
        key = await self._keys.find(kid)
        if key is None:
            self._verified.pop(mark, None)
            raise _refused("its `kid` is not a key of the issuer")
        # The issuer may have put another key under the same `kid`. Only verified tokens are cached,
        # so forged ones can't displace them.
        if verified is None or verified.key.content != key.content:
            verified = self._verify(text, key, mark)
            self._remember(mark, verified)
        self._check_time(verified)
        return verified.principal

    def check(self, caller: Principal) -> None:
        """Raise Unauthenticated if the JWT of a caller has expired, or its key is gone: also if the
        issuer has another key under the same `kid` now."""
        if caller.expires is not None and self._now() >= caller.expires:
            raise _refused("it has expired")
        # A `kid` may have blanks, what follows it has none.
        kid, fingerprint, _ = caller.credential.removeprefix(_LABEL).rsplit(" ", 2)
        key = self._keys.known(kid)
        if key is None or key.fingerprint != fingerprint:
            raise _refused("its key is no longer one of the issuer")

    @staticmethod
    def made(caller: Principal) -> bool:
        """Return whether a caller was identified by a JWT."""
        return caller.credential.startswith(_LABEL)

    def _remember(self, mark: bytes, verified: _Verified) -> None:
        self._verified[mark] = verified
        while len(self._verified) > _REMEMBERED:
            self._verified.popitem(last=False)

    def _verify(self, text: str, key: VerifyingKey, mark: bytes) -> _Verified:
        settings = self._settings
        try:
            claims = jwt.decode(
                text,
                key.key,
                # The algorithm is that of the key, never the one that the token names.
                algorithms=[key.algorithm],
                issuer=settings.issuer,
                audience=settings.audience,
                options={
                    # Times are checked here, by the server's own clock.
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_sub": False,
                    "verify_jti": False,
                    "require": ["exp", "iss", "aud"],
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            # Not the message: some of them quote the token.
            raise _refused(_REASONS.get(type(error), "it can't be verified")) from None
        expires = _instant(claims, "exp") + self._skew
        begins = _instant(claims, "nbf") - self._skew if "nbf" in claims else 0
        principal = self._principal(claims, _credential(key, mark), expires)
        return _Verified(principal, begins, expires, key)

    def _check_time(self, verified: _Verified) -> None:
        now = self._now()
        if now >= verified.expires:
            raise _refused("it has expired")
        if now < verified.begins:
            raise _refused("it is not valid yet")

    def _principal(self, claims: Mapping[str, Any], credential: str, expires: int) -> Principal:
        settings = self._settings
        return Principal(
            _name(claims, settings.tenant),
            _name(claims, settings.owner),
            _roles(claims.get(settings.roles), settings.roles),
            plain_claims(claims, _REGISTERED),
            credential,
            expires,
        )


def _credential(key: VerifyingKey, mark: bytes) -> str:
    """Name a JWT for logs, and by its key for `check`; nothing of it is secret."""
    return f"{_LABEL}{key.id} {key.fingerprint} {mark.hex()[:16]}"


_REASONS: dict[type[Exception], str] = {
    jwt.InvalidSignatureError: "its signature is wrong",
    jwt.InvalidAlgorithmError: "its `alg` is not that of its key",
    jwt.InvalidIssuerError: "its `iss` is another issuer",
    jwt.InvalidAudienceError: "its `aud` is another audience",
    jwt.MissingRequiredClaimError: "it needs `exp`, `iss` and `aud`",
    jwt.DecodeError: "malformed",
}


def _kid(text: str) -> str:
    """Return the key that a JWT names; nothing else of its header is believed. Raise
    Unauthenticated."""
    try:
        kid = jwt.get_unverified_header(text).get("kid")
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise _refused("malformed") from None
    if not isinstance(kid, str) or not kid:
        raise _refused("it has no `kid`")
    return kid


def _instant(claims: Mapping[str, Any], name: str) -> int:
    value = claims[name]
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not abs(value) < _MAX_SECONDS
    ):
        raise _refused(f"its `{name}` is not an instant")
    return int(value * SECOND)


def _name(claims: Mapping[str, Any], claim: str) -> str:
    value = claims.get(claim)
    if not isinstance(value, str) or not is_name(value):
        raise _refused(f"its claim `{claim}` must be {_A_NAME}")
    return value


def _roles(value: Any, claim: str) -> frozenset[str]:
    """Return a list of names, or one text of names with spaces between; nothing if it is
    absent."""
    if value is None:
        return frozenset()
    listed = value.split() if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(map(is_name, listed)):
        raise _refused(f"each name in its claim `{claim}` must be {_A_NAME}")
    return frozenset(listed)


def _refused(why: str) -> Unauthenticated:
    return Unauthenticated(f"the JWT is refused: {why}", hint=_HINT)
