"""The keys of an issuer: in a file, at a URL, and how often either is looked at."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from psoup.server.identity.key_sets import KeySet, read_key_set
from tests.support.authority import Issuer


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


class Site(ThreadingHTTPServer):
    """An issuer's site: `content` is what it answers, None that it fails."""

    content: bytes | None = b""
    asked = 0
    redirect = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/jwks"


class _Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self.server.asked += 1
        if self.server.redirect:
            self.send_response(302)
            self.send_header("Location", self.server.redirect)
            self.end_headers()
            return
        self.send_response(200 if self.server.content is not None else 500)
        self.end_headers()
        self.wfile.write(self.server.content or b"")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(("127.0.0.1", 0), _Handler) as site:
        thread = threading.Thread(target=site.serve_forever, args=(0.02,))
        thread.start()
        yield site
        site.shutdown()
        thread.join()


async def test_an_unknown_key_is_asked_for_once_in_a_while(site: Site, issuer: Issuer) -> None:
    site.content = issuer.jwks("ES256")
    keys = KeySet(site.url)
    keys.load()
    site.content = issuer.jwks()
    answers = await asyncio.gather(*(keys.find("RS256") for _ in range(50)))
    assert answers == [None] * 50 and site.asked == 1
    keys._asked = float("-inf")
    answers = await asyncio.gather(*(keys.find("RS256") for _ in range(50)))
    assert {answer and answer.algorithm for answer in answers} == {"RS256"} and site.asked == 2
    assert await keys.find("nobody") is None and site.asked == 2


async def test_a_site_that_fails_leaves_the_keys(
    site: Site, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    site.content = issuer.jwks()
    keys = KeySet(site.url)
    keys.load()
    for content in (None, b"<html>", b"{}", b'{"keys": []}', b"x" * (2 << 20)):
        site.content = content
        keys._asked = float("-inf")
        assert await keys.find("unknown") is None
        assert keys.known("ES256") is not None
    assert caplog.text.count("stay as they were") == 5


async def test_a_refresh_does_not_wait_for_its_time(site: Site, issuer: Issuer) -> None:
    site.content = issuer.jwks("ES256")
    keys = KeySet(site.url)
    keys.load()
    site.content = issuer.jwks()
    keys.refresh()
    assert await keys.find("RS256") is not None and site.asked == 2


def test_nobody_is_sent_on(site: Site, issuer: Issuer) -> None:
    site.content, site.redirect = issuer.jwks(), "http://127.0.0.1:1/elsewhere"
    with pytest.raises(OSError):
        KeySet(site.url).load()


async def test_a_file_is_read_again_when_it_changes(tmp_path: Path, issuer: Issuer) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(issuer.jwks("ES256"))
    keys = KeySet(str(path))
    keys.load()
    path.write_bytes(issuer.jwks("ES256", "EdDSA"))
    keys._asked = float("-inf")
    assert await keys.find("EdDSA") is not None


def test_keys_that_can_not_verify_are_left_out(issuer: Issuer) -> None:
    good = issuer.jwk("ES256")
    listed = [
        good,
        {**issuer.jwk("RS256"), "use": "enc"},
        {**issuer.jwk("RS256"), "kid": None},
        {**issuer.jwk("RS256"), "alg": "RS512"},
        {**issuer.jwk("EdDSA"), "d": "secret"},
        {"kty": "oct", "kid": "shared", "k": "c2VjcmV0", "alg": "HS256"},
        {**issuer.jwk("EdDSA"), "crv": "X25519"},
        {**issuer.jwk("RS256"), "n": "!!"},
    ]
    assert set(read_key_set(json.dumps({"keys": listed}).encode())) == {"ES256"}


@pytest.mark.parametrize("content", [b"", b"[]", b'{"keys": 5}', b'{"keys": [5]}', b'{"keys": []}'])
def test_what_is_no_key_set(content: bytes) -> None:
    with pytest.raises(ValueError, match="JWKS"):
        read_key_set(content)


def test_two_keys_of_one_name(issuer: Issuer) -> None:
    listed = [issuer.jwk("ES256"), {**issuer.jwk("EdDSA"), "kid": "ES256"}]
    with pytest.raises(ValueError, match="of its own"):
        read_key_set(json.dumps({"keys": listed}).encode())
