"""The public keys of an issuer of JWTs: a JWKS (RFC 7517) in a file, or at a URL.

A file is read again when it changes. A URL is fetched in a thread, never on the event loop: once
when the server starts, then when a JWT names a key that is not known, at most every half minute,
and when the keys are an hour old. Where that fails the keys known before stay.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt

log = logging.getLogger("psoup.server")

_SECONDS = 5.0
_LARGEST = 1 << 20
# Seconds between two looks, and after which a look is due: at a URL, and at a file.
_BETWEEN, _OLD = (30.0, 1.0), (3600.0, 1.0)
_LEAST_RSA, _MOST_RSA = 2048, 8192
# What each kind of key may sign with. A key that names an algorithm must name this one.
_ALGORITHMS = {("RSA", ""): "RS256", ("EC", "P-256"): "ES256", ("OKP", "Ed25519"): "EdDSA"}


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A public key, with the one algorithm that a JWT of it may name."""

    id: str
    algorithm: str
    key: Any = field(hash=False)
    content: str

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits, which another key under the same `kid` does not have."""
        return hashlib.sha256(self.content.encode()).hexdigest()[:16]


class KeySet:
    """The keys by `kid`. `source` is a path, or a URL."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._is_url = source.startswith(("https://", "http://"))
        self._between = _BETWEEN[not self._is_url]
        self._old = _OLD[not self._is_url]
        self._keys: dict[str, VerifyingKey] = {}
        self._seen: tuple[int, int, int] | None = None
        self._asked = self._read = float("-inf")
        self._refreshing: asyncio.Task[None] | None = None

    def load(self) -> None:
        """Reads the keys for the first time. Raises ValueError or OSError."""
        self._asked = time.monotonic()
        self._take(self._content())

    def known(self, kid: str) -> VerifyingKey | None:
        """A key, without waiting; the source is asked again meanwhile where it was long ago."""
        if time.monotonic() - self._read >= self._old:
            self._refresh()
        return self._keys.get(kid)

    async def find(self, kid: str) -> VerifyingKey | None:
        """A key; for one that is not known the source is asked again, where that is due."""
        found = self.known(kid)
        if found is None and (refreshing := self._refresh()):
            # No longer than that, also where the other side sends byte by byte.
            await asyncio.wait({refreshing}, timeout=2 * _SECONDS)
            found = self._keys.get(kid)
        return found

    def _refresh(self) -> asyncio.Task[None] | None:
        """Begins to read the source again, unless that was done just now; all who need it wait for
        the same one."""
        if self._refreshing is not None and not self._refreshing.done():
            return self._refreshing
        if time.monotonic() - self._asked < self._between:
            return None
        self._asked = time.monotonic()
        self._refreshing = asyncio.create_task(self._again())
        return self._refreshing

    async def _again(self) -> None:
        try:
            content = await asyncio.to_thread(self._changed)
            if content is not None:
                self._take(content)
            self._read = time.monotonic()
        except (OSError, ValueError) as error:
            log.warning("the keys of %s stay as they were: %s", self._source, error)

    def _changed(self) -> bytes | None:
        """The content of the source; None for a file that is as it was."""
        return None if not self._is_url and self._mark() == self._seen else self._content()

    def _content(self) -> bytes:
        if not self._is_url:
            self._seen = self._mark()
            with Path(self._source).open("rb") as file:
                return _bounded(file.read(_LARGEST + 1))
        request = urllib.request.Request(self._source, headers={"Accept": "application/json"})
        with _OPENER.open(request, timeout=_SECONDS) as response:
            return _bounded(response.read(_LARGEST + 1))

    def _mark(self) -> tuple[int, int, int]:
        found = os.stat(self._source)
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _take(self, content: bytes) -> None:
        self._keys = read_key_set(content)
        self._read = time.monotonic()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Whoever an address sends on to was not chosen by the operator."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def _bounded(content: bytes) -> bytes:
    if len(content) > _LARGEST:
        raise ValueError(f"a JWKS of more than {_LARGEST:,} bytes")
    return content


def read_key_set(content: bytes) -> dict[str, VerifyingKey]:
    """Reads a JWKS; keys that no JWT of ours can be signed with are left out. Raises ValueError
    where it is none, or no key is left."""
    try:
        listed = json.loads(content)["keys"]
        found = [key for one in listed if (key := _key(one)) is not None]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ValueError("this is no JWKS: a JSON object with a list `keys`") from None
    keys = {key.id: key for key in found}
    if not keys or len(keys) < len(found):
        raise ValueError(
            "a JWKS needs public keys for RS256, ES256 or EdDSA, each with a `kid` of its own"
        )
    return keys


def _key(one: Mapping[str, Any]) -> VerifyingKey | None:
    """The key of an entry; None for one that may not verify: a secret one, one without a `kid`,
    one for encryption, one of another kind or another algorithm, one that is too short."""
    kid, kind = one.get("kid"), (one.get("kty"), one.get("crv", ""))
    algorithm = _ALGORITHMS.get(kind)  # type: ignore[arg-type]
    usable = one.get("use", "sig") == "sig" and one.get("alg", algorithm) == algorithm
    if not isinstance(kid, str) or not kid or algorithm is None or not usable or "d" in one:
        return None
    try:
        key = jwt.PyJWK(dict(one), algorithm).key
    except jwt.PyJWTError:
        return None
    size = getattr(key, "key_size", _LEAST_RSA) if algorithm == "RS256" else _LEAST_RSA
    if not _LEAST_RSA <= size <= _MOST_RSA:
        return None
    return VerifyingKey(kid, algorithm, key, json.dumps(one, sort_keys=True))
