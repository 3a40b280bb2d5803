"""The public keys of an issuer of JWTs: a JWKS (RFC 7517) in a file, or at a URL.

A file is read again when it changes. A URL is fetched in a thread, never on the event loop: once
when the server starts, then when a JWT names a key that is not cached, at most every half minute,
and when the keys are an hour old. If that fails, the previous keys stay.
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

_FETCH_SECONDS = 5.0
_MAX_BYTES = 1 << 20
# How often keys may be read, and how old they may get: those of a URL, and those of a file.
_READ_INTERVAL_SECONDS, _MAX_AGE_SECONDS = (30.0, 1.0), (3600.0, 1.0)
_MIN_RSA_BITS, _MAX_RSA_BITS = 2048, 8192
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
        self._read_interval = _READ_INTERVAL_SECONDS[not self._is_url]
        self._max_age = _MAX_AGE_SECONDS[not self._is_url]
        self._keys: dict[str, VerifyingKey] = {}
        self._file_mark: tuple[int, int, int] | None = None
        self._asked = self._read = float("-inf")
        self._refreshing: asyncio.Task[None] | None = None

    def load(self) -> None:
        """Read the keys for the first time. Raise ValueError or OSError."""
        self._asked = time.monotonic()
        self._take(self._content())

    def known(self, kid: str) -> VerifyingKey | None:
        """Return a key, or None, without a wait. Begin to refresh keys that are old."""
        if time.monotonic() - self._read >= self._max_age:
            self._refresh()
        return self._keys.get(kid)

    async def find(self, kid: str) -> VerifyingKey | None:
        """Return a key, or None. If it is not cached and a refresh is due, wait for that."""
        key = self.known(kid)
        if key is None and (refreshing := self._refresh()):
            # A bound on the wait, also if the other side sends byte by byte.
            await asyncio.wait({refreshing}, timeout=2 * _FETCH_SECONDS)
            key = self._keys.get(kid)
        return key

    def refresh(self) -> None:
        """Begin to read the source again, even if that was done just now."""
        self._asked = float("-inf")
        self._refresh()

    def _refresh(self) -> asyncio.Task[None] | None:
        """Begin to read the source again, unless that was done just now. All calls that need it
        wait for the same task."""
        if self._refreshing is not None and not self._refreshing.done():
            return self._refreshing
        if time.monotonic() - self._asked < self._read_interval:
            return None
        # Set before the fetch, so that a source that fails is not asked by every call.
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
        """Return the content of the source; None for a file that is as it was."""
        return None if not self._is_url and self._mark() == self._file_mark else self._content()

    def _content(self) -> bytes:
        if not self._is_url:
            # Before the read: a file that changes during it is read again the next time.
            self._file_mark = self._mark()
            with Path(self._source).open("rb") as file:
                return _bounded(file.read(_MAX_BYTES + 1))
        request = urllib.request.Request(self._source, headers={"Accept": "application/json"})
        with _OPENER.open(request, timeout=_FETCH_SECONDS) as response:
            return _bounded(response.read(_MAX_BYTES + 1))

    def _mark(self) -> tuple[int, int, int]:
        stat = os.stat(self._source)
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _take(self, content: bytes) -> None:
        self._keys = read_key_set(content)
        self._read = time.monotonic()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirect: the operator did not choose where it leads."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def _bounded(content: bytes) -> bytes:
    if len(content) > _MAX_BYTES:
        raise ValueError(f"a JWKS of more than {_MAX_BYTES:,} bytes")
    return content


def read_key_set(content: bytes) -> dict[str, VerifyingKey]:
    """Read a JWKS, without the keys that can't sign a JWT of ours. Raise ValueError if it is
    malformed, or has no key."""
    try:
        listed = json.loads(content)["keys"]
        usable = [key for entry in listed if (key := _key(entry)) is not None]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ValueError("not a JWKS: that is a JSON object with a list `keys`") from None
    keys = {key.id: key for key in usable}
    if not keys or len(keys) < len(usable):
        raise ValueError(
            "a JWKS needs public keys for RS256, ES256 or EdDSA, each with a `kid` of its own"
        )
    return keys


def _key(entry: Mapping[str, Any]) -> VerifyingKey | None:
    """Return the key of an entry; None for one that may not verify: a secret one, one without a
    `kid`, one for encryption, one of another kind or another algorithm, one that is too short."""
    kid, kind = entry.get("kid"), (entry.get("kty"), entry.get("crv", ""))
    algorithm = _ALGORITHMS.get(kind)  # type: ignore[arg-type]
    usable = entry.get("use", "sig") == "sig" and entry.get("alg", algorithm) == algorithm
    # `d` is the private part of a key, which does not belong into a published set.
    if not isinstance(kid, str) or not kid or algorithm is None or not usable or "d" in entry:
        return None
    try:
        key = jwt.PyJWK(dict(entry), algorithm).key
    except jwt.PyJWTError:
        return None
    size = getattr(key, "key_size", _MIN_RSA_BITS) if algorithm == "RS256" else _MIN_RSA_BITS
    if not _MIN_RSA_BITS <= size <= _MAX_RSA_BITS:
        return None
    return VerifyingKey(kid, algorithm, key, json.dumps(entry, sort_keys=True))
