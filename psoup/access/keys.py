"""Access keys: how one is made, what the store keeps of it, and how a text is verified.

The text of an access key is `psk_ID_SECRET`. The secret has 256 random bits, so it can't be
guessed. One SHA-256 of the text is therefore enough at rest; slow digests are for passwords that
people choose.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import secrets
from collections.abc import Mapping, Sequence

from psoup.access.principal import ClaimValue
from psoup.errors import BadRequest
from psoup.store.state.access import Key
from psoup.texts import NAME_BYTES, is_encodable, is_name

PREFIX = "psk_"
_TEXT = re.compile(r"psk_([0-9a-f]{16})_[A-Za-z0-9_-]{43}")
_CLAIMS_BYTES = 4096
_MAX_ROLES = 64
# A digest that no text has. It is compared for unknown access keys, so that they take as long.
_UNMATCHED_DIGEST = "0" * 64


def new_key(
    tenant: str,
    owner: str,
    roles: Sequence[str],
    claims: str,
    created: int,
    expires: int | None = None,
) -> tuple[Key, str]:
    """Return a new access key and its text, which can't be derived from the key. Raise BadRequest
    for bad names, roles, claims or a past expiry."""
    _check(tenant, owner, roles)
    if expires is not None and expires <= created:
        raise BadRequest("the access key would expire before it is created", field="expires")
    written = json.dumps(read_claims(claims), separators=(",", ":"))
    id_ = secrets.token_hex(8)
    text = f"{PREFIX}{id_}_{secrets.token_urlsafe(32)}"
    return Key(id_, tenant, owner, tuple(roles), written, digest(text), created, expires), text


def _check(tenant: str, owner: str, roles: Sequence[str]) -> None:
    if len(roles) > _MAX_ROLES:
        raise BadRequest(f"a key has at most {_MAX_ROLES} roles, not {len(roles)}", field="roles")
    names = [("tenant", tenant), ("owner", owner), *(("roles", role) for role in roles)]
    for field, name in names:
        if not is_name(name):
            raise BadRequest(
                f"{field} of a key must be a name of 1 to {NAME_BYTES} bytes, without control "
                "characters",
                field=field,
            )


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def id_of(text: str) -> str | None:
    """Return the id in the text of an access key; None if the text can't be one."""
    match = _TEXT.fullmatch(text)
    return match[1] if match else None


def is_text_of(key: Key | None, text: str) -> bool:
    """Return True if a text is that of the access key, in constant time."""
    expected = _UNMATCHED_DIGEST if key is None else key.digest
    return hmac.compare_digest(digest(text), expected) and key is not None


def read_claims(text: str) -> dict[str, ClaimValue]:
    """Return the claims in a JSON object of plain values; an empty text has none. A value that
    can't be encoded becomes None. Raise BadRequest for anything else."""
    # Characters are counted first, so that a huge text is not encoded.
    if len(text) > _CLAIMS_BYTES or len(text.encode(errors="surrogatepass")) > _CLAIMS_BYTES:
        raise BadRequest(f"claims may take {_CLAIMS_BYTES:,} bytes at most", field="claims")
    try:
        claims = json.loads(text or "{}")
    except (ValueError, RecursionError):
        raise BadRequest(
            "claims are not valid JSON", field="claims", expected="an object"
        ) from None
    if not isinstance(claims, dict) or any(not is_claim(value) for value in claims.values()):
        raise BadRequest(
            "claims must be a JSON object of texts, numbers, booleans and nulls",
            field="claims",
            hint='as {"region": "north", "level": 3}',
        )
    return {name: _stored(value) for name, value in claims.items() if is_encodable(name)}


def is_claim(value: object) -> bool:
    """Return True if a value is plain: policies can compare a column with it."""
    match value:
        case float():
            return math.isfinite(value)
        case int():
            return -(1 << 63) <= value < 1 << 63
    return value is None or isinstance(value, str)


def plain_claims(claims: Mapping[str, object], without: Sequence[str]) -> dict[str, ClaimValue]:
    """Return the claims with plain values, except those named in `without`. A value that can't be
    encoded becomes None."""
    return {
        name: _stored(value)  # type: ignore[arg-type]
        for name, value in claims.items()
        if name not in without and is_claim(value) and is_encodable(name)
    }


def _stored(value: ClaimValue) -> ClaimValue:
    return None if isinstance(value, str) and not is_encodable(value) else value
